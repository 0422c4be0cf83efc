"""Code archives come into the bucket once, under their own sha256, and are never written over or deleted."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import boto3
import pytest
from account_stand_in import REGION
from answered_calls import AnsweredAccount, RefusedError, answered_calls
from cloudformation_requests import KeptAnswers, request

from infra.handlers.place_code import S3Bucket, place

KEY_ARN = f"arn:aws:kms:{REGION}:123456789012:key/one"
CONTENTS = (b"first", b"second")
ARCHIVES = {f"{hashlib.sha256(content).hexdigest()}.zip": content for content in CONTENTS}


class StoringAccount(AnsweredAccount):
    """S3 with conditional writes: objects by key."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}

    def _s3_PutObject(self, parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        if parameters["Key"] in self.objects:
            raise RefusedError("PreconditionFailed", "there", 412)
        self.objects[parameters["Key"]] = parameters["Body"]
        return {}

    def _s3_HeadObject(self, parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        content = self.objects[parameters["Key"]]
        checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
        return {"ContentLength": len(content), "ChecksumSHA256": checksum}


@pytest.fixture
def account():
    account = StoringAccount()
    with answered_calls(account):
        yield account


@pytest.fixture
def bucket(account):
    return S3Bucket(boto3.client("s3", region_name=REGION), "data", KEY_ARN)


def test_archives_are_written_once_encrypted_and_checked(account, bucket):
    answers = KeptAnswers()
    for kind in ("Create", "Update", "Delete"):
        place(request(kind, Names=sorted(ARCHIVES)), ARCHIVES, bucket, "langadapt/code/", answers)
    assert account.objects == {f"langadapt/code/{name}": content for name, content in ARCHIVES.items()}
    assert [answer["Status"] for _, answer in answers.kept] == ["SUCCESS"] * 3
    assert len({answer["PhysicalResourceId"] for _, answer in answers.kept}) == 1
    for sent in account.sent("PutObject"):
        assert sent["IfNoneMatch"] == "*"
        assert sent["SSEKMSKeyId"] == KEY_ARN
        assert base64.b64decode(sent["ChecksumSHA256"]).hex() in sent["Key"]
    assert {call.operation for call in account.calls} == {"PutObject", "HeadObject"}


def test_another_content_under_an_archives_name_is_left_and_told(account, bucket):
    name = sorted(ARCHIVES)[0]
    account.objects[f"langadapt/code/{name}"] = b"other"
    answers = KeptAnswers()
    with pytest.raises(ValueError, match="another content than its name says"):
        place(request("Create", Names=[name]), ARCHIVES, bucket, "langadapt/code/", answers)
    assert account.objects[f"langadapt/code/{name}"] == b"other"
    assert [answer["Status"] for _, answer in answers.kept] == ["FAILED"]


def test_an_archive_with_a_name_that_is_not_its_digest_is_not_written(account, bucket):
    answers = KeptAnswers()
    with pytest.raises(ValueError, match="is not the sha256 of its content"):
        place(request("Create", Names=["a.zip"]), {"a.zip": b"first"}, bucket, "langadapt/code/", answers)
    assert account.calls == []
    assert [answer["Status"] for _, answer in answers.kept] == ["FAILED"]
