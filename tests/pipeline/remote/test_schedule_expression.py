"""What a schedule's expression may be, and what EventBridge Scheduler would refuse or never start."""

import pytest

from pipeline.remote.schedule_expression import check_expression, check_time_zone
from steps.contract import ConfigError


@pytest.mark.parametrize(
    "expression",
    [
        "cron(0 3 ? * SUN *)", "cron(0 3 ? * sun *)", "cron(*/15 8-18 * * ? *)", "cron(0,30 0 L * ? *)",
        "cron(0 0 15W * ? *)", "cron(0 0 LW JAN-MAR ? 2027-2030)", "cron(0 0 ? 1,6 6L *)", "cron(0 0 ? * MON#1 *)",
        "cron(5/10 22 ? * 2-6 2199)", "rate(1 hour)", "rate(7 days)", "at(2199-12-31T23:59:59)",
    ],
)  # fmt: skip
def test_what_scheduler_takes(expression: str) -> None:
    check_expression(expression, "Asia/Baku")


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        ("cron(60 3 ? * SUN *)", "60 in cron(60 3 ? * SUN *); limit minutes 0 to 59, *"),
        ("cron(0 24 ? * SUN *)", "limit hours 0 to 23"),
        ("cron(0 3 32 * ? *)", "limit day of month 1 to 31"),
        ("cron(0 3 32W * ? *)", "limit day of month 1 to 31"),
        ("cron(0 3 ? 13 SUN *)", "limit month 1 to 12 or JAN to DEC"),
        ("cron(0 3 ? * 0 *)", "limit day of week 1 to 7 or SUN to SAT"),
        ("cron(0 3 ? * FOO *)", "FOO in cron(0 3 ? * FOO *); limit day of week 1 to 7 or SUN to SAT"),
        ("cron(0 3 ? * MON#6 *)", "limit day of week"),
        ("cron(0 3 ? * SUN 1969)", "limit year 1970 to 2199"),
        ("cron(? 3 ? * SUN *)", "limit minutes"),
        ("cron(0/0 3 ? * SUN *)", "limit minutes"),
        ("cron(0,, 3 ? * SUN *)", "limit minutes"),
        ("cron(0 3 * * * *)", "limit ? as one of day of month and day of week"),
        ("cron(0 3 * * SUN *)", "limit ? as one of day of month and day of week"),
        ("cron(0 3 ? * ? *)", "limit ? as one of day of month and day of week"),
        ("cron(0 3 ? * SUN)", "limit cron(six fields)"),
        ("0 3 * * *", "limit cron(six fields)"),
        ("rate(0 days)", "limit cron(six fields)"),
        ("rate(2 weeks)", "limit cron(six fields)"),
        ("at(2027-02-30T03:00:00)", "limit a day and time that there are"),
        ("at(2020-01-31T03:00:00)", "limit after 20"),
        ("", "limit cron(six fields)"),
    ],
)
def test_what_scheduler_does_not_take(expression: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_expression(expression, "Asia/Baku")
    assert str(caught.value).startswith("schedule: ")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Baku", "Did you mean Asia/Baku?"),
        ("", "Name one of"),
        ("localtime", "Name one of"),
        ("Factory", "Name one of"),
    ],
)
def test_what_is_no_time_zone(name: str, remedy: str) -> None:
    for known in ("UTC", "Asia/Baku", "Europe/Istanbul"):
        check_time_zone(known)
    with pytest.raises(ConfigError) as caught:
        check_time_zone(name)
    assert remedy in str(caught.value)
