"""The environment image in the account's registry: built when its inputs have changed, and named by its digest.

A custom resource of the stack. CloudFormation's request starts a build, which takes longer than a function may run, and
CodeBuild's event of its end is what answers the request: this handler gets both. An image is known by a tag that its
inputs give, so that the same inputs are built once.

Properties of the request: Tag.  Attributes of the resource: Digest, ImageUri (by digest).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from infra.handlers.resource_answers import Answers, HttpsAnswers, Request, answer

RESOURCE_ID = "environment-image"
# Variables of a build: what it builds, and whom to answer when it has ended.
TAG, ANSWER_URL, STACK_ID, REQUEST_ID, LOGICAL_RESOURCE_ID = (
    "TAG", "ANSWER_URL", "ANSWER_STACK_ID", "ANSWER_REQUEST_ID", "ANSWER_LOGICAL_RESOURCE_ID",
)  # fmt: skip


class Images(Protocol):
    def digest(self, tag: str) -> str | None:
        """sha256:... of the image with a tag, None where there is none."""


class Builds(Protocol):
    def start(self, variables: Mapping[str, str]) -> None:
        """Starts a build with variables."""

    def variables(self, build: str) -> Mapping[str, str]:
        """Variables of a build, by name."""


@dataclass(frozen=True)
class Registry:
    """uri: of the repository, without tag."""

    uri: str
    images: Images

    def attributes(self, tag: str) -> dict[str, str] | None:
        """Attributes of the image with a tag, None where there is none."""
        digest = self.images.digest(tag)
        return None if digest is None else {"Digest": digest, "ImageUri": f"{self.uri}@{digest}"}


def handle_request(event: Mapping[str, Any], registry: Registry, builds: Builds, answers: Answers) -> None:
    """CloudFormation's request. Where an image is needed and not there a build is started, and nothing answered yet."""
    request = Request.of(event)
    if event["RequestType"] == "Delete":
        # The repository goes with the stack, and its images with it.
        answer(answers, request, resource_id=RESOURCE_ID)
        return
    begun = False
    try:
        tag = event["ResourceProperties"]["Tag"]
        attributes = registry.attributes(tag)
        if attributes is None:
            builds.start(
                {
                    TAG: tag,
                    ANSWER_URL: request.url,
                    STACK_ID: request.stack_id,
                    REQUEST_ID: request.request_id,
                    LOGICAL_RESOURCE_ID: request.logical_resource_id,
                }
            )
        else:
            answer(answers, request, resource_id=RESOURCE_ID, data=attributes)
        begun = True
    finally:
        # What is raised reaches the log; without an answer the stack would wait for an hour.
        if not begun:
            answer(answers, request, resource_id=RESOURCE_ID, fault="The build did not start: see the function's log.")


def handle_end(event: Mapping[str, Any], registry: Registry, builds: Builds, answers: Answers) -> None:
    """CodeBuild's event of a build's end. A build that somebody started by hand has nobody to answer."""
    detail = event["detail"]
    variables = builds.variables(detail["build-id"])
    if not variables.get(ANSWER_URL):
        return
    request = Request(variables[ANSWER_URL], variables[STACK_ID], variables[REQUEST_ID], variables[LOGICAL_RESOURCE_ID])
    # Not the status alone: of two builds of the same tag the later one fails, and the image is there.
    attributes = registry.attributes(variables[TAG])
    if attributes is not None:
        answer(answers, request, resource_id=RESOURCE_ID, data=attributes)
        return
    status, log = detail["build-status"], detail.get("additional-information", {}).get("logs", {}).get("deep-link", "")
    fault = f"image build {detail['build-id'].rpartition('/')[2]}: {status}. Its log: {log or 'none'}"
    answer(answers, request, resource_id=RESOURCE_ID, fault=fault)


# --- on AWS -----------------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda. Variables: PROJECT_NAME, REPOSITORY_NAME, REPOSITORY_URI."""
    import boto3

    images = EcrImages(boto3.client("ecr"), os.environ["REPOSITORY_NAME"])
    builds = CodeBuilds(boto3.client("codebuild"), os.environ["PROJECT_NAME"])
    handle = handle_request if "RequestType" in event else handle_end
    handle(event, Registry(os.environ["REPOSITORY_URI"], images), builds, HttpsAnswers())


@dataclass(frozen=True)
class EcrImages:
    """A repository of ECR; client: boto3's for ECR."""

    client: Any
    repository: str

    def digest(self, tag: str) -> str | None:
        try:
            found = self.client.describe_images(repositoryName=self.repository, imageIds=[{"imageTag": tag}])
        except self.client.exceptions.ImageNotFoundException:
            return None
        return found["imageDetails"][0]["imageDigest"]


@dataclass(frozen=True)
class CodeBuilds:
    """A project of CodeBuild; client: boto3's for CodeBuild."""

    client: Any
    project: str

    def start(self, variables: Mapping[str, str]) -> None:
        override = [{"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items()]
        # A request that CloudFormation repeats starts no second build.
        self.client.start_build(
            projectName=self.project, environmentVariablesOverride=override, idempotencyToken=variables[REQUEST_ID]
        )

    def variables(self, build: str) -> dict[str, str]:
        [found] = self.client.batch_get_builds(ids=[build])["builds"]
        return {entry["name"]: entry["value"] for entry in found["environment"]["environmentVariables"]}
