"""What an hour of an instance costs: a dated table that travels with the package, the user's own, or an account's."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated

import pydantic
from pydantic import Field

from pipeline.config_sections import Section
from pipeline.config_text import read_yaml
from steps.contract import ConfigError

MENDED = "Write it as pipeline/plan/prices.yaml is written."


class Price(Section):
    """Of one instance for one hour."""

    usd_per_hour: float = Field(gt=0, le=10_000, description="on demand")
    date: datetime.date = Field(description="on which it was quoted")
    source: str = Field(min_length=1, description="where it was quoted")
    spot_share: float | None = Field(None, gt=0, le=1, description="of the price that spot capacity costs")


class PriceFile(Section):
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    prices: dict[Annotated[str, Field(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$")], Price] = Field(min_length=1)


@dataclass(frozen=True)
class PriceTable:
    """prices: by instance type.  own: by instance type and job (Training or Processing), which count before those."""

    region: str
    prices: Mapping[str, Price]
    own: Mapping[tuple[str, str], Price] = field(default_factory=dict)

    def price(self, instance_type: str, job: str, region: str) -> Price | None:
        """None where the table has none for the type in the region."""
        if region != self.region:
            return None
        return self.own.get((instance_type, job)) or self.prices.get(instance_type)


def package_prices() -> PriceTable:
    """The table that travels with the package."""
    text = (resources.files("pipeline.plan") / "prices.yaml").read_text(encoding="utf-8")
    return price_table(text, "prices.yaml")


def prices_of_file(file: Path, region: str) -> PriceTable:
    """The user's table. Raises ConfigError for one that cannot be read, is no table, or is of another region."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("--prices", f"{file} is not UTF-8", remedy="Save it as UTF-8.") from error
    except OSError as error:
        value = f"{file} is a folder" if file.is_dir() else f"{file} cannot be read"
        raise ConfigError("--prices", value, remedy="Name a YAML file with prices.") from error
    table = price_table(text, f"--prices {file}")
    if table.region != region:
        remedy = "Give prices of that region, or set aws.region."
        raise ConfigError(f"--prices {file}", f"region {table.region}", limit=f"aws.region {region}", remedy=remedy)
    return table


def price_table(text: str, subject: str) -> PriceTable:
    """Raises ConfigError that names the entry at fault."""
    try:
        found = PriceFile.model_validate(read_yaml(text, subject))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        value = "missing" if first["type"] == "missing" else repr(first["input"])
        limit = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        raise ConfigError(f"{subject}: {where}", value, limit=limit[:1].lower() + limit[1:], remedy=MENDED) from error
    return PriceTable(found.region, found.prices)
