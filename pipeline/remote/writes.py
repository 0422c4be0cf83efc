"""Requests that change something in an account: sent, or with --dry-run kept and shown."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pipeline.remote.account import Account
from pipeline.service_shapes import request_problems
from steps.contract import ConfigError

# Not S3: its requests carry content, and what of them could be wrong is checked with the configuration.
CHECKED_SERVICES = ("sagemaker", "scheduler")


class Writes:
    """dry_run: nothing is sent. requests: all of them, as they are shown; bytes by their number and sha256."""

    def __init__(self, account: Account, *, dry_run: bool = False) -> None:
        self.account, self.dry_run = account, dry_run
        self.requests: list[dict[str, Any]] = []

    def send(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        """The answer, empty for a dry run. Raises ConfigError for what the service does not take, AwsError."""
        if service in CHECKED_SERVICES:
            check_request(service, operation, request)
        self.requests.append({"service": service, "operation": operation, "request": _shown(request)})
        return {} if self.dry_run else self.account.call(service, operation, **request)


def check_request(service: str, operation: str, request: dict[str, Any]) -> None:
    """Raises ConfigError for the first member that the service's own shapes do not take: a dry run tells of it, too."""
    for path, value, limit in request_problems(service, operation, request):
        raise ConfigError(f"{operation} {path}", value, limit=limit, remedy="Correct the setting that it comes from.")


def request_token(*parts: Any) -> str:
    """A ClientRequestToken that is the same for the same request: sent again, it does its work once."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def encryption(kms_key_id: str | None) -> dict[str, str]:
    """Members of an upload's request that encrypt with the configured key; none without one: the bucket's default."""
    return {} if kms_key_id is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    return {name: _shown(item) for name, item in value.items()} if isinstance(value, dict) else value
