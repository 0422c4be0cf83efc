"""Days without a success, as a line that a metric filter reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from automated_account import BEGAN, NAME, AutomatedAccount

from infra.handlers.measure_silence import SageMakerExecutions, client, days_without_success, handler


def days(after: timedelta) -> float:
    return days_without_success(NAME, SageMakerExecutions(client("sagemaker")), BEGAN + after)


def test_days_since_the_newest_success(account: AutomatedAccount) -> None:
    for number, status in enumerate(["Succeeded", "Succeeded", "Failed", "Stopped", "Executing", "Failed"]):
        account.clock = BEGAN + timedelta(days=number)
        account.add_execution(number, status)
    assert days(timedelta(days=10)) == 9.0


def test_without_a_success_the_pipeline_itself_counts(account: AutomatedAccount) -> None:
    account.add_execution(0, "Failed")
    assert days(timedelta(hours=36)) == 1.5


def test_the_line_is_json(account: AutomatedAccount, monkeypatch: pytest.MonkeyPatch,
                          capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("SETTINGS", json.dumps({"pipeline": NAME}))
    handler({}, None)
    told = json.loads(capsys.readouterr().out)
    assert told["pipeline"] == NAME
    assert told["days_without_success"] == pytest.approx((datetime.now(UTC) - BEGAN).total_seconds() / 86_400, abs=0.1)
