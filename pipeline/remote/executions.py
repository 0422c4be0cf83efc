"""Executions of a pipeline: found by what a person calls them, listed, stopped, retried."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from pipeline.references import parameter_values
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.writes import Writes, request_token
from steps.contract import ConfigError

EXECUTION_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:\d{12}:pipeline/[^/]+/execution/[^/]+")
EXECUTION_ID = re.compile(r"[a-z0-9]{12}")
# Statuses that RetryPipelineExecution takes.
RETRIED = ("Failed", "Stopped")
GOING_ON = ("Executing", "Stopping")


def list_executions(account: Account, pipeline: str) -> Iterator[dict[str, Any]]:
    """Every execution of a pipeline, the newest first.

    Raises ConfigError where the account has no pipeline of this name, AwsError.
    """
    try:
        yield from account.pages(
            "sagemaker", "ListPipelineExecutions", "PipelineExecutionSummaries",
            PipelineName=pipeline, SortBy="CreationTime", SortOrder="Descending",
        )  # fmt: skip
    except AwsError as error:
        if error.kind == "not_found":
            raise no_such_pipeline(account, pipeline) from error
        raise


def no_such_pipeline(account: Account, pipeline: str) -> ConfigError:
    """The error of a pipeline that the account does not have."""
    value = f"{pipeline} is none in {account.region}"
    return ConfigError("aws.pipeline_name", value, remedy="Send it first: langadapt upsert.")


def find_execution(account: Account, pipeline: str, named: str | None) -> str:
    """The ARN of an execution: of an ARN itself, an id or display name; the newest where none is named.

    Raises ConfigError where there is none of that name, or where its ARN is of another region; AwsError.
    """
    if named is not None and EXECUTION_ARN.fullmatch(named):
        if (region := named.split(":")[3]) != account.region:
            remedy = f"Set aws.region to {region}."
            raise ConfigError("execution", f"{named} is in {region}", limit=f"aws.region {account.region}",
                              remedy=remedy)  # fmt: skip
        return named
    for summary in list_executions(account, pipeline):
        arn = summary["PipelineExecutionArn"]
        if named is None or named in (execution_id(arn), summary.get("PipelineExecutionDisplayName")):
            return arn
    if named is None:
        raise ConfigError("execution", f"pipeline {pipeline} has none", remedy="Start one: langadapt start.")
    raise ConfigError("execution", f"{named} is none of pipeline {pipeline}", remedy="See langadapt executions.")


def started_with(account: Account, arn: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definition that an execution runs, and the values of all its parameters by name. Raises AwsError."""
    answer = account.call("sagemaker", "DescribePipelineDefinitionForExecution", PipelineExecutionArn=arn)
    definition = json.loads(answer["PipelineDefinition"])
    given = account.pages(
        "sagemaker", "ListPipelineParametersForExecution", "PipelineParameters", PipelineExecutionArn=arn
    )
    texts = {entry["Name"]: entry["Value"] for entry in given}
    return definition, parameter_values(definition.get("Parameters", []), texts)


def step_rows(account: Account, arn: str) -> dict[str, dict[str, Any]]:
    """The steps of an execution by name, as the service tells them. Raises AwsError."""
    rows = account.pages(
        "sagemaker", "ListPipelineExecutionSteps", "PipelineExecutionSteps",
        PipelineExecutionArn=arn, SortOrder="Ascending",
    )  # fmt: skip
    return {row["StepName"]: row for row in rows}


def execution_id(arn: str) -> str:
    """The last part of an execution's ARN."""
    return arn.rpartition("/")[2]


def execution_row(summary: dict[str, Any]) -> dict[str, Any]:
    """What a list shows of an execution."""
    arn = summary["PipelineExecutionArn"]
    return {
        "id": execution_id(arn),
        "name": summary.get("PipelineExecutionDisplayName", ""),
        "status": summary.get("PipelineExecutionStatus", ""),
        "started": summary["StartTime"].strftime("%Y-%m-%d %H:%M:%S %z") if "StartTime" in summary else "",
        "failure": " ".join((summary.get("PipelineExecutionFailureReason") or "").split()),
        "arn": arn,
    }


def first_executions(account: Account, pipeline: str, limit: int) -> list[dict[str, Any]]:
    """Rows of the newest executions. Raises AwsError."""
    return [execution_row(summary) for summary in itertools.islice(list_executions(account, pipeline), limit)]


def stop_execution(writes: Writes, arn: str) -> str:
    """Asks the service to stop an execution. Returns its status before; one that has ended is left as it is."""
    status = _described(writes.account, arn)["PipelineExecutionStatus"]
    if status == "Executing":
        token = request_token("stop", arn)
        writes.send("sagemaker", "StopPipelineExecution", PipelineExecutionArn=arn, ClientRequestToken=token)
    return status


def retry_execution(writes: Writes, arn: str) -> str:
    """Lets an execution go on at what failed or was stopped. Returns its status before.

    One that is executing already is left as it is, as it is after the same command before. Raises ConfigError for one
    that succeeded, AwsError.
    """
    described = _described(writes.account, arn)
    status = described["PipelineExecutionStatus"]
    if status in GOING_ON:
        return status
    if status not in RETRIED:
        limit = " or ".join(RETRIED)
        raise ConfigError("retry", f"{execution_id(arn)} is {status}", limit=limit, remedy="Start a new execution.")
    # Every end of an execution may be retried once.
    token = request_token("retry", arn, str(described.get("LastModifiedTime", "")))
    writes.send("sagemaker", "RetryPipelineExecution", PipelineExecutionArn=arn, ClientRequestToken=token)
    return status


def _described(account: Account, arn: str) -> dict[str, Any]:
    return account.call("sagemaker", "DescribePipelineExecution", PipelineExecutionArn=arn)
