"""What the jobs of an execution on SageMaker cost, by the seconds that the service tells and the dated price table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.plan.prices import Price, PriceTable, package_prices

NOT_PRICED = "not priced"


@dataclass(frozen=True)
class BilledJob:
    """instance_seconds: over all of its instances. kind: Training or Processing."""

    kind: str
    instance_type: str
    instance_seconds: float


def execution_cost(described: Mapping[str, Mapping[str, Any]], region: str) -> tuple[str, str]:
    """The cost in words, and what it rests on. described: what the service tells of each job that ran, by step.

    `not priced` where the table lacks a type: a sum without it would mislead.
    """
    jobs = list(_billed(described))
    if not jobs:
        return "no cost", "no job has ended"
    table = package_prices()
    lacking = sorted({job.instance_type for job in jobs if _price(table, job, region) is None})
    if lacking:
        return NOT_PRICED, f"no price of {', '.join(lacking)} in {region}"
    priced = [(job, price) for job in jobs if (price := _price(table, job, region)) is not None]
    total = sum(job.instance_seconds / 3600 * price.usd_per_hour for job, price in priced)
    dates = sorted({price.date for _, price in priced})
    quoted = f"{dates[0]}" if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        f"${total:,.2f}",
        f"its jobs at prices of {quoted} (pipeline/plan/prices.yaml); storage and requests left out",
    )


def _price(table: PriceTable, job: BilledJob, region: str) -> Price | None:
    return table.price(job.instance_type, job.kind, region)


def _billed(described: Mapping[str, Mapping[str, Any]]) -> Iterator[BilledJob]:
    for job in described.values():
        if "TrainingJobName" in job:
            cluster = job.get("ResourceConfig", {})
            # Of spot capacity what is billed, which is less than it worked.
            seconds = job.get("BillableTimeInSeconds") or job.get("TrainingTimeInSeconds") or 0
            kind = "Training"
        elif "ProcessingJobName" in job:
            cluster = job.get("ProcessingResources", {}).get("ClusterConfig", {})
            seconds, kind = _between(job.get("ProcessingStartTime"), job.get("ProcessingEndTime")), "Processing"
        else:
            continue
        if seconds:
            yield BilledJob(
                kind, cluster.get("InstanceType", "an unnamed type"), seconds * cluster.get("InstanceCount", 1)
            )


def _between(began: datetime | None, ended: datetime | None) -> float:
    return max(0.0, (ended - began).total_seconds()) if began is not None and ended is not None else 0.0
