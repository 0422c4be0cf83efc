"""What the functions and the image build have in common: one group of logs, and the right to write into it."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.policies import allow


class Workloads(Construct):
    """The log group `/langadapt/<name>` of all functions and of the image build."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str) -> None:
        super().__init__(scope, construct_id)
        self.log_group = logs.LogGroup(
            self, "Logs", log_group_name=f"/langadapt/{name}", retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=RemovalPolicy.DESTROY,
        )  # fmt: skip
        # The group's ARN as CloudFormation gives it covers the group's streams, which get their names at run time.
        self.policy = iam.ManagedPolicy(
            self, "LogsPolicy", description="langadapt: write to the log group of functions and image build",
            statements=[
                allow(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self.log_group.log_group_arn])
            ],
        )  # fmt: skip
