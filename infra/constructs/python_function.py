"""A function from one Python module: its code, its role and where it logs, nothing that is not asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.workloads import Workloads
from infra.function_code import function_files, staged_folder

RUNTIME = lambda_.Runtime.PYTHON_3_14


class PythonFunction(Construct):
    """role: of this function alone. policy: what it may do, None for nothing but its log. function: the function."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        module: str,
        description: str,
        workloads: Workloads,
        statements: Sequence[iam.PolicyStatement] = (),
        environment: Mapping[str, str] | None = None,
        timeout_seconds: int = 60,
        memory_mib: int = 256,
        data_files: Mapping[str, bytes] | None = None,
    ) -> None:
        """module: whose `handler` is called, such as infra.handlers.notify; what it imports of this repository goes
        with it. statements: what it may do beside writing its log. data_files: content of further files, by path."""
        super().__init__(scope, construct_id)
        # Lambda takes a role of its own account alone, from whoever may pass it, and documents no conditions of trust.
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description,
            managed_policies=[workloads.policy],
        )  # fmt: skip
        # The policy is a resource of its own, so that the reasons of its wildcards can name it.
        self.policy = iam.Policy(self, "Policy", roles=[self.role], statements=list(statements)) if statements else None
        with staged_folder({**function_files(module), **(data_files or {})}) as folder:
            self.function = lambda_.Function(
                self, "Function",
                description=description, runtime=RUNTIME, architecture=lambda_.Architecture.ARM_64,
                handler=f"{module}.handler", code=lambda_.Code.from_asset(folder), role=self.role,
                timeout=Duration.seconds(timeout_seconds), memory_size=memory_mib,
                environment=dict(environment or {}), log_group=workloads.log_group,
            )  # fmt: skip
        if self.policy is not None:
            # Nobody calls it before it may do its work.
            self.function.node.add_dependency(self.policy)
