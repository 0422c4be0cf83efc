"""Who may change the pipeline's definition from a terminal: a policy for few, beside that of the operators."""

from __future__ import annotations

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.roles import SAGEMAKER
from infra.policies import allow


class Maintainers(Construct):
    """policy: what `langadapt upsert` asks beyond the operators' policy. Who holds it decides what the jobs run."""

    def __init__(self, scope: Construct, construct_id: str, *, pipeline_arn: str, pipeline_role_arn: str) -> None:
        """pipeline_role_arn: the one role that this pipeline may be given."""
        super().__init__(scope, construct_id)
        self.policy = iam.ManagedPolicy(
            self, "Policy", description="langadapt: people who change the pipeline's definition from a terminal",
            statements=[
                allow(actions=["sagemaker:AddTags", "sagemaker:CreatePipeline", "sagemaker:UpdatePipeline"],
                      resources=[pipeline_arn]),
                allow(actions=["iam:PassRole"], resources=[pipeline_role_arn],
                      conditions={"StringEquals": {"iam:PassedToService": SAGEMAKER}}),
            ],
        )  # fmt: skip
        CfnOutput(self, "PolicyArn", value=self.policy.managed_policy_arn).override_logical_id("MaintainersPolicy")
