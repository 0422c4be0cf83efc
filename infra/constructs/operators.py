"""What people at the command line may do with this pipeline: a policy to attach to their role or group."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.constructs.roles import JOBS_OF_PIPELINES
from infra.constructs.sagemaker_pipeline import DefinitionNames
from infra.constructs.storage import Storage
from infra.policies import acknowledge_wildcards, allow, arn

EXECUTION_ACTIONS = (
    "sagemaker:DescribePipelineDefinitionForExecution", "sagemaker:DescribePipelineExecution",
    "sagemaker:ListPipelineExecutionSteps", "sagemaker:ListPipelineParametersForExecution",
    "sagemaker:RetryPipelineExecution", "sagemaker:StopPipelineExecution",
)  # fmt: skip
# Not to create or update it: the policy of the maintainers is for that. Schedules are the stack's.
PIPELINE_ACTIONS = (
    "sagemaker:DescribePipeline", "sagemaker:ListPipelineExecutions", "sagemaker:ListTags",
    "sagemaker:StartPipelineExecution",
)  # fmt: skip
# Lists that have no resource, and what tells nothing of this account's data.
LIST_ACTIONS = (
    "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeSubnets", "scheduler:ListSchedules",
    "servicequotas:ListAWSDefaultServiceQuotas", "servicequotas:ListServiceQuotas",
)  # fmt: skip


class Operators(Construct):
    """policy: push, preflight, start, status, logs, stop, retry and models; nothing can be deleted."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        pipeline_arn: str,
        group: ModelPackageGroup,
        storage: Storage,
        names: DefinitionNames,
        image_repositories: Sequence[str],
        endpoint_name: str | None,
    ) -> None:
        """image_repositories: ARNs of those that preflight asks. endpoint_name: of the endpoint that
        `langadapt chat --endpoint` asks, None for none."""
        super().__init__(scope, construct_id)
        endpoint = [arn(self, service="sagemaker", resource=f"endpoint/{endpoint_name}")] if endpoint_name else []
        objects = storage.objects("*")
        schedules = arn(self, service="scheduler", resource="schedule/default/*")
        executions, processing, training, *streams = self._of_executions(pipeline_arn)
        statements = [
            allow(actions=PIPELINE_ACTIONS, resources=[pipeline_arn]),
            allow(actions=EXECUTION_ACTIONS, resources=[executions]),
            allow(actions=["sagemaker:DescribeProcessingJob"], resources=[processing]),
            allow(actions=["sagemaker:DescribeTrainingJob"], resources=[training]),
            allow(actions=["logs:DescribeLogStreams", "logs:GetLogEvents"], resources=streams),
            # The service documents the versions as what is listed; the request names the group.
            allow(actions=["sagemaker:ListModelPackages"], resources=[group.arn, group.versions_arn]),
            allow(actions=["sagemaker:DescribeModelPackage", "sagemaker:UpdateModelPackage"],
                  resources=[group.versions_arn]),
            allow(actions=["s3:GetBucketLocation", "s3:ListBucket"], resources=[storage.bucket.bucket_arn]),
            allow(actions=["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"], resources=[objects]),
            allow(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[storage.key.key_arn]),
            allow(actions=["iam:GetRole"], resources=[names.job_role_arn, names.pipeline_role_arn]),
            allow(actions=["lambda:GetFunction"], resources=[names.resolve_inputs_arn]),
            allow(actions=["scheduler:GetSchedule"], resources=[schedules]),
            allow(actions=LIST_ACTIONS, resources=["*"]),
            *(allow(actions=["ecr:BatchGetImage"], resources=[repository]) for repository in image_repositories),
            *(allow(actions=["sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithResponseStream"],
                    resources=[name]) for name in endpoint),
        ]  # fmt: skip
        self.policy = iam.ManagedPolicy(
            self, "Policy", description="langadapt: people who run the pipeline and approve its models",
            statements=statements,
        )  # fmt: skip
        acknowledge_wildcards(
            self.policy,
            resources=[executions, processing, training, group.versions_arn, objects, *streams, schedules, "*"],
            reason="Executions, jobs, versions, objects, logs and schedules of this pipeline get their names at run "
            "time; lists of zones, quotas and schedules have no resource.",
        )  # fmt: skip
        CfnOutput(self, "PolicyArn", value=self.policy.managed_policy_arn).override_logical_id("OperatorsPolicy")

    def _of_executions(self, pipeline_arn: str) -> list[str]:
        """ARNs of executions, processing jobs, training jobs, and the logs of both."""
        jobs = [arn(self, service="sagemaker", resource=f"{kind}/{JOBS_OF_PIPELINES}")
                for kind in ("processing-job", "training-job")]  # fmt: skip
        streams = [arn(self, service="logs", resource=f"log-group:/aws/sagemaker/{jobs}:*")
                   for jobs in ("ProcessingJobs", "TrainingJobs")]  # fmt: skip
        return [f"{pipeline_arn}/execution/*", *jobs, *streams]
