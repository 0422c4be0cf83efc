"""The steps of a compiled definition as a graph: who waits for whom, and what this machine cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.conditions import CONDITION_TYPES
from pipeline.references import referenced_steps
from steps.contract import ConfigError, nearest_name

JOB_TYPES = ("Processing", "Training")
SUPPORTED_TYPES = (*JOB_TYPES, "Condition", "Fail", "Lambda", "RegisterModel")


@dataclass(frozen=True)
class Node:
    """One step: its part of the definition, the steps it waits for, and the branch it stands in.

    branch: (name of a Condition step, outcome that leads here), None outside of branches.
    """

    name: str
    type: str
    definition: Mapping[str, Any]
    needs: frozenset[str]
    branch: tuple[str, bool] | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.definition.get("Arguments", {})


def build_graph(definition: Mapping[str, Any]) -> dict[str, Node]:
    """The steps by name, each after all that it needs.

    Raises ConfigError for a step type or feature that the local executor does not run, an unknown step in a
    reference or DependsOn, a name used twice, or a circle.
    """
    nodes: dict[str, Node] = {}
    for step, branch in _walk(definition["Steps"], None):
        name = step["Name"]
        if name in nodes:
            raise ConfigError(name, "two steps of this name", remedy="Rename one of them.")
        check_supported(step)
        arguments = step.get("Arguments", {})
        own = arguments.get("Conditions", []) if step["Type"] == "Condition" else arguments
        needs = referenced_steps(own) | _depends_on(step) | ({branch[0]} if branch else set())
        nodes[name] = Node(name, step["Type"], step, frozenset(needs), branch)
    for node in nodes.values():
        for needed in sorted(node.needs):
            if needed not in nodes:
                raise ConfigError(node.name, f"needs step {needed}", remedy=nearest_name(needed, nodes))
    return _in_order(nodes)


def _walk(
    steps: list[dict[str, Any]], branch: tuple[str, bool] | None
) -> Iterator[tuple[dict[str, Any], tuple[str, bool] | None]]:
    for step in steps:
        yield step, branch
        if step["Type"] == "Condition":
            yield from _walk(step["Arguments"].get("IfSteps", []), (step["Name"], True))
            yield from _walk(step["Arguments"].get("ElseSteps", []), (step["Name"], False))


def _depends_on(step: Mapping[str, Any]) -> set[str]:
    for entry in step.get("DependsOn", []):
        if not isinstance(entry, str):
            remedy = "Depend on the step's success."
            raise ConfigError(step["Name"], f"DependsOn {entry}", limit="names of steps", remedy=remedy)
    return set(step.get("DependsOn", []))


def _in_order(nodes: Mapping[str, Node]) -> dict[str, Node]:
    ordered: dict[str, Node] = {}
    while len(ordered) < len(nodes):
        ready = [node for node in nodes.values() if node.name not in ordered and node.needs <= ordered.keys()]
        if not ready:
            circle = ", ".join(name for name in nodes if name not in ordered)
            raise ConfigError("definition", f"steps wait for each other: {circle}", remedy="Break the circle.")
        ordered.update((node.name, node) for node in ready)
    return ordered


def check_supported(step: Mapping[str, Any]) -> None:
    """Raises ConfigError that names the step where the local executor cannot run it."""
    name, kind, arguments = step["Name"], step["Type"], step.get("Arguments", {})
    if kind not in SUPPORTED_TYPES:
        limit = f"one of {', '.join(SUPPORTED_TYPES)}"
        raise ConfigError(name, f"a step of type {kind}", limit=limit, remedy="Run this definition on SageMaker.")
    if kind == "Training":
        compression = arguments.get("OutputDataConfig", {}).get("CompressionType", "GZIP")
        if compression != "NONE":
            remedy = "Set the output's compression type to NONE."
            raise ConfigError(name, f"OutputDataConfig.CompressionType {compression}", limit="NONE", remedy=remedy)
    for label, source in _input_sources(kind, arguments):
        if not isinstance(source, dict) or source.get("S3DataType", "S3Prefix") != "S3Prefix":
            raise ConfigError(f"{name}, input {label}", "not read from an S3 prefix", remedy="Give it as S3Prefix.")
    for condition in _conditions(arguments.get("Conditions", []) if kind == "Condition" else []):
        if condition["Type"] not in CONDITION_TYPES:
            remedy = nearest_name(condition["Type"], CONDITION_TYPES)
            raise ConfigError(name, f"condition {condition['Type']}", remedy=remedy)


def _input_sources(kind: str, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if kind == "Processing":
        for entry in arguments.get("ProcessingInputs", []):
            yield entry["InputName"], entry.get("S3Input")
    if kind == "Training":
        for channel in arguments.get("InputDataConfig", []):
            yield channel["ChannelName"], channel.get("DataSource", {}).get("S3DataSource")


def _conditions(conditions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for condition in conditions:
        yield condition
        yield from _conditions(condition.get("Conditions", []))
        if "Condition" in condition:
            yield from _conditions([condition["Condition"]])
