"""Stops the running executions of the pipeline when AWS Budgets says that the budget is spent.

AWS computes costs a few times a day, so the message comes 8 to 12 hours late, at times more. What bounds an execution's
cost in time is each job's max_runtime_seconds. Later executions are not held back: Budgets writes once a month for each
limit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from infra.handlers.events import EventError, SnsTopic, Topic, client, required, settings_from_environment, text_at

RUNNING = "Executing"


@dataclass(frozen=True)
class Settings:
    """budget_topic_arn: that AWS Budgets writes to."""

    pipeline: str
    budget: str
    budget_topic_arn: str


class Executions(Protocol):
    def running(self, pipeline: str) -> Sequence[str]:
        """ARNs of the executions that run and are not being stopped yet."""

    def stop(self, arn: str, token: str) -> None: ...


def stop_over_budget(event: Mapping[str, Any], executions: Executions, topic: Topic, settings: Settings) -> list[str]:
    """ARNs of the executions that were stopped; a second message about the same budget finds none.

    Raises EventError for a message of another topic or budget.
    """
    records = event.get("Records")
    if not isinstance(records, list) or not records:
        raise EventError("event Records", repr(records), limit="messages of a topic")
    for record in records:
        required(record, "Sns.TopicArn", settings.budget_topic_arn)
        if settings.budget not in text_at(record, "Sns.Message"):
            raise EventError("event Sns.Message", "another budget", limit=settings.budget)
    stopped = list(executions.running(settings.pipeline))
    for arn in stopped:
        # The same execution is stopped once, however often this is asked.
        executions.stop(arn, hashlib.sha256(f"over budget\0{arn}".encode()).hexdigest())
    if stopped:
        line = f"Budget {settings.budget} is spent: {len(stopped)} execution(s) of {settings.pipeline} stopped"
        names = ", ".join(arn.rpartition("/")[2] for arn in stopped)
        topic.tell(line, f"{line}: {names}.\nTraining jobs write a checkpoint; langadapt retry goes on from it.")
    return stopped


# --- on SageMaker -----------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda."""
    given = settings_from_environment()
    topic = SnsTopic(client("sns"), given.pop("topic_arn"))
    stopped = stop_over_budget(event, SageMakerExecutions(client("sagemaker")), topic, Settings(**given))
    print(json.dumps({"stopped": stopped}))


@dataclass(frozen=True)
class SageMakerExecutions:
    """Executions of a pipeline; client: boto3's for SageMaker."""

    client: Any

    def running(self, pipeline: str) -> list[str]:
        pages = self.client.get_paginator("list_pipeline_executions").paginate(PipelineName=pipeline)
        summaries = [summary for page in pages for summary in page["PipelineExecutionSummaries"]]
        return [item["PipelineExecutionArn"] for item in summaries if item["PipelineExecutionStatus"] == RUNNING]

    def stop(self, arn: str, token: str) -> None:
        self.client.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken=token)
