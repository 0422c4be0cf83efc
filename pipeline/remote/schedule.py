"""`langadapt schedule`: EventBridge Scheduler starts executions of a pipeline at a rate or by a cron expression."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.schedule_expression import check_expression, check_time_zone
from pipeline.remote.start import checked_parameters, deployed_definition
from pipeline.remote.writes import Writes, request_token
from steps.contract import ConfigError

SCHEDULE_NAME = re.compile(r"[0-9a-zA-Z_.-]{1,64}")
# Members of a schedule that this command sets, and compares.
SET_MEMBERS = (
    "ScheduleExpression", "ScheduleExpressionTimezone", "FlexibleTimeWindow", "Target", "State", "Description",
)  # fmt: skip
# An execution that cannot be started is tried for an hour; later the next one is near.
MAX_EVENT_AGE_SECONDS, MAX_RETRIES = 3_600, 5


def check_schedule(name: str, expression: str, time_zone: str, role_arn: str | None) -> str:
    """The role that Scheduler starts executions with. Raises ConfigError for what Scheduler does not take."""
    check_name(name)
    check_time_zone(time_zone)
    check_expression(expression, time_zone)
    if role_arn is None:
        remedy = "Name the role that EventBridge Scheduler starts executions with."
        raise ConfigError("aws.scheduler_role_arn", "not set", limit="a role's ARN", remedy=remedy)
    return role_arn


def check_name(name: str) -> None:
    """Raises ConfigError for what is no name of a schedule."""
    if not SCHEDULE_NAME.fullmatch(name):
        raise ConfigError("--name", name, limit="1 to 64 letters, digits, _ . -", remedy="Give another with --name.")


def schedule_request(
    name: str, expression: str, time_zone: str, role_arn: str, deployed: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """The request that sets a schedule of a deployed pipeline (as DescribePipeline tells it).

    given: values of parameters as texts, by name; the others keep their defaults at each start.
    Raises ConfigError for a parameter that the deployed definition does not take.
    """
    parameters = checked_parameters(deployed_definition(deployed), given)
    return {
        "Name": name,
        "ScheduleExpression": expression,
        "ScheduleExpressionTimezone": time_zone,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "ENABLED",
        "Description": f"Starts pipeline {deployed['PipelineName']}.",
        "Target": {
            "Arn": deployed["PipelineArn"],
            "RoleArn": role_arn,
            "SageMakerPipelineParameters": {"PipelineParameterList": parameters},
            "RetryPolicy": {"MaximumEventAgeInSeconds": MAX_EVENT_AGE_SECONDS, "MaximumRetryAttempts": MAX_RETRIES},
        },
    }


def set_schedule(writes: Writes, request: Mapping[str, Any]) -> str:
    """Creates the schedule or brings it up to date. Returns created, updated or unchanged.

    Raises ConfigError for a schedule of this name that starts something else, AwsError.
    """
    there = find_schedule(writes.account, request["Name"])
    _refuse_foreign(there, request["Target"]["Arn"].rpartition("/")[2])
    if there is None:
        writes.send("scheduler", "CreateSchedule", **request, ClientToken=request_token("schedule", request))
        return "created"
    if all(_known(there.get(member), request[member]) == request[member] for member in SET_MEMBERS):
        return "unchanged"
    writes.send("scheduler", "UpdateSchedule", **request, ClientToken=request_token("schedule", request))
    return "updated"


def remove_schedule(writes: Writes, name: str, pipeline: str) -> bool:
    """False where there is no such schedule, which is what was asked for.

    Raises ConfigError for a schedule of this name that starts something else than the pipeline, AwsError.
    """
    there = find_schedule(writes.account, name)
    _refuse_foreign(there, pipeline)
    if there is None:
        return False
    writes.send("scheduler", "DeleteSchedule", Name=name, ClientToken=request_token("remove", name))
    return True


def find_schedule(account: Account, name: str) -> dict[str, Any] | None:
    """A schedule of the default group, None where there is none of this name. Raises AwsError."""
    try:
        return account.call("scheduler", "GetSchedule", Name=name)
    except AwsError as error:
        if error.kind == "not_found":
            return None
        raise


def list_schedules(account: Account, pipeline: str) -> Iterator[dict[str, Any]]:
    """Rows of the schedules that start a pipeline, which may not be there any more. Raises AwsError."""
    for summary in account.pages("scheduler", "ListSchedules", "Schedules"):
        if starts(summary, pipeline):
            found = account.call("scheduler", "GetSchedule", Name=summary["Name"], GroupName=summary["GroupName"])
            parameters = found["Target"].get("SageMakerPipelineParameters", {}).get("PipelineParameterList", [])
            yield {
                "name": found["Name"],
                "expression": found["ScheduleExpression"],
                "time_zone": found.get("ScheduleExpressionTimezone", "UTC"),
                "state": found.get("State", ""),
                "parameters": {entry["Name"]: entry["Value"] for entry in parameters},
            }


def starts(there: Mapping[str, Any], pipeline: str) -> bool:
    """Whether a schedule's target is a pipeline of this name, which stands in an ARN with small letters."""
    target = str(there.get("Target", {}).get("Arn", "")).lower()
    return ":sagemaker:" in target and target.endswith(f":pipeline/{pipeline.lower()}")


def _refuse_foreign(there: Mapping[str, Any] | None, pipeline: str) -> None:
    if there is not None and not starts(there, pipeline):
        value = f"{there['Name']} starts {there.get('Target', {}).get('Arn', 'something else')}"
        raise ConfigError("--name", value, limit=f"a schedule of pipeline {pipeline}", remedy="Take another name.")


def _known(there: Any, asked: Any) -> Any:
    """What is deployed, without members that were not asked for: the service adds defaults of its own."""
    if isinstance(there, dict) and isinstance(asked, dict):
        return {name: _known(there.get(name), value) for name, value in asked.items() if name in there}
    return there
