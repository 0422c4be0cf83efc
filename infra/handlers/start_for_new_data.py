"""Starts the pipeline once after new objects have come into the corpus folder.

Each object's event waits in a queue for as long as the folder must be quiet, then asks one question: is there something
to start now? So does each end of an execution. What is found decides, not how many events came:

    what is found                                       then
    an object younger than the quiet time               nothing: that object's own event comes later
    an execution is running or stopping                 nothing: its end asks again
    an execution has read this very content             nothing
    an execution of this content was started before     nothing, however it ended: a person retries it
    none of these                                       started, named by the digest of the content

Nothing is kept besides the executions themselves, nothing polls, and a lost or doubled event changes nothing as long as
a later one comes. The end of an execution that was stopped does not ask: who stops it wants it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from infra.handlers.events import EventError, client, queued_events, required, settings_from_environment, text_at
from pipeline.resolve_inputs import RUNNING_STATES, S3Store, Store, input_digest

OBJECT_CREATED = "Object Created"
EXECUTION_ENDED = "SageMaker Model Building Pipeline Execution Status Change"
CORPUS_PARAMETER, CORPUS_DIGEST = "CorpusUri", "corpus_digest"
# Executions whose inputs are compared, the newest ones.
COMPARED_EXECUTIONS = 5
# The queue's clock and that of the objects may differ.
CLOCK_SECONDS = 30
DIGEST_CHARACTERS = 32


@dataclass(frozen=True)
class Settings:
    """prefix: of the folder's keys, with its final slash. parameters: of each execution, besides CorpusUri."""

    pipeline: str
    bucket: str
    prefix: str
    quiet_seconds: int
    parameters: Mapping[str, str]

    @property
    def corpus_uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class Execution:
    arn: str
    name: str
    status: str


class Executions(Protocol):
    def newest_first(self, pipeline: str) -> Sequence[Execution]: ...

    def resolved(self, arn: str, output: str) -> str | None:
        """An output of the execution's ResolveInputs; None where it has none."""

    def start(self, pipeline: str, name: str, parameters: Mapping[str, str], token: str) -> str:
        """ARN of the execution; the same for the same token."""


class Times(Protocol):
    def newest(self, uri: str) -> datetime | None:
        """When the newest object below a URI was made."""


def start_for_new_data(
    events: Iterable[Mapping[str, Any]],
    store: Store,
    times: Times,
    executions: Executions,
    settings: Settings,
    now: datetime,
) -> str:
    """What was done, in one line. Raises EventError for an event of another bucket, prefix or pipeline."""
    for event in events:
        check_event(event, settings)
    newest = times.newest(settings.corpus_uri)
    if newest is None:
        return f"nothing lies at {settings.corpus_uri}"
    if (now - newest).total_seconds() < settings.quiet_seconds - CLOCK_SECONDS:
        return f"an object came at {newest:%H:%M:%S}: its own event follows"
    listed = executions.newest_first(settings.pipeline)
    for execution in listed:
        if execution.status in RUNNING_STATES:
            return f"{execution.arn} is {execution.status}: its end asks again"
    digest = input_digest("corpus", settings.corpus_uri, store.files(settings.corpus_uri))
    name = f"new-data-{digest[:DIGEST_CHARACTERS]}"
    for number, execution in enumerate(listed):
        if execution.name == name:
            return f"{execution.arn} was started for this content"
        if number < COMPARED_EXECUTIONS and executions.resolved(execution.arn, CORPUS_DIGEST) == digest:
            return f"{execution.arn} has read this content"
    parameters = {**settings.parameters, CORPUS_PARAMETER: settings.corpus_uri}
    token = hashlib.sha256(json.dumps([settings.pipeline, name, parameters], sort_keys=True).encode()).hexdigest()
    return f"started {executions.start(settings.pipeline, name, parameters, token)}"


def check_event(event: Mapping[str, Any], settings: Settings) -> None:
    """Raises EventError for an event that the rules should not have sent."""
    if required(event, "detail-type", OBJECT_CREATED, EXECUTION_ENDED) == OBJECT_CREATED:
        required(event, "detail.bucket.name", settings.bucket)
        key = text_at(event, "detail.object.key")
        if not key.startswith(settings.prefix):
            raise EventError("event detail.object.key", key, limit=f"below {settings.prefix}")
    else:
        pipeline = text_at(event, "detail.pipelineArn").rpartition("/")[2]
        # The service writes names in ARNs in small letters, or as they are.
        if pipeline.lower() != settings.pipeline.lower():
            raise EventError("event detail.pipelineArn", pipeline, limit=settings.pipeline)
        required(event, "detail.currentPipelineExecutionStatus", "Succeeded", "Failed")


# --- on SageMaker -----------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda: up to ten messages of a queue, one batch at a time."""
    settings = Settings(**settings_from_environment())
    s3, executions = client("s3"), SageMakerExecutions(client("sagemaker"))
    events = [body for _, body in queued_events(event)]
    line = start_for_new_data(events, S3Store(s3), S3Times(s3), executions, settings, datetime.now(UTC))
    print(json.dumps({"events": len(events), "line": line}))


@dataclass(frozen=True)
class S3Times:
    """Objects in S3; client: boto3's for S3."""

    client: Any

    def newest(self, uri: str) -> datetime | None:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        # A key that ends in a slash is how the console shows an empty folder.
        items = (item for page in pages for item in page.get("Contents", []) if not item["Key"].endswith("/"))
        return max((item["LastModified"] for item in items), default=None)


@dataclass(frozen=True)
class SageMakerExecutions:
    """Executions of a pipeline; client: boto3's for SageMaker."""

    client: Any

    def newest_first(self, pipeline: str) -> list[Execution]:
        pages = self.client.get_paginator("list_pipeline_executions").paginate(
            PipelineName=pipeline, SortBy="CreationTime", SortOrder="Descending"
        )
        return [
            Execution(
                summary["PipelineExecutionArn"],
                summary.get("PipelineExecutionDisplayName", ""),
                summary["PipelineExecutionStatus"],
            )
            for page in pages
            for summary in page["PipelineExecutionSummaries"]
        ]

    def resolved(self, arn: str, output: str) -> str | None:
        pages = self.client.get_paginator("list_pipeline_execution_steps").paginate(PipelineExecutionArn=arn)
        for page in pages:
            for step in page["PipelineExecutionSteps"]:
                for told in step.get("Metadata", {}).get("Lambda", {}).get("OutputParameters", []):
                    if told["Name"] == output:
                        return told["Value"]
        return None

    def start(self, pipeline: str, name: str, parameters: Mapping[str, str], token: str) -> str:
        return self.client.start_pipeline_execution(
            PipelineName=pipeline,
            PipelineExecutionDisplayName=name,
            PipelineParameters=[{"Name": key, "Value": value} for key, value in sorted(parameters.items())],
            ClientRequestToken=token,
        )["PipelineExecutionArn"]
