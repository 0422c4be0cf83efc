"""What an execution is planned to cost: the figures of `langadapt plan`, with the instances that it is started with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.references import parameter_values
from pipeline.remote.preflight_checks import NOT_PRICED, OK, Check
from steps.contract import UserError

NAME = "price of the run"
# Parameters that say what is billed, by the job and the field of its section.
INSTANCE_PARAMETERS = {
    "ContinuedPretrainingInstanceType": ("continued_pretraining", "instance_type"),
    "ContinuedPretrainingInstanceCount": ("continued_pretraining", "instance_count"),
    "FineTuneInstanceType": ("fine_tune", "instance_type"),
    "EvaluateInstanceType": ("evaluate_model", "instance_type"),
}


def price_check(settings: PipelineConfig, definition: Mapping[str, Any], given: Mapping[str, str]) -> Check:
    """The price as a line of the checklist, which it never fails.

    given: values of the definition's parameters as texts. Raises ConfigError for parameters that it does not have.
    """
    from pipeline.plan.prices import package_prices
    from pipeline.plan.whole_plan import make_plan

    try:
        costs = make_plan(with_instances(settings, definition, given), package_prices()).costs
    except UserError as error:
        return Check(NAME, NOT_PRICED, f"{error.subject}: {error.value}", error.remedy)
    if not costs.dates:
        value = f"no price for {', '.join(costs.unpriced)} in {settings.aws.region}"
        return Check(NAME, NOT_PRICED, value, "See langadapt plan --check-account.")
    planned = f"about {costs.usd:,.2f}" if costs.usd >= 0.01 else "less than 0.01"
    found = f"{planned} USD, at most {costs.at_most_usd:,.2f}, by prices of {' to '.join(costs.dates)}"
    if costs.without_hours:
        found += f"; {', '.join(step.name for step in costs.without_hours)} counted until the time limit"
    if costs.unpriced:
        value = f"{found}; without {', '.join(costs.unpriced)}"
        return Check(NAME, NOT_PRICED, value, "See langadapt plan --check-account.")
    return Check(NAME, OK, found)


def with_instances(settings: PipelineConfig, definition: Mapping[str, Any], given: Mapping[str, str]) -> PipelineConfig:
    """The configuration with the instances of a definition's parameters."""
    values = parameter_values(definition.get("Parameters") or [], given)
    sections: dict[str, Any] = {}
    for name, (job, member) in INSTANCE_PARAMETERS.items():
        if name in values:
            section = sections.get(job, getattr(settings.compute, job))
            sections[job] = section.model_copy(update={member: values[name]})
    return settings.model_copy(update={"compute": settings.compute.model_copy(update=sections)})
