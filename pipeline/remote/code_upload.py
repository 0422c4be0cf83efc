"""The steps' code archives in the bucket: where a definition's jobs look for them, under the name that is their sha256.

An archive that is there is never sent again: S3 has checked its content against its name when it came.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.code_archive import CodeArchive, code_archive
from pipeline.config import PipelineConfig
from pipeline.local.run import STEP_MODULES
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.placeholders import own_bucket


@dataclass(frozen=True)
class StepCode:
    """One step's archive and its place. is_there: nothing has to be sent."""

    step: str
    archive: CodeArchive
    bucket: str
    key: str
    is_there: bool

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def as_json(self, *, sent: bool) -> dict[str, Any]:
        return {"step": self.step, "uri": self.uri, "bytes": len(self.archive.content), "sent": sent}


def step_codes(settings: PipelineConfig, account: Account | None) -> list[StepCode]:
    """The archive of every step, and which of them the bucket has; without an account none is looked for.

    Raises ConfigError for a placeholder's bucket, AwsError.
    """
    bucket, prefix = own_bucket(settings), settings.aws.prefix
    found = []
    for step in STEP_MODULES:
        archive = code_archive(step)
        key = f"{prefix}/code/{archive.name}"
        is_there = account is not None and _is_there(account, bucket, key, len(archive.content))
        found.append(StepCode(step, archive, bucket, key, is_there))
    return found


def upload_code(settings: PipelineConfig, account: Account) -> list[StepCode]:
    """Sends the archives that the bucket lacks; returns all as they were before.

    Raises ConfigError for a placeholder's bucket, AwsError.
    """
    codes = step_codes(settings, account)
    send_code([code for code in codes if not code.is_there], account, settings.aws.kms_key_id)
    return codes


def send_code(codes: Sequence[StepCode], account: Account, kms_key_id: str | None) -> None:
    """Sends these archives, each checked by S3 against its name. Raises AwsError."""
    for code in codes:
        # The name is the checksum: S3 refuses content that does not have it.
        checksum = base64.b64encode(bytes.fromhex(code.archive.digest)).decode()
        account.call("s3", "PutObject", Bucket=code.bucket, Key=code.key, Body=code.archive.content,
                     ChecksumSHA256=checksum, **encryption(kms_key_id))  # fmt: skip


def encryption(kms_key_id: str | None) -> dict[str, str]:
    """Members of an upload's request that encrypt with the configured key; none without one: the bucket's default."""
    return {} if kms_key_id is None else {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id}


def _is_there(account: Account, bucket: str, key: str, size_bytes: int) -> bool:
    try:
        return account.call("s3", "HeadObject", Bucket=bucket, Key=key)["ContentLength"] == size_bytes
    except AwsError as error:
        if error.kind == "not_found":
            return False
        raise
