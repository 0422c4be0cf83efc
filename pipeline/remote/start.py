"""`langadapt start`: an execution, whole or of selected steps, its parameters checked against what is deployed."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipeline.local.selection import ancestors, select
from pipeline.references import as_text, parameter_values
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.executions import find_execution, list_executions, no_such_pipeline
from pipeline.remote.upsert import deployed_pipeline
from pipeline.remote.writes import Writes, request_token
from pipeline.step_graph import build_graph
from steps.contract import ConfigError

if TYPE_CHECKING:
    from pipeline.lint import Finding

EXECUTION_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,81}")
# Of a parameter's value in a request.
MAX_VALUE_CHARACTERS = 1_024
# What a selective execution may take the results of other steps from.
ENDED = ("Succeeded", "Failed", "Stopped")


def start_request(
    account: Account,
    pipeline: str,
    given: Mapping[str, str],
    *,
    name: str | None = None,
    from_step: str | None = None,
    only: Sequence[str] = (),
    source: str | None = None,
) -> dict[str, Any]:
    """The request of an execution. The same name with the same parameters starts once, however often it is sent.

    given: values of parameters as texts, by name.  source: the execution that steps which are not selected are taken
    from; default: the newest that has ended.
    Raises ConfigError for what the deployed definition does not have, AwsError.
    """
    definition = deployed_definition(required_pipeline(account, pipeline))
    parameters = checked_parameters(definition, given)
    if name is not None and not EXECUTION_NAME.fullmatch(name):
        raise ConfigError("--name", name, limit="82 letters, digits and single -", remedy="Change the name.")
    request: dict[str, Any] = {
        "PipelineName": pipeline,
        "PipelineExecutionDisplayName": name or f"{datetime.now(UTC):%Y-%m-%d-%H-%M-%S}-{uuid.uuid4().hex[:8]}",
        "PipelineParameters": parameters,
    }
    if selective := selective_config(account, pipeline, definition, from_step, only, source):
        request["SelectiveExecutionConfig"] = selective
    return {**request, "ClientRequestToken": request_token("start", request)}


def start(writes: Writes, request: Mapping[str, Any]) -> str:
    """Starts an execution and returns its ARN, empty for a dry run. Raises AwsError."""
    try:
        return writes.send("sagemaker", "StartPipelineExecution", **request).get("PipelineExecutionArn", "")
    except AwsError as error:
        if not error.may_pass:
            raise
        # It may have been started all the same, the answer being lost.
        remedy = f"Give the same command with --name {request['PipelineExecutionDisplayName']}: that starts it once."
        raise AwsError(error.subject, error.value, remedy=remedy, kind=error.kind, code=error.code) from error


def required_pipeline(account: Account, pipeline: str) -> dict[str, Any]:
    """The pipeline as DescribePipeline tells it. Raises ConfigError where the account has none of this name."""
    deployed = deployed_pipeline(account, pipeline)
    if deployed is None:
        raise no_such_pipeline(account, pipeline)
    return deployed


def deployed_definition(deployed: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that DescribePipeline carries."""
    return json.loads(deployed["PipelineDefinition"])


def checked_parameters(definition: Mapping[str, Any], given: Mapping[str, str]) -> list[dict[str, str]]:
    """The given values as requests carry them, all of them texts.

    Raises ConfigError for a parameter that the definition does not have, or a value that it or a step does not take.
    """
    values = parameter_values(definition.get("Parameters") or [], given)
    texts = {name: as_text(values[name]) for name in given}
    for name, text in texts.items():
        if len(text) > MAX_VALUE_CHARACTERS:
            value, limit = f"{len(text):,} characters", f"{MAX_VALUE_CHARACTERS:,}"
            raise ConfigError(f"--param {name}", value, limit=limit, remedy="Shorten it.")
    if found := _new_findings(definition, {name: values[name] for name in given}):
        alone = [name for name in given if _new_findings(definition, {name: values[name]})]
        name = (alone or [*given])[0]
        limit = f"{found[0].limit} as {found[0].where}"
        raise ConfigError(f"--param {name}", texts[name], limit=limit, remedy="Change this value.")
    return [{"Name": name, "Value": text} for name, text in texts.items()]


def _new_findings(definition: Mapping[str, Any], values: Mapping[str, Any]) -> list[Finding]:
    """What the lint finds of a definition with these values of its parameters, and not with their defaults."""
    from pipeline.lint import lint_definition

    if not values:
        return []
    declared = [
        {**entry, "DefaultValue": values[entry["Name"]]} if entry["Name"] in values else entry
        for entry in definition["Parameters"]
    ]
    before = {(found.path, found.limit) for found in lint_definition(json.dumps(definition))}
    after = lint_definition(json.dumps({**definition, "Parameters": declared}))
    return [found for found in after if (found.path, found.limit) not in before]


def selective_config(
    account: Account,
    pipeline: str,
    definition: Mapping[str, Any],
    from_step: str | None,
    only: Sequence[str],
    source: str | None,
) -> dict[str, Any] | None:
    """SelectiveExecutionConfig of --from or --only, None without them.

    The service runs the branch of a condition with the condition, so that steps of branches are not selected.
    Raises ConfigError for steps that cannot be selected, or where no execution has ended yet that others come from.
    """
    graph = build_graph(definition)
    for step in (from_step, *only):
        if step in graph and (branch := graph[step].branch):
            value = f"{step} stands in a branch of {branch[0]}"
            raise ConfigError("--only" if only else "--from", value, remedy=f"Select {branch[0]}: it runs the branch.")
    selection = select(graph, from_step, only)
    if selection is None:
        if source is not None:
            raise ConfigError("--source", source, limit="--from or --only with it", remedy="Select steps, too.")
        return None
    chosen = [name for name, node in graph.items() if name in selection.chosen and node.branch is None]
    config: dict[str, Any] = {"SelectedSteps": [{"StepName": name} for name in chosen]}
    if ancestors(graph, chosen) - set(chosen):
        config["SourcePipelineExecutionArn"] = (
            newest_ended(account, pipeline) if source is None else own_execution(account, pipeline, source)
        )
    return config


def own_execution(account: Account, pipeline: str, named: str) -> str:
    """ARN of an execution of this pipeline. Raises ConfigError for one of another, AwsError."""
    arn = find_execution(account, pipeline, named)
    if (other := arn.split("/")[1]).lower() != pipeline.lower():
        raise ConfigError("--source", f"{named} is of pipeline {other}", limit=pipeline, remedy="Name one of its own.")
    return arn


def newest_ended(account: Account, pipeline: str) -> str:
    """ARN of the newest execution that has ended. Raises ConfigError where there is none, AwsError."""
    for summary in list_executions(account, pipeline):
        if summary["PipelineExecutionStatus"] in ENDED:
            return summary["PipelineExecutionArn"]
    remedy = "Start the whole pipeline first, or name one with --source."
    raise ConfigError("--source", f"no execution of {pipeline} has ended", remedy=remedy)
