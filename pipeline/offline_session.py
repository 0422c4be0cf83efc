"""A pipeline session without an account: it captures requests and refuses whatever would leave this machine."""

from __future__ import annotations

from typing import Any, NoReturn

import boto3
from sagemaker.core.workflow.pipeline_context import PipelineSession

from pipeline.config import PipelineConfig

# Handed over as it is, so that the SDK looks for no configuration of its own; and no telemetry.
SDK_CONFIG = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


class OfflineSession(PipelineSession):
    """Knows region, bucket and role from the configuration, where the SDK would ask the account for them."""

    def __init__(self, config: PipelineConfig) -> None:
        self._role_arn = config.aws.role_arn
        self._bucket = config.aws.bucket
        # A session of its own: a default session that a caller has set up is neither used nor changed.
        boto_session = boto3.Session(region_name=config.aws.region)
        super().__init__(boto_session=boto_session, default_bucket=self._bucket, sagemaker_config=SDK_CONFIG)

    def default_bucket(self) -> str:
        return self._bucket

    def account_id(self) -> str:
        return self._role_arn.split(":")[4]

    def get_caller_identity_arn(self) -> str:
        return self._role_arn

    def expand_role(self, role: str) -> str:
        return role

    def upload_data(self, *arguments: Any, **named: Any) -> NoReturn:
        raise AssertionError("a definition is compiled without uploads")

    def upload_string_as_file_body(self, *arguments: Any, **named: Any) -> NoReturn:
        raise AssertionError("a definition is compiled without uploads")
