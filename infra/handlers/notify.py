"""Tells people what waits for them, one line each: a failed execution, a closed gate, a version to approve.

A closed gate is told with the conditions that failed: the message of its Fail step lists all, each with value and limit
(pipeline/quality_gate.py), and those that do not hold are picked out here.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from infra.handlers.events import EventError, SnsTopic, Topic, client, required, settings_from_environment, text_at

EXECUTION_CHANGED = "SageMaker Model Building Pipeline Execution Status Change"
PACKAGE_CHANGED = "SageMaker Model Package State Change"
PENDING, APPROVED = "PendingManualApproval", "Approved"
COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
# `bits_per_byte.candidate = 1.2, limit <= 1.0`
CONDITION = re.compile(
    r"(?P<name>[\w.\[\]]+) = (?P<value>[-+.\deE]+), limit (?P<comparison><=|>=|<|>) (?P<limit>[-+.\deE]+)"
)
# The champion's condition holds where there is none.
NO_CHAMPION = "champion_present = false (it is false)"
CHAMPION = "champion."


@dataclass(frozen=True)
class Settings:
    """tells_approved: whether an approval is told as well, as nothing deploys the version."""

    pipeline: str
    group: str
    tells_approved: bool


class Account(Protocol):
    def steps(self, execution_arn: str) -> list[dict[str, Any]]:
        """Steps of an execution, as ListPipelineExecutionSteps tells them."""

    def failure(self, execution_arn: str) -> str:
        """The reason that the service gives for the failure of an execution; may be empty."""

    def package(self, arn: str) -> dict[str, Any]:
        """A model version, as DescribeModelPackage tells it."""


def notify(event: Mapping[str, Any], account: Account, topic: Topic, settings: Settings) -> str:
    """The line that was told, empty where there is nothing to tell. Raises EventError for an event of others."""
    if required(event, "detail-type", EXECUTION_CHANGED, PACKAGE_CHANGED) == EXECUTION_CHANGED:
        line, more = failed_execution(event, account, settings)
    else:
        line, more = model_version(event, account, settings)
    if line:
        topic.tell(line, f"{line}.\n{more}")
    return line


def failed_execution(event: Mapping[str, Any], account: Account, settings: Settings) -> tuple[str, str]:
    """A line about an execution that has failed, and where to look. Empty for one that has not."""
    pipeline = text_at(event, "detail.pipelineArn").rpartition("/")[2]
    if pipeline.lower() != settings.pipeline.lower():
        raise EventError("event detail.pipelineArn", pipeline, limit=settings.pipeline)
    if text_at(event, "detail.currentPipelineExecutionStatus") != "Failed":
        return "", ""
    arn = text_at(event, "detail.pipelineExecutionArn")
    named = f"{settings.pipeline} {arn.rpartition('/')[2]}"
    failed = [step for step in account.steps(arn) if step["StepStatus"] == "Failed"]
    for step in failed:
        message = step.get("Metadata", {}).get("Fail", {}).get("ErrorMessage")
        if message:
            conditions = "; ".join(failed_conditions(message)) or "see its message"
            return f"{named}: gate closed: {conditions}", f"{message}\nlangadapt status {arn.rpartition('/')[2]}"
    reasons = [f"{step['StepName']}: {_line(step.get('FailureReason', ''))}" for step in failed]
    reason = "; ".join(reasons) or _line(account.failure(arn)) or "no reason given"
    remedy = f"Mend the cause, then: langadapt retry {arn.rpartition('/')[2]}"
    return f"{named} failed at {reason}" if reasons else f"{named} failed: {reason}", remedy


def failed_conditions(message: str) -> list[str]:
    """The conditions of a gate's message that do not hold, each with value and limit."""
    failed = []
    for found in CONDITION.finditer(message):
        if found["name"].startswith(CHAMPION) and NO_CHAMPION in message:
            continue
        if not COMPARISONS[found["comparison"]](float(found["value"]), float(found["limit"])):
            failed.append(f"{found['name']} {found['value']}, limit {found['comparison']} {found['limit']}")
    return failed


def model_version(event: Mapping[str, Any], account: Account, settings: Settings) -> tuple[str, str]:
    """A line about a version that waits for a person, by what the registry says now. Empty for any other."""
    required(event, "detail.ModelPackageGroupName", settings.group)
    package = account.package(text_at(event, "detail.ModelPackageArn"))
    version, status = package["ModelPackageVersion"], package["ModelApprovalStatus"]
    figures = package.get("CustomerMetadataProperties", {})
    base, candidate = figures.get("bits_per_byte.base"), figures.get("bits_per_byte.candidate")
    measured = f": bits per byte {base} -> {candidate}" if base and candidate else ""
    if status == PENDING:
        remedy = f"Look: langadapt models show {version} --remote\n"
        remedy += f"Decide: langadapt models approve {version} --remote, or models reject {version} --remote"
        return f"{settings.group} version {version} waits for approval{measured}", remedy
    if status == APPROVED and settings.tells_approved:
        return f"{settings.group} version {version} is approved{measured}", "Nothing deploys it: see docs/serving.md."
    return "", ""


def _line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


# --- on SageMaker -----------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> None:
    """The entry point on Lambda."""
    given = settings_from_environment()
    topic = SnsTopic(client("sns"), given.pop("topic_arn"))
    line = notify(event, SageMakerAccount(client("sagemaker")), topic, Settings(**given))
    print(json.dumps({"told": line}))


@dataclass(frozen=True)
class SageMakerAccount:
    """Executions and versions; client: boto3's for SageMaker."""

    client: Any

    def steps(self, execution_arn: str) -> list[dict[str, Any]]:
        pages = self.client.get_paginator("list_pipeline_execution_steps").paginate(PipelineExecutionArn=execution_arn)
        return [step for page in pages for step in page["PipelineExecutionSteps"]]

    def failure(self, execution_arn: str) -> str:
        described = self.client.describe_pipeline_execution(PipelineExecutionArn=execution_arn)
        return described.get("FailureReason", "")

    def package(self, arn: str) -> dict[str, Any]:
        return self.client.describe_model_package(ModelPackageName=arn)
