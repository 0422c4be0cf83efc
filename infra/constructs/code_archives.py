"""The steps' code archives in the bucket, where the definition names them: by their own sha256."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CustomResource, Duration
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.policies import allow
from pipeline.code_archive import code_archive


class CodeArchives(Construct):
    """placed: what has to be there before the pipeline runs."""

    def __init__(
        self, scope: Construct, construct_id: str, *, steps: Sequence[str], storage: Storage, workloads: Workloads
    ) -> None:
        """steps: modules of the steps, such as prepare_corpus."""
        super().__init__(scope, construct_id)
        archives = {archive.name: archive.content for archive in map(code_archive, steps)}
        objects = [storage.objects(f"code/{name}") for name in sorted(archives)]
        placing = PythonFunction(
            self, "Place", module="infra.handlers.place_code", workloads=workloads, timeout_seconds=300,
            description="langadapt: puts the steps' code into the bucket",
            data_files={f"archives/{name}": content for name, content in archives.items()},
            environment={
                "BUCKET": storage.bucket.bucket_name,
                "PREFIX": f"{storage.prefix}/code/",
                "KEY_ARN": storage.key.key_arn,
            },
            statements=[
                # To read as well, as that is how a checksum is asked for.
                allow(actions=["s3:PutObject", "s3:GetObject"], resources=objects),
                allow(actions=["kms:GenerateDataKey", "kms:Decrypt"], resources=[storage.key.key_arn]),
            ],
        )  # fmt: skip
        self.placed = CustomResource(
            self, "Code", service_token=placing.function.function_arn, resource_type="Custom::CodeArchives",
            properties={"Names": sorted(archives)}, service_timeout=Duration.minutes(10),
        )  # fmt: skip
