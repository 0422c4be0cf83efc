"""The ResolveInputs function: pipeline/resolve_inputs.py as it is, on Lambda."""

from __future__ import annotations

from constructs import Construct

from infra.constructs.looking import Looking
from infra.constructs.python_function import PythonFunction
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.policies import allow


class ResolveInputs(Construct):
    """Lists what lies under the input URIs, finds the champion, sees other executions; changes nothing."""

    def __init__(
        self, scope: Construct, construct_id: str, *, storage: Storage, looking: Looking, workloads: Workloads
    ) -> None:
        super().__init__(scope, construct_id)
        made = PythonFunction(
            self, "Python", module="pipeline.resolve_inputs",
            description="langadapt: digests of the inputs, and the champion",
            workloads=workloads, timeout_seconds=300, memory_mib=512,
            statements=[allow(actions=["s3:ListBucket"], resources=[storage.bucket.bucket_arn])],
        )  # fmt: skip
        made.role.add_managed_policy(looking.policy)
        self.function = made.function
        self.role = made.role
