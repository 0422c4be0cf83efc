"""Looking at executions and model versions: what functions may do that read the state of the pipeline."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.policies import acknowledge_wildcards, allow


class Looking(Construct):
    """policy: for roles that look at executions and model versions, and change nothing by it."""

    def __init__(self, scope: Construct, construct_id: str, *, pipeline_arn: str, group: ModelPackageGroup) -> None:
        super().__init__(scope, construct_id)
        executions = f"{pipeline_arn}/execution/*"
        self.policy = iam.ManagedPolicy(
            self, "Policy", description="langadapt: look at executions and model versions",
            statements=[
                allow(actions=["sagemaker:DescribePipeline", "sagemaker:ListPipelineExecutions"],
                      resources=[pipeline_arn]),
                allow(actions=["sagemaker:DescribePipelineExecution", "sagemaker:ListPipelineExecutionSteps"],
                      resources=[executions]),
                # The service documents the versions as what is listed; the request names the group.
                allow(actions=["sagemaker:ListModelPackages"], resources=[group.arn, group.versions_arn]),
                allow(actions=["sagemaker:DescribeModelPackage"], resources=[group.versions_arn]),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            self.policy, resources=[executions, group.versions_arn],
            reason="The service names executions and numbers model versions at run time.",
        )  # fmt: skip
