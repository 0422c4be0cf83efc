"""`langadapt plan --check-account`: quotas and prices as the account has them. Nothing is changed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipeline.compile import compile_document
from pipeline.config import PipelineConfig
from pipeline.plan.prices import Price, PriceTable
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.preflight import FATAL
from pipeline.remote.preflight_checks import MISSING, NOT_ALLOWED, OK, Check, quota_checks
from pipeline.remote.preflight_needs import QuotaNeed, needs_of

# The Price List API answers in few regions, for all of them.
PRICE_LIST_REGION = "us-east-1"
JOBS = ("Training", "Processing")


def looked_at(config: PipelineConfig, table: PriceTable) -> tuple[PriceTable, dict[str, Any]]:
    """The table with the account's prices before its own, and every look.

    Raises AwsError where no request can be made at all; what may not be looked at is one of the looks.
    """
    needs = needs_of(compile_document(config), {}, config.aws.max_parallel_steps).quotas
    quotas = _told("quotas", lambda: quota_checks(Account(config.aws.region), needs))
    found: dict[tuple[str, str], Price] = {}
    prices = _told("prices", lambda: _price_checks(config.aws.region, needs, found))
    checks = [*quotas, *prices]
    own = replace(table, region=config.aws.region, prices=table.prices if table.region == config.aws.region else {},
                  own=found)  # fmt: skip
    return own, {"checks": [{**vars(check), "text": check.text} for check in checks],
                 "ok": not any(check.state == MISSING for check in quotas)}  # fmt: skip


def _price_checks(region: str, needs: tuple[QuotaNeed, ...], found: dict[tuple[str, str], Price]) -> list[Check]:
    """Looks each instance type up; what is found goes into `found`."""
    account, checks = Account(PRICE_LIST_REGION), []
    for kind in sorted({need.instance_type for need in needs}):
        prices = dict(_listed_prices(account, kind, region))
        found.update({(kind, job): price for job, price in prices.items()})
        told = ", ".join(f"{price.usd_per_hour:g} USD an hour for {job}" for job, price in sorted(prices.items()))
        if told:
            checks.append(Check(f"price {kind}", OK, told))
        else:
            checks.append(Check(f"price {kind}", MISSING, f"the price list has none for {region}",
                                "The plan goes by its table."))  # fmt: skip
    return checks


def _listed_prices(account: Account, instance_type: str, region: str) -> Iterator[tuple[str, Price]]:
    """By job, the dearest on-demand price an hour of an instance type."""
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value}
               for field, value in (("regionCode", region), ("instanceName", instance_type))]  # fmt: skip
    entries: Iterator[Any] = account.pages("pricing", "GetProducts", "PriceList", ServiceCode="AmazonSageMaker",
                                           Filters=filters)  # fmt: skip
    best: dict[str, Price] = {}
    for entry in entries:
        product = json.loads(entry)
        job = product.get("product", {}).get("attributes", {}).get("component")
        if job not in JOBS:
            continue
        for price in _on_demand(product):
            if job not in best or price.usd_per_hour > best[job].usd_per_hour:
                best[job] = price
    yield from best.items()


def _on_demand(product: Mapping[str, Any]) -> Iterator[Price]:
    """Prices above zero of a product's on-demand terms, each with the day from which it holds."""
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        day = datetime.date.fromisoformat(str(term["effectiveDate"])[:10])
        for dimension in term.get("priceDimensions", {}).values():
            usd = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if usd > 0:
                yield Price(usd_per_hour=usd, date=day, source="AWS Price List API")


def _told(name: str, look: Any) -> list[Check]:
    try:
        return look()
    except AwsError as error:
        if error.kind in FATAL:
            raise
        state = NOT_ALLOWED if error.kind == "permission" else MISSING
        return [Check(name, state, f"{error.subject}: {error.value}", error.remedy)]
