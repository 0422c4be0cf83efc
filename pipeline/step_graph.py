"""The steps of a compiled definition as a graph: who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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

    Raises ConfigError for a step type that the local executor does not run, an unknown step in a reference or
    DependsOn, a name used twice, or a circle. What else of a step does not run here: pipeline/step_support.py.
    """
    nodes: dict[str, Node] = {}
    if not isinstance(definition.get("Steps"), list):
        raise ConfigError("definition", "no list Steps", remedy="Give the JSON that Pipeline.definition() returns.")
    for step, branch in _walk(definition["Steps"], None):
        name = step["Name"]
        if name in nodes:
            raise ConfigError(name, "two steps of this name", remedy="Rename one of them.")
        check_type(step)
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
    names = set()
    for entry in step.get("DependsOn", []):
        # A dependency with a trigger: {"Step": name, "Trigger": "Failed"}.
        name, trigger = (entry, "Completed") if isinstance(entry, str) else (entry["Step"], entry["Trigger"])
        if trigger != "Completed":
            value = f"runs when {name} is {trigger}"
            raise ConfigError(f"{step['Name']}, DependsOn", value, limit="Completed", remedy="Depend on its success.")
        names.add(name)
    return names


def _in_order(nodes: Mapping[str, Node]) -> dict[str, Node]:
    ordered: dict[str, Node] = {}
    while len(ordered) < len(nodes):
        ready = [node for node in nodes.values() if node.name not in ordered and node.needs <= ordered.keys()]
        if not ready:
            circle = ", ".join(name for name in nodes if name not in ordered)
            raise ConfigError("definition", f"steps wait for each other: {circle}", remedy="Break the circle.")
        ordered.update((node.name, node) for node in ready)
    return ordered


def check_type(step: Mapping[str, Any]) -> None:
    """Raises ConfigError that names the step where the local executor knows no step of its type."""
    if step["Type"] not in SUPPORTED_TYPES:
        limit = f"one of {', '.join(SUPPORTED_TYPES)}"
        value = f"a step of type {step['Type']}"
        raise ConfigError(step["Name"], value, limit=limit, remedy="Run this definition on SageMaker.")
