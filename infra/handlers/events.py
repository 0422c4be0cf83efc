"""What the handlers share: events as they arrive, their settings, one line to people.

A handler raises for an event that it cannot read, so that the event ends in a queue for such and an alarm tells.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

# Of SNS: a mail's subject.
MAX_SUBJECT_CHARACTERS = 100


class EventError(ValueError):
    """An event that is not what the rule should have sent, told in one line."""

    def __init__(self, subject: str, value: str, *, limit: str | None = None) -> None:
        self.subject, self.value, self.limit = subject, value, limit
        super().__init__(f"{subject}: {value}{'' if limit is None else f'; limit {limit}'}")


class Topic(Protocol):
    def tell(self, subject: str, text: str) -> None:
        """Sends a message to people."""


@dataclass(frozen=True)
class SnsTopic:
    """A topic of SNS; client: boto3's for SNS."""

    client: Any
    arn: str

    def tell(self, subject: str, text: str) -> None:
        line = " ".join(subject.split()).encode("ascii", "replace").decode()
        self.client.publish(TopicArn=self.arn, Subject=line[:MAX_SUBJECT_CHARACTERS], Message=text)


@functools.cache
def client(service: str) -> Any:
    """boto3's client of a service, kept as long as the function stays warm."""
    import boto3

    return boto3.client(service)


def settings_from_environment() -> dict[str, Any]:
    """The settings of a function, JSON in the variable SETTINGS."""
    return json.loads(os.environ["SETTINGS"])


def text_at(event: Mapping[str, Any], path: str) -> str:
    """The text at a path of members, such as `detail.ModelPackageArn`. Raises EventError where there is none."""
    value: Any = event
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(value, str) or not value:
        raise EventError(f"event {path}", "missing" if value is None else repr(value), limit="a text")
    return value


def required(event: Mapping[str, Any], path: str, *allowed: str) -> str:
    """The text at a path, one of those allowed. Raises EventError."""
    value = text_at(event, path)
    if value not in allowed:
        raise EventError(f"event {path}", value, limit=" or ".join(allowed))
    return value


def queued_events(batch: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages of a batch from SQS: id and the event inside. Raises EventError for what is no such batch."""
    records = batch.get("Records")
    if not isinstance(records, list) or not records:
        raise EventError("event Records", repr(records), limit="messages of a queue")
    for record in records:
        body = text_at(record, "body")
        try:
            event = json.loads(body)
        except json.JSONDecodeError as error:
            raise EventError("message", f"no JSON: {error}") from error
        if not isinstance(event, dict):
            raise EventError("message", f"a {type(event).__name__}", limit="an event")
        yield text_at(record, "messageId"), event
