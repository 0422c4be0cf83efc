"""`langadapt plan`: what a run takes before any money is spent. docs/plan.md has the formulas and their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig


def run_price(config: PipelineConfig) -> tuple[float | None, str]:
    """The planned price of a run in US dollars, by the table that travels with the package, and a line about it.

    None where no step has a price or the plan cannot be made; the line then is the reason. Raises nothing of ours.
    """
    from pipeline.plan.prices import package_prices
    from pipeline.plan.rendering import price_line
    from pipeline.plan.whole_plan import make_plan
    from steps.contract import ConfigError

    try:
        plan = make_plan(config, package_prices())
    except ConfigError as error:
        return None, str(error)
    priced = any(cost.price is not None for cost in plan.costs.steps)
    return (plan.costs.usd if priced else None), price_line(plan)
