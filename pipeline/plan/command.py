"""`langadapt plan`: what a run takes, before any money is spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    Overrides,
    Preset,
    expanded,
    for_a_reader,
    named_place,
    print_json,
)

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig
    from pipeline.plan.prices import PriceTable

Budget = Annotated[
    float | None, typer.Option(metavar="USD", help="Refuse, with exit code 1, a plan that costs more than this.")
]
Prices = Annotated[
    Path | None,
    typer.Option(metavar="FILE", parser=named_place, help="Prices in the place of the package's own, as YAML."),
]
SpotShare = Annotated[
    float | None,
    typer.Option(metavar="SHARE", help="What spot capacity costs of the price, above 0 to 1, for steps that take it."),
]
CheckAccount = Annotated[
    bool, typer.Option("--check-account", help="Read quotas and prices of the account; changes nothing there.")
]


def plan(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    budget: Budget = None,
    prices: Prices = None,
    spot_share: SpotShare = None,
    check_account: CheckAccount = False,
    as_json: AsJson = False,
) -> int:
    """Plan a run before any money is spent: parameters, memory, hours, costs, storage, and what is likely to go wrong.

    No network and no account, but with --check-account. Exits with 1 where the plan costs more than --budget.
    """
    from pipeline.config import load_config
    from pipeline.plan.costs import check_budget
    from pipeline.plan.prices import package_prices, prices_of_file
    from pipeline.plan.rendering import plan_lines
    from pipeline.plan.whole_plan import make_plan
    from steps.contract import ConfigError

    check_numbers(budget, spot_share)
    settings = load_config(preset, expanded(config), overrides or ())
    file = expanded(prices)
    table = package_prices() if file is None else prices_of_file(file, settings.aws.region)
    found, account = account_prices(settings, table) if check_account else (table, None)
    made = make_plan(settings, found, spot_share)
    if spot_share is not None and not any(cost.is_spot for cost in made.costs.steps):
        remedy = "Set compute.continued_pretraining.managed_spot=true, or leave the share out."
        raise ConfigError("--spot-share", spot_share, limit="a step on spot capacity", remedy=remedy)
    if budget is not None:
        check_budget(made.costs, budget)
    with for_a_reader():
        if as_json:
            print_json({**made.as_json(), "budget_usd": budget, "account": account})
        else:
            print("\n".join([*plan_lines(made, budget), *account_lines(account)]))
    return 0


def check_numbers(budget: float | None, spot_share: float | None) -> None:
    """Raises ConfigError for a budget or a share that is none."""
    from steps.contract import ConfigError

    if budget is not None and not 0 < budget < float("inf"):
        raise ConfigError("--budget", budget, limit="above 0", remedy="Give US dollars.")
    if spot_share is not None and not 0 < spot_share <= 1:
        raise ConfigError("--spot-share", spot_share, limit="above 0, up to 1", remedy="0.4 is 40% of the price.")


def account_prices(settings: PipelineConfig, table: PriceTable) -> tuple[PriceTable, dict[str, Any]]:
    """The table with what the account's price list has, and the looks at the account as JSON. Raises AwsError."""
    from pipeline.plan.account_looks import looked_at

    return looked_at(settings, table)


def account_lines(account: dict[str, Any] | None) -> list[str]:
    if account is None:
        return []
    return ["", *(f"{check['state']:<20} {check['text']}" for check in account["checks"])]
