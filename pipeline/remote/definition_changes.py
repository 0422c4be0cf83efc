"""What differs between a deployed definition and a new one: parameters, steps, and of a step its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.steps import BRANCHES, list_steps
from pipeline.references import member_path, reference_kind

# Of a value in a line.
LONGEST_CHARACTERS = 80
_ABSENT = object()


def definition_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each change, parameters first, then the steps in their order; empty where nothing differs."""
    lines = list(_changes(_parameters(old), _parameters(new), "parameter"))
    before, after = _steps(old), _steps(new)
    lines += _changes(before, after, "step")
    rest = {name for name in {*old, *new} if name not in ("Parameters", "Steps")}
    for name in sorted(rest):
        lines += (f"definition: {line}" for line in _values(old.get(name, _ABSENT), new.get(name, _ABSENT), name))
    if not lines and [*before] != [*after]:
        lines.append("steps: in another order")
    return lines


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], kind: str) -> Iterator[str]:
    for name in [*after, *(name for name in before if name not in after)]:
        if name not in before or name not in after:
            yield f"{kind} {name}: {'new' if name in after else 'gone'}"
        else:
            yield from (f"{kind} {name}: {line}" for line in _values(before[name], after[name], ""))


def _values(old: Any, new: Any, path: str) -> Iterator[str]:
    """`path old -> new` of every value that differs. Lists of one length are compared entry by entry."""
    if type(old) is type(new) and old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and reference_kind(old) == reference_kind(new):
        for name in [*new, *(name for name in old if name not in new)]:
            yield from _values(old.get(name, _ABSENT), new.get(name, _ABSENT), member_path(path, name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _values(*pair, member_path(path, index))
    else:
        yield f"{path} {_shown(old)} -> {_shown(new)}".strip()


def _parameters(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {entry["Name"]: {key: value for key, value in entry.items() if key != "Name"}
            for entry in definition.get("Parameters") or []}  # fmt: skip


def _steps(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Each step without its name, and a condition without the steps of its branches, which come by themselves."""
    found = {}
    for step in list_steps(definition):
        own = {name: value for name, value in step.definition.items() if name != "Name"}
        if step.type == "Condition":
            branches = {name: [entry.get("Name") for entry in own["Arguments"].get(name) or []] for name in BRANCHES}
            own["Arguments"] = {**own["Arguments"], **branches}
        found[step.name] = own
    return found


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "(none)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_CHARACTERS else f"{text[:LONGEST_CHARACTERS]}..."
