"""When a schedule starts something: Scheduler's cron, rate and at expressions, looked at before they are sent.

Only what Scheduler does not take is refused, and what would never start anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

from steps.contract import ConfigError, nearest_name

EXPRESSION = re.compile(
    r"cron\((?P<fields>(\S+ ){5}\S+)\)|rate\([1-9]\d* (minutes?|hours?|days?)\)"
    r"|at\((?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)"
)
# Names that zoneinfo lists beside those of the time zone database.
NO_ZONES = frozenset({"localtime", "Factory"})


@dataclass(frozen=True)
class Field:
    """A field of a cron expression. others: what it takes beside numbers, names, lists, ranges and steps."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    others: str = r"(?!)"

    def takes(self, text: str) -> bool:
        return all(self._takes_item(item.upper()) for item in text.split(","))

    def _takes_item(self, item: str) -> bool:
        if re.fullmatch(self.others, item):
            return all(self._is_value(number) for number in re.findall(r"\d+", item.partition("#")[0]))
        values, slash, step = item.partition("/")
        if slash and not re.fullmatch(r"[1-9]\d*", step):
            return False
        return values == "*" or all(self._is_value(value) for value in values.split("-", 1))

    def _is_value(self, text: str) -> bool:
        return text in self.names or (text.isdecimal() and text.isascii() and self.least <= int(text) <= self.most)


MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
FIELDS = (
    Field("minutes", 0, 59),
    Field("hours", 0, 23),
    # L: the last one. W: the weekday nearest to it.
    Field("day of month", 1, 31, others=r"\?|L|LW|\d{1,2}W"),
    Field("month", 1, 12, MONTHS),
    # 6L: the last Friday. 2#1: the first Monday.
    Field("day of week", 1, 7, DAYS, rf"\?|L|(\d|{'|'.join(DAYS)})(L|#[1-5])"),
    Field("year", 1970, 2199),
)


def check_expression(expression: str, time_zone: str) -> None:
    """Raises ConfigError for an expression that Scheduler does not take, or a time that has passed."""
    found = EXPRESSION.fullmatch(expression)
    if found is None:
        remedy = "Write cron(0 3 ? * SUN *), rate(7 days) or at(2027-01-31T03:00:00)."
        limit = "cron(six fields), rate(number unit) or at(time)"
        raise ConfigError("schedule", expression, limit=limit, remedy=remedy)
    if found["fields"]:
        _check_fields(expression, found["fields"].split(" "))
    elif found["time"]:
        _check_time(expression, found["time"], ZoneInfo(time_zone))


def check_time_zone(time_zone: str) -> None:
    """Raises ConfigError for what is no time zone."""
    known = available_timezones() - NO_ZONES
    if time_zone not in known:
        near = nearest_name(time_zone, known)
        remedy = near if near.startswith("Did") else "Name one of the time zone database, such as Asia/Baku."
        raise ConfigError("--time-zone", time_zone, limit="a time zone's name", remedy=remedy)


def _check_fields(expression: str, texts: list[str]) -> None:
    for field, text in zip(FIELDS, texts, strict=True):
        if not field.takes(text):
            words = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
            limit = f"{field.name} {field.least} to {field.most}{words}, *, lists, ranges or steps"
            raise ConfigError("schedule", f"{text} in {expression}", limit=limit, remedy=f"Correct its {field.name}.")
    if (texts[2] == "?") == (texts[4] == "?"):
        limit = "? as one of day of month and day of week, not both"
        raise ConfigError("schedule", expression, limit=limit, remedy="Write ? for the one that does not matter.")


def _check_time(expression: str, text: str, zone: ZoneInfo) -> None:
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=zone)
    except ValueError as error:
        raise ConfigError(
            "schedule", expression, limit="a day and time that there are", remedy="Correct it."
        ) from error
    if moment <= (now := datetime.now(zone)):
        limit = f"after {now:%Y-%m-%dT%H:%M:%S} {zone.key}"
        raise ConfigError("schedule", expression, limit=limit, remedy="Name a time to come.")
