"""A function from one Python file: its code, its role and where it logs, nothing that is not asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.workloads import Workloads

HANDLERS = Path(__file__).parents[1] / "handlers"
RUNTIME = lambda_.Runtime.PYTHON_3_14


class PythonFunction(Construct):
    """role: of this function alone. policy: what it may do, None for nothing but its log. function: the function."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        file: Path,
        description: str,
        workloads: Workloads,
        statements: Sequence[iam.PolicyStatement] = (),
        environment: Mapping[str, str] | None = None,
        timeout_seconds: int = 60,
        memory_mib: int = 256,
        data_files: Mapping[str, bytes] | None = None,
    ) -> None:
        """file: a module whose `handler` is called, such as HANDLERS / "approval.py". statements: what it may do beside
        writing its log. data_files: content of files that lie beside the module, by name."""
        super().__init__(scope, construct_id)
        # Lambda takes a role of its own account alone, from whoever may pass it, and documents no conditions of trust.
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description,
            managed_policies=[workloads.policy],
        )  # fmt: skip
        # The policy is a resource of its own, so that the reasons of its wildcards can name it.
        self.policy = iam.Policy(self, "Policy", roles=[self.role], statements=list(statements)) if statements else None
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, file.name).write_bytes(file.read_bytes())
            for name, content in (data_files or {}).items():
                Path(folder, name).write_bytes(content)
            self.function = lambda_.Function(
                self, "Function",
                description=description, runtime=RUNTIME, architecture=lambda_.Architecture.ARM_64,
                handler=f"{file.stem}.handler", code=lambda_.Code.from_asset(folder), role=self.role,
                timeout=Duration.seconds(timeout_seconds), memory_size=memory_mib,
                environment=dict(environment or {}), log_group=workloads.log_group,
                logging_format=lambda_.LoggingFormat.TEXT,
            )  # fmt: skip
