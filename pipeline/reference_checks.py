"""References that lead nowhere, found before anything runs.

What can be known from the definition alone is checked here: a parameter, variable, step property or property file that
does not exist, a path that cannot be read, a comparison of two values that can never be of one type. What a file will
hold is known only when it is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.conditions import COMPARISONS, value_class, walk_conditions
from pipeline.references import look_up, reference_kind, walk_references
from pipeline.step_graph import Node
from pipeline.step_properties import is_unknown, promised_properties
from steps.contract import ConfigError, StepError, nearest_name

EXECUTION_VARIABLES = (
    "PipelineExecutionId", "PipelineExecutionArn", "PipelineName", "PipelineArn", "StartDateTime", "CurrentDateTime",
)  # fmt: skip
# Variables that name the job of the step that they stand in, and the type of that step.
JOB_VARIABLES = {"TrainingJobName": "Training", "ProcessingJobName": "Processing"}
PARAMETER_CLASSES = {"String": "str", "Integer": "number", "Float": "number", "Boolean": "bool"}


def check_references(graph: Mapping[str, Node], parameters: Mapping[str, str]) -> None:
    """Raises ConfigError for the first reference that leads nowhere. parameters: declared types by name."""
    for node in graph.values():
        own = node.arguments.get("Conditions", []) if node.type == "Condition" else node.arguments
        for reference in walk_references(own):
            match reference_kind(reference):
                case "Get":
                    _check_get(node, reference["Get"], graph, parameters)
                case "Std:JsonGet":
                    _check_path(node, reference["Std:JsonGet"])
        if node.type == "Condition":
            _check_comparisons(node, parameters)


def _check_get(node: Node, reference: str, graph: Mapping[str, Node], parameters: Mapping[str, str]) -> None:
    subject = f"{node.name}, {reference}"
    kind, _, rest = reference.partition(".")
    if kind == "Parameters":
        if rest not in parameters:
            raise ConfigError(subject, "no such parameter", remedy=nearest_name(rest, parameters))
    elif kind == "Execution":
        if rest in JOB_VARIABLES and node.type != JOB_VARIABLES[rest]:
            remedy = "Read it from the properties of the step that runs the job."
            raise ConfigError(subject, f"in a {node.type} step", limit=f"a {JOB_VARIABLES[rest]} step", remedy=remedy)
        if rest not in (*EXECUTION_VARIABLES, *JOB_VARIABLES):
            remedy = nearest_name(rest, (*EXECUTION_VARIABLES, *JOB_VARIABLES))
            raise ConfigError(subject, "no such variable", remedy=remedy)
    elif kind == "Steps":
        step, _, path = rest.partition(".")
        _check_property(subject, graph[step], path)
    else:
        remedy = "Write Parameters.NAME, Execution.NAME or Steps.NAME.PROPERTY."
        raise ConfigError(subject, "leads nowhere", remedy=remedy)


def _check_property(subject: str, step: Node, path: str) -> None:
    first, _, name = path.partition(".")
    if first == "PropertyFiles":
        names = [entry["PropertyFileName"] for entry in step.definition.get("PropertyFiles", [])]
        if name not in names:
            remedy = nearest_name(name, names) if names else f"Declare it in PropertyFiles of {step.name}."
            raise ConfigError(subject, "no such property file", remedy=remedy)
        return
    try:
        look_up(promised_properties(step), path, subject, ends_at=is_unknown)
    except StepError as error:
        raise ConfigError(subject, error.value, remedy=error.remedy) from error


def _check_path(node: Node, arguments: Mapping[str, Any]) -> None:
    path = arguments["Path"]
    if not isinstance(path, str):
        raise ConfigError(f"{node.name}, path", json.dumps(path), limit="a text", remedy="Write the path itself.")
    try:
        # Nothing is looked up: only the path's own form counts.
        look_up({}, path, f"{node.name}, path", ends_at=lambda value: True)
    except StepError as error:
        raise ConfigError(error.subject, error.value, remedy=error.remedy) from error


def _check_comparisons(node: Node, parameters: Mapping[str, str]) -> None:
    for condition in walk_conditions(node.arguments["Conditions"]):
        if condition["Type"] not in COMPARISONS:
            continue
        left, right = (known_class(condition[side], parameters) for side in ("LeftValue", "RightValue"))
        if left and right and left != right:
            subject = f"{node.name}, {condition['Type']}"
            names = {"str": "text", "bool": "true or false"}
            value = f"{names.get(left, left)} against {names.get(right, right)}"
            raise ConfigError(subject, value, limit="two values of one type", remedy="Correct the condition.")


def known_class(value: Any, parameters: Mapping[str, str]) -> str:
    """The class of one side of a comparison, empty where only a run can tell."""
    match reference_kind(value):
        case None:
            return value_class(value)
        case "Std:Join":
            return "str"
        case "Get":
            kind, _, name = value["Get"].partition(".")
            return {"Parameters": PARAMETER_CLASSES.get(parameters.get(name, ""), ""), "Execution": "str"}.get(kind, "")
    return ""
