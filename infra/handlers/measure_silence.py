"""Some times a day: for how many days no execution of the pipeline has succeeded, as a line of the log.

A metric filter of the log group makes a metric of the line, which an alarm watches: an alarm of CloudWatch looks back
seven days at most, and retraining is rarer. Where this function itself is silent the metric is missing, and the alarm
counts that as a breach.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from infra.handlers.events import client, settings_from_environment

# What the metric filter looks for.
DAYS_MEMBER = "days_without_success"


class Executions(Protocol):
    def last_success(self, pipeline: str) -> datetime:
        """When the newest execution that succeeded was started; the pipeline's creation where none has."""


def days_without_success(pipeline: str, executions: Executions, now: datetime) -> float:
    """Days since the last success."""
    return round((now - executions.last_success(pipeline)).total_seconds() / 86_400, 3)


# --- on AWS -----------------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda; what the event says does not matter."""
    pipeline = settings_from_environment()["pipeline"]
    days = days_without_success(pipeline, SageMakerExecutions(client("sagemaker")), datetime.now(UTC))
    print(json.dumps({"pipeline": pipeline, DAYS_MEMBER: days}))


@dataclass(frozen=True)
class SageMakerExecutions:
    """Executions of a pipeline; client: boto3's for SageMaker."""

    client: Any

    def last_success(self, pipeline: str) -> datetime:
        pages = self.client.get_paginator("list_pipeline_executions").paginate(
            PipelineName=pipeline, SortBy="CreationTime", SortOrder="Descending"
        )
        for page in pages:
            for summary in page["PipelineExecutionSummaries"]:
                if summary["PipelineExecutionStatus"] == "Succeeded":
                    return summary["StartTime"]
        return self.client.describe_pipeline(PipelineName=pipeline)["CreationTime"]
