"""Rules for conditions and for what a pipeline that is not to go on says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.conditions import COMPARISONS, CONDITION_TYPES
from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep
from pipeline.reference_checks import known_class
from pipeline.references import as_text, member_path
from steps.contract import nearest_name

MAX_MESSAGE_CHARACTERS = 3_072
# What each type of condition has beside its type.
CONDITION_MEMBERS = {
    **dict.fromkeys(COMPARISONS, ("LeftValue", "RightValue")),
    "In": ("QueryValue", "Values"),
    "Not": ("Condition",),
    "Or": ("Conditions",),
}
CLASS_NAMES = {"str": "text", "bool": "true or false"}


def gate_findings(step: ListedStep, resolved: Mapping[str, Any], types: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with a condition or with a Fail step. types: of parameters, by name."""
    if step.type == "Fail":
        yield from _message_findings(step, resolved)
    if step.type != "Condition":
        return
    arguments, base = step.definition.get("Arguments", {}), f"{step.path}.Arguments"
    conditions = arguments.get("Conditions")
    if not isinstance(conditions, list) or not conditions:
        yield Finding(f"{base}.Conditions", "none", "at least one", "Give what is to be judged.", step.name)
        return
    for index, condition in enumerate(conditions):
        yield from _condition_findings(step, condition, member_path(f"{base}.Conditions", index), types)
    registers = any(isinstance(inner, dict) and inner.get("Type") == "RegisterModel"
                    for inner in arguments.get("IfSteps") or [])  # fmt: skip
    if registers and not arguments.get("ElseSteps"):
        remedy = "Add a Fail step: without one a closed gate ends as a success."
        yield Finding(f"{base}.ElseSteps", "none", "a step for the closed gate", remedy, step.name)
    elif not arguments.get("IfSteps") and not arguments.get("ElseSteps"):
        yield Finding(f"{base}.IfSteps", "none", "a step in one of the branches", "Add one.", step.name)


def _message_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    path, message = f"{step.path}.Arguments.ErrorMessage", resolved.get("ErrorMessage")
    if message is None:
        yield Finding(path, "missing", "required", "Say why the pipeline ends.", step.name)
    elif isinstance(message, str) and len(message) > MAX_MESSAGE_CHARACTERS:
        limit = f"{MAX_MESSAGE_CHARACTERS} characters"
        yield Finding(path, f"{len(message)} characters", limit, "Shorten the message.", step.name)


def _condition_findings(step: ListedStep, condition: Any, path: str, types: Mapping[str, str]) -> Iterator[Finding]:
    kind = condition.get("Type") if isinstance(condition, dict) else None
    if kind not in CONDITION_MEMBERS:
        limit = f"one of {', '.join(CONDITION_TYPES)}"
        remedy = nearest_name(str(kind), CONDITION_TYPES)
        yield Finding(f"{path}.Type", as_text(kind) if kind else "missing", limit, remedy, step.name)
        return
    missing = [name for name in CONDITION_MEMBERS[kind] if name not in condition]
    for name in missing:
        yield Finding(f"{path}.{name}", "missing", "required", f"Give it with each {kind}.", step.name)
    for name in condition:
        if name not in ("Type", *CONDITION_MEMBERS[kind]):
            limit = f"one of {', '.join(CONDITION_MEMBERS[kind])}"
            remedy = nearest_name(name, CONDITION_MEMBERS[kind])
            yield Finding(member_path(path, name), "no such member", limit, remedy, step.name)
    if missing:
        return
    if kind == "Not":
        yield from _condition_findings(step, condition["Condition"], f"{path}.Condition", types)
    elif kind == "Or":
        if not condition["Conditions"]:
            yield Finding(f"{path}.Conditions", "none", "at least one", "Give the alternatives.", step.name)
        for index, part in enumerate(condition["Conditions"]):
            yield from _condition_findings(step, part, member_path(f"{path}.Conditions", index), types)
    elif kind in COMPARISONS:
        left, right = (known_class(condition[side], types) for side in ("LeftValue", "RightValue"))
        if left and right and left != right:
            value = f"{CLASS_NAMES.get(left, left)} against {CLASS_NAMES.get(right, right)}"
            yield Finding(f"{path}.RightValue", value, "two values of one type", "Correct the condition.", step.name)
        elif side := next((side for side in ("LeftValue", "RightValue") if is_written_as_text(condition[side])), None):
            value = f"{condition[side]!r}, a text"
            yield Finding(f"{path}.{side}", value, "a number", "Write it without quotation marks.", step.name)
        elif kind != "Equals" and (other := {left, right} - {"number", "str", ""}):
            value = f"{kind} of {CLASS_NAMES.get(min(other), min(other))}"
            yield Finding(f"{path}.LeftValue", value, "numbers or texts", "Use Equals.", step.name)


def is_written_as_text(value: Any) -> bool:
    """Whether a value is a text that is meant as a number: texts are compared letter by letter, 9 after 10."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
