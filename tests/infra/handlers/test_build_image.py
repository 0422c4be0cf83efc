"""The image is built once for its inputs; CloudFormation hears of its digest, or why there is none."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from account_stand_in import REGION
from answered_calls import AnsweredAccount, RefusedError, answered_calls
from cloudformation_requests import KeptAnswers, request

from infra.handlers.build_image import CodeBuilds, EcrImages, Registry, handle_end, handle_request

URI = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/langadapt"
TAG, DIGEST = "gpu-1234", f"sha256:{'d' * 64}"


class BuildingAccount(AnsweredAccount):
    """ECR and CodeBuild: images by tag, variables by build."""

    def __init__(self) -> None:
        super().__init__()
        self.images: dict[str, str] = {}
        self.builds: dict[str, list[dict[str, str]]] = {}

    def _ecr_DescribeImages(self, parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        tag = parameters["imageIds"][0]["imageTag"]
        if tag not in self.images:
            raise RefusedError("ImageNotFoundException", f"no image {tag}")
        return {"imageDetails": [{"imageDigest": self.images[tag]}]}

    def _codebuild_StartBuild(self, parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        name = f"arn:aws:codebuild:{REGION}:123456789012:build/{parameters['projectName']}:{len(self.builds)}"
        self.builds[name] = parameters["environmentVariablesOverride"]
        return {"build": {"arn": name}}

    def _codebuild_BatchGetBuilds(self, parameters: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        return {
            "builds": [{"environment": {"type": "LINUX_CONTAINER", "image": "i", "computeType": "BUILD_GENERAL1_LARGE",
                                        "environmentVariables": self.builds[build]}} for build in parameters["ids"]]
        }  # fmt: skip

    def end(self, status: str) -> dict[str, Any]:
        """CodeBuild's event of the end of the build that started last."""
        logs = {"deep-link": "https://console.example/log"}
        detail = {"build-id": list(self.builds)[-1], "build-status": status, "additional-information": {"logs": logs}}
        return {"detail-type": "CodeBuild Build State Change", "detail": detail}


@pytest.fixture
def account():
    account = BuildingAccount()
    with answered_calls(account):
        yield account


@pytest.fixture
def parts(account):
    """What the handler gives to both functions, with answers that are kept."""
    registry = Registry(URI, EcrImages(boto3.client("ecr", region_name=REGION), "langadapt"))
    return registry, CodeBuilds(boto3.client("codebuild", region_name=REGION), "langadapt-image"), KeptAnswers()


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_a_build_is_started_and_answered_when_it_has_ended(account, parts, kind):
    answers = parts[-1]
    handle_request(request(kind, Tag=TAG), *parts)
    assert answers.kept == []
    [started] = account.sent("StartBuild")
    assert started["idempotencyToken"] == "request-1"
    account.images[TAG] = DIGEST
    handle_end(account.end("SUCCEEDED"), *parts)
    [(url, answer)] = answers.kept
    assert url == request(kind)["ResponseURL"]
    assert answer == {
        "Status": "SUCCESS", "Reason": "done", "PhysicalResourceId": "environment-image", "StackId": "stack",
        "RequestId": "request-1", "LogicalResourceId": "Image",
        "Data": {"Digest": DIGEST, "ImageUri": f"{URI}@{DIGEST}"},
    }  # fmt: skip


def test_an_image_that_is_there_is_not_built_again(account, parts):
    account.images[TAG] = DIGEST
    handle_request(request("Update", Tag=TAG), *parts)
    assert account.sent("StartBuild") == []
    [(_, answer)] = parts[-1].kept
    assert answer["Data"]["Digest"] == DIGEST


@pytest.mark.parametrize("status", ["FAILED", "FAULT", "STOPPED", "TIMED_OUT"])
def test_a_build_without_an_image_fails_with_its_log(account, parts, status):
    handle_request(request("Create", Tag=TAG), *parts)
    handle_end(account.end(status), *parts)
    [(_, answer)] = parts[-1].kept
    assert answer["Status"] == "FAILED"
    assert answer["Reason"] == f"image build langadapt-image:0: {status}. Its log: https://console.example/log"


def test_the_later_of_two_builds_of_one_tag_fails_and_the_image_is_told_all_the_same(account, parts):
    handle_request(request("Create", Tag=TAG), *parts)
    account.images[TAG] = DIGEST
    handle_end(account.end("FAILED"), *parts)
    [(_, answer)] = parts[-1].kept
    assert answer["Status"] == "SUCCESS"


def test_a_build_that_somebody_started_by_hand_has_nobody_to_answer(account, parts):
    account.builds["arn:aws:codebuild:us-west-2:123456789012:build/langadapt-image:0"] = [{"name": "TAG", "value": "x"}]
    handle_end(account.end("SUCCEEDED"), *parts)
    assert parts[-1].kept == []


def test_deleting_needs_nothing_but_an_answer(account, parts):
    handle_request(request("Delete", Tag=TAG), *parts)
    assert account.calls == []
    assert [answer["Status"] for _, answer in parts[-1].kept] == ["SUCCESS"]


def test_a_build_that_cannot_start_does_not_leave_the_stack_waiting(account, parts):
    account.faults["StartBuild"] = [RefusedError("AccountLimitExceededException", "no more builds")]
    with pytest.raises(Exception, match="no more builds"):
        handle_request(request("Create", Tag=TAG), *parts)
    [(_, answer)] = parts[-1].kept
    assert answer["Status"] == "FAILED"
