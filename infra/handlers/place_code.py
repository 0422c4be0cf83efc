"""The steps' code archives in the bucket, each under its own sha256: where the deployed definition looks for them.

A custom resource of the stack. The archives lie beside this module, in `archives/`; one that is there is not written
again, and none is ever deleted: an execution that is retried later reads the code that it was started with.

Properties of the request: Names, the archives' file names; they make CloudFormation ask again when one has changed.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from infra.handlers.resource_answers import Answers, HttpsAnswers, Request, answer

RESOURCE_ID = "code-archives"


class Bucket(Protocol):
    def put_new(self, key: str, content: bytes, sha256: bytes) -> bool:
        """Writes an object that is not there. False where it is there with this content.

        Raises ValueError for another content under this key.
        """


def place(
    event: Mapping[str, Any], archives: Mapping[str, bytes], bucket: Bucket, prefix: str, answers: Answers
) -> None:
    """Writes the archives that the request names and the bucket lacks. archives: content by file name.

    prefix: of the keys, with its final slash.
    """
    request = Request.of(event)
    placed = False
    try:
        for name in event["ResourceProperties"]["Names"] if event["RequestType"] != "Delete" else ():
            content = archives[name]
            digest = hashlib.sha256(content).digest()
            if name != f"{digest.hex()}.zip":
                raise ValueError(f"{name} is not the sha256 of its content")
            bucket.put_new(prefix + name, content, digest)
        placed = True
    finally:
        # What is raised reaches the log; without an answer the stack would wait for an hour.
        fault = None if placed else "The code was not written: see the function's log."
        answer(answers, request, resource_id=RESOURCE_ID, fault=fault)


# --- on AWS -----------------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda. Variables: BUCKET, PREFIX, KEY_ARN."""
    import boto3

    # Lambda unpacks the code as it was packed: the archives lie at its root.
    folder = Path(os.environ["LAMBDA_TASK_ROOT"], "archives")
    archives = {path.name: path.read_bytes() for path in folder.iterdir()}
    bucket = S3Bucket(boto3.client("s3"), os.environ["BUCKET"], os.environ["KEY_ARN"])
    place(event, archives, bucket, os.environ["PREFIX"], HttpsAnswers())


class S3Bucket:
    """A bucket; client: boto3's for S3."""

    def __init__(self, client: Any, name: str, key_arn: str) -> None:
        self.client, self.name, self.key_arn = client, name, key_arn

    def put_new(self, key: str, content: bytes, sha256: bytes) -> bool:
        from botocore.exceptions import ClientError

        checksum = base64.b64encode(sha256).decode()
        try:
            self.client.put_object(
                Bucket=self.name, Key=key, Body=content, ContentType="application/zip", ChecksumSHA256=checksum,
                IfNoneMatch="*", ServerSideEncryption="aws:kms", SSEKMSKeyId=self.key_arn,
            )  # fmt: skip
        except ClientError as error:
            if error.response["Error"]["Code"] != "PreconditionFailed":
                raise
            head = self.client.head_object(Bucket=self.name, Key=key, ChecksumMode="ENABLED")
            if head.get("ChecksumSHA256", checksum) != checksum or head["ContentLength"] != len(content):
                raise ValueError(f"s3://{self.name}/{key} has another content than its name says") from error
            return False
        return True
