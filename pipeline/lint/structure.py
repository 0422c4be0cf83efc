"""What a definition is built of: objects, lists and texts where the service expects them, and whole references.

All other rules take it for granted, so they are asked only where this finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import BRANCHES
from pipeline.references import as_text, member_path, reference_kind

REFERENCES = ("Get", "Std:Join", "Std:JsonGet")
SHOWN_CHARACTERS = 80
# Members of a step that have a kind of their own.
STEP_KINDS: Mapping[str, type] = {
    "Name": str, "Type": str, "Arguments": dict, "DependsOn": list, "CacheConfig": dict, "RetryPolicies": list,
    "PropertyFiles": list, "OutputParameters": list, "DisplayName": str, "Description": str, "FunctionArn": str,
}  # fmt: skip
# What their entries are, and of these the members that have a kind of their own.
ENTRY_KINDS: Mapping[str, Mapping[str, type]] = {
    "RetryPolicies": {"ExceptionType": list},
    "PropertyFiles": {"PropertyFileName": str, "OutputName": str, "FilePath": str},
    "OutputParameters": {"OutputName": str, "OutputType": str},
}
NEEDED_OF_ENTRIES = {
    "PropertyFiles": ("PropertyFileName", "OutputName", "FilePath"),
    "OutputParameters": ("OutputName",),
}
PARAMETER_KINDS: Mapping[str, type] = {"Name": str, "Type": str, "EnumValues": list}
KIND_NAMES: Mapping[type, str] = {str: "a text", dict: "an object", list: "a list"}


def structure_findings(definition: Mapping[str, Any]) -> list[Finding]:
    """Everything that is not of the kind that stands there in a definition."""
    return [*_of_parameters(definition.get("Parameters", [])), *_of_steps(definition.get("Steps"), "$.Steps")]


def _shown(value: Any) -> str:
    text = as_text(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _kind(value: Any, kind: type, path: str, step: str = "") -> Iterator[Finding]:
    if not isinstance(value, kind):
        yield Finding(path, _shown(value), KIND_NAMES[kind], f"Write {KIND_NAMES[kind]}.", step)


def _of_parameters(parameters: Any) -> Iterator[Finding]:
    yield from _kind(parameters, list, "$.Parameters")
    for index, parameter in enumerate(parameters if isinstance(parameters, list) else []):
        path = member_path("$.Parameters", index)
        yield from _members(parameter, PARAMETER_KINDS, ("Name", "Type"), path, "")


def _members(
    holder: Any, kinds: Mapping[str, type], needed: tuple[str, ...], path: str, step: str
) -> Iterator[Finding]:
    """The members of an object that have a kind of their own, those that are needed among them."""
    yield from _kind(holder, dict, path, step)
    if not isinstance(holder, dict):
        return
    for name in needed:
        if name not in holder:
            yield Finding(member_path(path, name), "missing", "required", f"Give {KIND_NAMES[kinds[name]]}.", step)
    for name, kind in kinds.items():
        if name in holder:
            yield from _kind(holder[name], kind, member_path(path, name), step)


def _of_steps(steps: Any, path: str) -> Iterator[Finding]:
    yield from _kind(steps, list, path)
    for index, step in enumerate(steps if isinstance(steps, list) else []):
        yield from _of_step(step, member_path(path, index))


def _of_step(step: Any, path: str) -> Iterator[Finding]:
    name = str(step.get("Name", "")) if isinstance(step, dict) else ""
    wrong = list(_members(step, STEP_KINDS, ("Name", "Type"), path, name))
    yield from wrong
    if wrong:
        return
    for index, entry in enumerate(step.get("DependsOn", [])):
        if not isinstance(entry, str) and not (isinstance(entry, dict) and isinstance(entry.get("Step"), str)):
            place = member_path(f"{path}.DependsOn", index)
            yield Finding(place, _shown(entry), "a step's name", "Name the step.", name)
    for holder, kinds in ENTRY_KINDS.items():
        for index, entry in enumerate(step.get(holder, [])):
            place = member_path(f"{path}.{holder}", index)
            yield from _members(entry, kinds, NEEDED_OF_ENTRIES.get(holder, ()), place, name)
    arguments = step.get("Arguments", {})
    if reference_kind(arguments):
        yield Finding(f"{path}.Arguments", _shown(arguments), "an object", "Write the arguments themselves.", name)
        return
    own = {key: value for key, value in arguments.items() if key not in BRANCHES}
    yield from _of_references(own, f"{path}.Arguments", name)
    if step["Type"] == "Condition":
        yield from _of_conditions(arguments.get("Conditions", []), f"{path}.Arguments.Conditions", name)
        for branch in BRANCHES:
            yield from _of_steps(arguments.get(branch, []), f"{path}.Arguments.{branch}")


def _of_conditions(conditions: Any, path: str, step: str) -> Iterator[Finding]:
    yield from _kind(conditions, list, path, step)
    for index, condition in enumerate(conditions if isinstance(conditions, list) else []):
        yield from _of_condition(condition, member_path(path, index), step)


def _of_condition(condition: Any, path: str, step: str) -> Iterator[Finding]:
    yield from _members(condition, {"Type": str, "Values": list}, ("Type",), path, step)
    if isinstance(condition, dict) and "Conditions" in condition:
        yield from _of_conditions(condition["Conditions"], f"{path}.Conditions", step)
    if isinstance(condition, dict) and "Condition" in condition:
        yield from _of_condition(condition["Condition"], f"{path}.Condition", step)


def _of_references(value: Any, path: str, step: str) -> Iterator[Finding]:
    """References that are none: misspelt, or without what they need."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_references(item, member_path(path, index), step)
    elif isinstance(value, dict):
        if len(value) == 1:
            (name,) = value
            yield from _of_reference(name, value[name], path, step)
        for name, item in value.items():
            yield from _of_references(item, member_path(path, name), step)


def _of_reference(name: str, value: Any, path: str, step: str) -> Iterator[Finding]:
    place = member_path(path, name)
    meant = {reference.lower(): reference for reference in REFERENCES}.get(name.lower(), name)
    if meant != name:
        yield Finding(place, name, "a reference", f"Did you mean {meant}?", step)
    elif name == "Get":
        if not isinstance(value, str) or not value:
            yield Finding(place, _shown(value), "a reference such as Parameters.NAME", "Name what it refers to.", step)
    elif name == "Std:Join":
        yield from _members(value, {"On": str, "Values": list}, ("Values",), place, step)
        parts = value.get("Values") if isinstance(value, dict) else None
        for index, part in enumerate(parts if isinstance(parts, list) else []):
            if not isinstance(part, str | int | float) and not reference_kind(part):
                limit = "a text, a number or a reference"
                yield Finding(f"{place}.Values[{index}]", _shown(part), limit, "Correct it.", step)
    elif name == "Std:JsonGet":
        yield from _kind(value, dict, place, step)
        if isinstance(value, dict) and ("PropertyFile" in value) == ("S3Uri" in value):
            yield Finding(place, _shown(value), "a PropertyFile or an S3Uri", "Give one of the two.", step)
