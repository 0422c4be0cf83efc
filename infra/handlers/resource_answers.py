"""Answers to CloudFormation, which waits for one after each request of a custom resource."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# Of the service: more of a reason is cut off, and a larger answer is not read.
MAX_REASON_CHARACTERS = 1_000
ANSWER_SECONDS = 30


class Answers(Protocol):
    def send(self, url: str, body: bytes) -> None:
        """Puts an answer where CloudFormation looks for it."""


@dataclass(frozen=True)
class Request:
    """What an answer has to repeat of its request."""

    url: str
    stack_id: str
    request_id: str
    logical_resource_id: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Request:
        return cls(event["ResponseURL"], event["StackId"], event["RequestId"], event["LogicalResourceId"])


def answer(
    answers: Answers,
    request: Request,
    *,
    resource_id: str,
    data: Mapping[str, str] | None = None,
    fault: str | None = None,
) -> None:
    """Tells CloudFormation that a request is done, with the resource's attributes, or what its fault was.

    resource_id: the resource's own, the same for all requests of a resource that is never replaced.
    """
    body = {
        "Status": "SUCCESS" if fault is None else "FAILED",
        "Reason": (fault or "done")[:MAX_REASON_CHARACTERS],
        "PhysicalResourceId": resource_id,
        "StackId": request.stack_id,
        "RequestId": request.request_id,
        "LogicalResourceId": request.logical_resource_id,
        "Data": dict(data or {}),
    }
    answers.send(request.url, json.dumps(body).encode())


class HttpsAnswers:
    """The presigned address that a request brings with it."""

    def send(self, url: str, body: bytes) -> None:
        import urllib.request

        if not url.startswith("https://"):
            raise ValueError("the address for an answer is not https")
        # S3 signed the address for a request without a content type.
        request = urllib.request.Request(url, data=body, method="PUT", headers={"Content-Type": ""})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
            pass
