"""The AWS account: requests through the user's ordinary AWS configuration, and what goes wrong as one line.

Credentials come from where every AWS tool takes them (environment, profile, single sign-on, instance role); the region
is the configuration's. AWS_ENDPOINT_URL, AWS_MAX_ATTEMPTS and the like mean what they always do.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.remote.aws_errors import AwsError, aws_error

# Of each request, the first one included: with the waits between them some twenty seconds.
MAX_ATTEMPTS = 5
CONNECT_SECONDS, READ_SECONDS = 10, 60


class Account:
    """An account in one region. Making one sends nothing."""

    def __init__(self, region: str) -> None:
        self.region = region
        self._clients: dict[str, Any] = {}
        self._session: Any = None

    def client(self, service: str) -> Any:
        """The boto3 client of a service, such as `sagemaker`. Raises AwsError for a configuration that is unusable."""
        if service not in self._clients:
            with self.told(service, "Configure"):
                try:
                    self._clients[service] = self._new_client(service)
                except ValueError as error:
                    # botocore's own for an address that is none, such as one of AWS_ENDPOINT_URL.
                    remedy = "Correct AWS_ENDPOINT_URL, or what else names it."
                    raise AwsError("AWS configuration", str(error), remedy=remedy, kind="refused",
                                   code="ValueError") from error  # fmt: skip
        return self._clients[service]

    def call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        """The answer to one request, such as `call("sagemaker", "DescribePipeline", PipelineName=name)`.

        Throttling and the service's own faults are tried again MAX_ATTEMPTS times. Raises AwsError.
        """
        client = self.client(service)
        with self.told(service, operation):
            return getattr(client, _method_name(operation))(**request)

    def pages(self, service: str, operation: str, entries: str, **request: Any) -> Iterator[dict[str, Any]]:
        """Every entry of a list that comes in pages, such as `pages("s3", "ListObjectsV2", "Contents", Bucket=name)`.

        Raises AwsError.
        """
        client = self.client(service)
        with self.told(service, operation):
            for page in client.get_paginator(_method_name(operation)).paginate(**request):
                yield from page.get(entries, [])

    @contextmanager
    def told(self, service: str, operation: str) -> Iterator[None]:
        """Within it every error of botocore becomes an AwsError that names the service and the operation."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            told = aws_error(error, service, operation, self.region)
            if told.kind == "permission" and not told.caller:
                told = aws_error(error, service, operation, self.region, caller=self._caller())
            raise told from error

    def caller_arn(self) -> str:
        """ARN of the user or role that the requests are made by. Raises AwsError."""
        return self.call("sts", "GetCallerIdentity")["Arn"]

    def account_id(self) -> str:
        """The account's twelve digits. Raises AwsError."""
        return self.call("sts", "GetCallerIdentity")["Account"]

    def _caller(self) -> str:
        """The caller's ARN for an error that does not name it; empty where that cannot be told either."""
        try:
            return self.caller_arn()
        except AwsError:
            return ""

    def _new_client(self, service: str) -> Any:
        from botocore.config import Config

        if self._session is None:
            import boto3
            import botocore.session

            # What the SageMaker SDK, where it was imported, lets the libraries below it narrate.
            logging.getLogger("botocore").setLevel(logging.WARNING)
            core = botocore.session.get_session()
            core.register_component("data_loader", _service_models(core.get_config_variable("data_path")))
            self._session = boto3.Session(botocore_session=core)
        session = self._session
        # Given here they would hide what the user has set in the ordinary way.
        retries: dict[str, Any] = {"mode": session._session.get_config_variable("retry_mode") or "standard"}
        if not session._session.get_config_variable("max_attempts"):
            retries["total_max_attempts"] = MAX_ATTEMPTS
        config = Config(
            retries=retries, connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS, user_agent_extra="langadapt"
        )
        return session.client(service, region_name=self.region, config=config)


@functools.cache
def _service_models(data_path: str | None) -> Any:
    """What reads botocore's models, megabytes of JSON: once a process, however many accounts it speaks to."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _method_name(operation: str) -> str:
    from botocore import xform_name

    return xform_name(operation)
