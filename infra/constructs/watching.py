"""What the functions that answer events have in common: what they may look at, and where events end that fail."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.policies import acknowledge_wildcards, allow

RETENTION_DAYS = 14


class Watching(Construct):
    """policy: looking at executions and model versions, changing nothing. dead_letters: what could not be answered."""

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
                allow(actions=["sagemaker:ListModelPackages"], resources=[group.arn]),
                allow(actions=["sagemaker:DescribeModelPackage"], resources=[group.versions_arn]),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            self.policy, resources=[executions, group.versions_arn],
            reason="The service names executions and numbers model versions at run time.",
        )  # fmt: skip
        self.dead_letters = sqs.Queue(
            self, "DeadLetters", encryption=sqs.QueueEncryption.SQS_MANAGED, enforce_ssl=True,
            retention_period=Duration.days(RETENTION_DAYS),
        )  # fmt: skip
