"""The gate: what must hold of a candidate before a person is asked about it.

A candidate is registered only if its bits per byte are low enough, it is better than the base model by enough and
beyond chance, it forgets little enough of the base model's language, and it is better than the champion beyond chance.
"Beyond chance": the lower end of the improvement's 95% interval is above zero. Against the champion that is all that is
asked: a new version costs a person's time, and one that cannot be told from what is approved is not worth it. So the
champion's own weights, trained again from the same data, are never registered twice.

Every condition names a number of evaluation.json. Where one is missing, or no finite number, nothing is registered and
the execution fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.workflow.conditions import (
    Condition,
    ConditionEquals,
    ConditionGreaterThan,
    ConditionGreaterThanOrEqualTo,
    ConditionLessThanOrEqualTo,
    ConditionOr,
)
from sagemaker.core.workflow.functions import Join

from pipeline.measurements import evaluated
from pipeline.parameters import Parameters

CONDITIONS = {"<=": ConditionLessThanOrEqualTo, ">=": ConditionGreaterThanOrEqualTo, ">": ConditionGreaterThan}


@dataclass(frozen=True)
class Limit:
    """One condition of the gate: a number of evaluation.json against a parameter or a number of its own."""

    json_path: str
    comparison: str
    limit: PipelineVariable | float

    def condition(self) -> Condition:
        return CONDITIONS[self.comparison](evaluated(self.json_path), self.limit)

    def told(self) -> list[str | PipelineVariable]:
        """Path, value and limit, as parts of a message."""
        limit = f"{self.limit}" if isinstance(self.limit, float) else self.limit
        return [f" {self.json_path} = ", evaluated(self.json_path), f", limit {self.comparison} ", limit]


BETTER_THAN_CHAMPION = Limit("champion.improvement_ci95[0]", ">", 0.0)


def gate_limits(parameters: Parameters) -> list[Limit]:
    """The conditions that hold of every candidate; that of the champion stands beside them."""
    limits = [
        Limit("bits_per_byte.candidate", "<=", parameters.max_bits_per_byte),
        Limit("bits_per_byte.improvement", ">=", parameters.min_improvement),
        Limit("bits_per_byte.improvement_ci95[0]", ">", 0.0),
    ]
    if parameters.max_retention_loss is not None:
        limits.append(Limit("retention.loss", "<=", parameters.max_retention_loss))
    return limits


def gate_conditions(limits: list[Limit], champion_present: PipelineVariable) -> list[Condition]:
    """All limits, and the champion's where there is one: without an approved version there is nothing to be better
    than."""
    no_champion = ConditionEquals(champion_present, "false")
    return [*(limit.condition() for limit in limits), ConditionOr([no_champion, BETTER_THAN_CHAMPION.condition()])]


def closed_message(limits: list[Limit], champion_present: PipelineVariable) -> Join:
    """Every condition with value and limit: one else branch cannot tell which of them failed."""
    parts: list[str | PipelineVariable] = ["Quality gate closed. All of these must hold:"]
    for limit in limits:
        parts += [*limit.told(), ";"]
    parts += [*BETTER_THAN_CHAMPION.told(), " unless champion_present = false (it is ", champion_present, ")."]
    return Join("", parts)
