"""The steps of a definition as the lint goes through them: in the order of who waits for whom, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.references import member_path, reference_kind
from steps.contract import nearest_name

BRANCHES = ("IfSteps", "ElseSteps")


@dataclass(frozen=True)
class ListedStep:
    """One step. path: its JSON path. inside: the condition whose branch it stands in, empty outside of branches."""

    name: str
    type: str
    definition: Mapping[str, Any]
    path: str
    inside: str = ""

    @property
    def own_arguments(self) -> dict[str, Any]:
        """Its arguments, without the steps of a condition's branches."""
        arguments = self.definition.get("Arguments") or {}
        return {name: value for name, value in arguments.items() if name not in BRANCHES}

    @property
    def is_cached(self) -> bool:
        cache = self.definition.get("CacheConfig")
        return isinstance(cache, dict) and cache.get("Enabled") is True

    def property_files(self) -> list[str]:
        return [entry.get("PropertyFileName", "") for entry in self.definition.get("PropertyFiles", [])]

    def needs(self) -> dict[str, str]:
        """The names of the steps that it waits for, each with the JSON path that says so."""
        found: dict[str, str] = {}
        for name, path in step_references(self.own_arguments, f"{self.path}.Arguments"):
            found.setdefault(name, path)
        for index, entry in enumerate(self.definition.get("DependsOn") or []):
            name = entry if isinstance(entry, str) else entry.get("Step", "")
            found.setdefault(name, member_path(f"{self.path}.DependsOn", index))
        if self.inside:
            found.setdefault(self.inside, self.path)
        return found


def step_references(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The name of each step that a value refers to, with the JSON path of the reference."""
    if reference_kind(value) == "Get":
        kind, _, rest = value["Get"].partition(".")
        if kind == "Steps":
            yield rest.partition(".")[0], path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from step_references(item, member_path(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from step_references(item, member_path(path, index))


def list_steps(definition: Mapping[str, Any]) -> Iterator[ListedStep]:
    """Every step, those of branches after their condition. Only what has the form of a step is listed."""
    yield from _listed(definition.get("Steps"), "$.Steps", "")


def _listed(steps: Any, path: str, inside: str) -> Iterator[ListedStep]:
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        place = member_path(path, index)
        if not isinstance(step, dict) or not isinstance(step.get("Name"), str) or not isinstance(step.get("Type"), str):
            continue
        if not isinstance(step.get("Arguments", {}), dict):
            continue
        yield ListedStep(step["Name"], step["Type"], step, place, inside)
        for branch in BRANCHES if step["Type"] == "Condition" else ():
            inner = step.get("Arguments", {}).get(branch)
            yield from _listed(inner, f"{place}.Arguments.{branch}", step["Name"])


def in_order(steps: Mapping[str, ListedStep]) -> tuple[list[ListedStep], list[Finding]]:
    """The steps, each after those that it waits for, and the steps that are waited for in vain or in a circle."""
    findings = [
        Finding(path, name, "a step that exists", nearest_name(name, steps), step.name)
        for step in steps.values()
        for name, path in step.needs().items()
        # A reference is looked at where it stands.
        if name not in steps and "DependsOn" in path
    ]
    ordered: dict[str, ListedStep] = {}
    while len(ordered) < len(steps):
        waiting = [step for step in steps.values() if step.name not in ordered]
        ready = [step for step in waiting if all(name in ordered for name in step.needs() if name in steps)]
        if not ready:
            findings += (finding for step in waiting for finding in _circle_findings(step, steps))
            return [*ordered.values(), *waiting], findings
        ordered.update((step.name, step) for step in ready)
    return list(ordered.values()), findings


def _circle_findings(step: ListedStep, steps: Mapping[str, ListedStep]) -> Iterator[Finding]:
    """The references of a step that come back to it."""
    for name, path in step.needs().items():
        if step.name in _all_needs(name, steps):
            value = f"waits for {name}, which waits for it" if name != step.name else "waits for itself"
            yield Finding(path, value, "no circle", "Take one of the references out.", step.name)


def _all_needs(name: str, steps: Mapping[str, ListedStep]) -> set[str]:
    """A step and all that it waits for, however far."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in steps and current not in found:
            found.add(current)
            waiting += steps[current].needs()
    return found
