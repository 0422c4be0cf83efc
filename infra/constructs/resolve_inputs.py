"""The ResolveInputs function: pipeline/resolve_inputs.py as it is, on Lambda."""

from __future__ import annotations

from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.constructs.python_function import PythonFunction
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.policies import acknowledge_wildcards, allow


class ResolveInputs(Construct):
    """Lists what lies under the input URIs, finds the champion, sees other executions; changes nothing."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        storage: Storage,
        group: ModelPackageGroup,
        pipeline_arn: str,
        workloads: Workloads,
    ) -> None:
        super().__init__(scope, construct_id)
        made = PythonFunction(
            self, "ResolveInputs", module="pipeline.resolve_inputs",
            description="langadapt: digests of the inputs, and the champion",
            workloads=workloads, timeout_seconds=300, memory_mib=512,
            statements=[
                allow(actions=["s3:ListBucket"], resources=[storage.bucket.bucket_arn]),
                allow(actions=["sagemaker:ListModelPackages"], resources=[group.arn]),
                allow(actions=["sagemaker:DescribeModelPackage"], resources=[group.versions_arn]),
                allow(actions=["sagemaker:ListPipelineExecutions"], resources=[pipeline_arn]),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            made.policy or self,
            resources=[group.versions_arn],
            reason="Numbers of model versions are not known before.",
        )
        self.function = made.function
        self.role = made.role
