"""What the steps cost: planned, and at most, by their hours and a price table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config_sections import TrainingJobSection
from pipeline.plan.prices import Price, PriceTable
from pipeline.plan.step_hours import StepPlan
from steps.contract import ConfigError


@dataclass(frozen=True)
class StepCost:
    """price: None where the table has none. spot_share: of the price, on spot capacity; None where it is not known."""

    step: StepPlan
    price: Price | None
    spot_share: float | None

    @property
    def is_spot(self) -> bool:
        return isinstance(self.step.section, TrainingJobSection) and self.step.section.managed_spot

    @property
    def usd(self) -> float | None:
        """Of the planned hours; on spot capacity at its share where that is known, else as if on demand."""
        share = self.spot_share if self.is_spot and self.spot_share is not None else 1.0
        on_demand = self._on_demand(self.step.counted_hours)
        return None if on_demand is None else on_demand * share

    @property
    def at_most_usd(self) -> float | None:
        """On demand until the job's limit: a retry after a fault of the service costs as much again."""
        return self._on_demand(self.step.limit_hours)

    def _on_demand(self, hours: float) -> float | None:
        return None if self.price is None else hours * self.step.instances * self.price.usd_per_hour


@dataclass(frozen=True)
class Costs:
    steps: Sequence[StepCost]

    @property
    def usd(self) -> float:
        """Of the steps that have a price."""
        return sum(cost.usd or 0.0 for cost in self.steps)

    @property
    def at_most_usd(self) -> float:
        return sum(cost.at_most_usd or 0.0 for cost in self.steps)

    @property
    def unpriced(self) -> list[str]:
        """Instance types without a price, each once."""
        return list(dict.fromkeys(cost.step.section.instance_type for cost in self.steps if cost.price is None))

    @property
    def without_hours(self) -> list[StepPlan]:
        """Steps that are counted until their limit, as their hours are not known."""
        return [cost.step for cost in self.steps if cost.step.hours is None]

    @property
    def dates(self) -> list[str]:
        """Oldest and newest date of the prices; one where they are the same."""
        dates = sorted({cost.price.date for cost in self.steps if cost.price is not None})
        return [date.isoformat() for date in dict.fromkeys([*dates[:1], *dates[-1:]])]


def costs_of(steps: Sequence[StepPlan], table: PriceTable, region: str, spot_share: float | None = None) -> Costs:
    """spot_share: what the user says that spot capacity costs of the price; counts before the table's."""
    found = []
    for step in steps:
        price = table.price(step.section.instance_type, step.job, region)
        found.append(StepCost(step, price, spot_share if spot_share is not None or price is None else price.spot_share))
    return Costs(found)


def check_budget(costs: Costs, budget: float) -> None:
    """Raises ConfigError where the plan costs more than the budget allows, and where nothing of it has a price."""
    if all(cost.price is None for cost in costs.steps):
        remedy = "Give prices with --prices, or --check-account."
        raise ConfigError("--budget", f"no price for {', '.join(costs.unpriced)}", limit="prices to hold it against",
                          remedy=remedy)  # fmt: skip
    if costs.usd > budget:
        also = f", {', '.join(costs.unpriced)} not counted" if costs.unpriced else ""
        remedy = "Raise it, or plan fewer steps, other instances or spot capacity."
        value, limit = f"{budget:,.2f} USD", f"at least the planned {costs.usd:,.2f} USD{also}"
        raise ConfigError("--budget", value, limit=limit, remedy=remedy)
