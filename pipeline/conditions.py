"""Conditions of a compiled definition: evaluated, and told so that a person sees which one closed a gate."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.references import Scope, as_text, reference_kind
from steps.contract import StepError

COMPARISONS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "Equals": ("==", operator.eq),
    "GreaterThan": (">", operator.gt),
    "GreaterThanOrEqualTo": (">=", operator.ge),
    "LessThan": ("<", operator.lt),
    "LessThanOrEqualTo": ("<=", operator.le),
}
ORDERED_CLASSES = ("number", "str")
CONDITION_TYPES = (*COMPARISONS, "In", "Not", "Or")


@dataclass(frozen=True)
class ConditionResult:
    """One evaluated condition.

    name: what is judged, such as `bits_per_byte.candidate`.  limit: what it is held against; limit_name: the parameter
    that the limit comes from, empty for a literal.  parts: the conditions inside Not and Or.
    """

    name: str
    operator: str
    value: Any
    limit: Any
    holds: bool
    limit_name: str = ""
    parts: tuple[ConditionResult, ...] = ()

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        if self.parts:
            return f"{self.operator}({'; '.join(str(part) for part in self.parts)}) {verdict}"
        limit = f"{_shown(self.limit)} ({self.limit_name})" if self.limit_name else _shown(self.limit)
        return f"{self.name} {_shown(self.value)} {self.operator} {limit} {verdict}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ConditionResult:
        """The result that `as_json` gave."""
        return cls(**{**values, "parts": tuple(map(cls.from_json, values["parts"]))})

    def leaves(self) -> Iterator[ConditionResult]:
        """The comparisons themselves, without the Not and Or around them."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()


def evaluate(condition: dict[str, Any], scope: Scope) -> ConditionResult:
    """The result of one condition. Raises StepError where its two sides cannot be compared."""
    kind = condition["Type"]
    if kind == "Not":
        part = evaluate(condition["Condition"], scope)
        return ConditionResult("", "not", None, None, not part.holds, parts=(part,))
    if kind == "Or":
        parts = tuple(evaluate(item, scope) for item in condition["Conditions"])
        return ConditionResult("", "or", None, None, any(part.holds for part in parts), parts=parts)
    if kind == "In":
        value, limits = scope.resolve(condition["QueryValue"]), scope.resolve(condition["Values"])
        holds = any(value_class(value) == value_class(limit) and value == limit for limit in limits)
        return ConditionResult(describe(condition["QueryValue"]), "in", value, limits, holds)
    symbol, compare = COMPARISONS[kind]
    name = describe(condition["LeftValue"])
    value, limit = scope.resolve(condition["LeftValue"]), scope.resolve(condition["RightValue"])
    if value_class(value) != value_class(limit):
        shown = f"{as_text(value)} {symbol} {as_text(limit)}"
        raise StepError(name, shown, limit="two values of one type", remedy="Correct the condition.")
    if kind != "Equals" and value_class(value) not in ORDERED_CLASSES:
        shown = f"{as_text(value)} {symbol} {as_text(limit)}"
        raise StepError(name, shown, limit="numbers or texts", remedy="Correct the condition.")
    limit_name = describe(condition["RightValue"]) if reference_kind(condition["RightValue"]) else ""
    return ConditionResult(name, symbol, value, limit, compare(value, limit), limit_name=limit_name)


def describe(value: Any) -> str:
    """A short name of what a condition looks at: a JSON path, a parameter's name, a property or the literal."""
    match reference_kind(value):
        case "Std:JsonGet":
            return value["Std:JsonGet"]["Path"].removeprefix("$.")
        case "Get":
            return value["Get"].removeprefix("Parameters.").removeprefix("Steps.")
        case "Std:Join":
            join = value["Std:Join"]
            return join.get("On", "").join(describe(item) for item in join["Values"])
    return as_text(value)


def condition_text(condition: ConditionResult) -> str:
    """`name value operator limit`, marked where it failed; of alternatives, those that hold, or all where none does."""
    if condition.operator == "or":
        holding = [part for part in condition.parts if part.holds] or list(condition.parts)
        return " or ".join(condition_text(part) for part in holding)
    if condition.parts:
        return str(condition)
    value, limit = (
        f"{side:.4f}" if isinstance(side, float) else str(side) for side in (condition.value, condition.limit)
    )
    name = re.sub(r"^.*\['(.+)'\]$", r"\1", condition.name)
    return f"{name} {value} {condition.operator} {limit}{'' if condition.holds else ' FAILED'}"


def walk_conditions(conditions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every condition, those inside Not and Or included."""
    for condition in conditions:
        yield condition
        yield from walk_conditions(condition.get("Conditions", []))
        if "Condition" in condition:
            yield from walk_conditions([condition["Condition"]])


def value_class(value: Any) -> str:
    """What kind of value this is: `number`, or the name of its Python type. Only values of one kind are compared."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value).__name__
    return "number"


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else as_text(value)
