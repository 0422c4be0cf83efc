"""The steps' code archives in the bucket: each under its own sha256, sent where it is missing, never overwritten."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from pipeline.code_archive import CodeArchive, code_archive
from pipeline.config import PipelineConfig
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.writes import Writes, encryption
from steps.contract import StepError


def upload_code(config: PipelineConfig, steps: Sequence[str], account: Account, writes: Writes) -> list[str]:
    """Sends the archives of these steps that the bucket lacks. Returns the URIs of those that were sent.

    Raises AwsError, and StepError for an object of an archive's name with another content.
    """
    sent = []
    for archive in {code_archive(step).digest: code_archive(step) for step in steps}.values():
        bucket, key = config.aws.bucket, f"{config.aws.prefix}/code/{archive.name}"
        if not is_there(account, archive, bucket, key) and send_archive(
            writes, archive, bucket, key, config.aws.kms_key_id
        ):
            sent.append(f"s3://{bucket}/{key}")
    return sent


def is_there(account: Account, archive: CodeArchive, bucket: str, key: str) -> bool:
    """Whether the bucket has this archive. Raises StepError where another content has its name."""
    try:
        head = account.call("s3", "HeadObject", Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    except AwsError as error:
        if error.kind == "not_found":
            return False
        raise
    # An object that came another way may carry no such checksum; its name and size have to do then.
    checksum = head.get("ChecksumSHA256", _checksum(archive))
    if head["ContentLength"] != len(archive.content) or checksum != _checksum(archive):
        raise StepError(f"s3://{bucket}/{key}", "another content than its name says",
                        remedy="Find out who wrote it, delete it and give the command again.")  # fmt: skip
    return True


def send_archive(writes: Writes, archive: CodeArchive, bucket: str, key: str, kms_key_id: str | None) -> bool:
    """True where it was sent; False where somebody else has sent it meanwhile. The service compares the checksum."""
    try:
        writes.send(
            "s3", "PutObject", Bucket=bucket, Key=key, Body=archive.content, ContentType="application/zip",
            ChecksumSHA256=_checksum(archive), IfNoneMatch="*", **encryption(kms_key_id),
        )  # fmt: skip
    except AwsError as error:
        if error.code in ("PreconditionFailed", "ConditionalRequestConflict"):
            return False
        raise
    return True


def _checksum(archive: CodeArchive) -> str:
    return base64.b64encode(bytes.fromhex(archive.digest)).decode()
