"""A spent budget stops what runs, once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from account_stand_in import REGION
from answered_calls import ACCOUNT
from automated_account import NAME, TOPIC_ARN, AutomatedAccount

from infra.handlers.events import EventError
from infra.handlers.stop_over_budget import handler

BUDGET_TOPIC_ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:langadapt-dev-budget"
TEXT = f"AWS Budget Notification\nAWS Account {ACCOUNT}\nBudget Name: {NAME}\nBudgeted Amount: $100.00"


def message(text: str = TEXT, topic: str = BUDGET_TOPIC_ARN) -> dict[str, Any]:
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"TopicArn": topic, "Message": text, "MessageId": "m-1"}}]}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"topic_arn": TOPIC_ARN, "pipeline": NAME, "budget": NAME, "budget_topic_arn": BUDGET_TOPIC_ARN}
    monkeypatch.setenv("SETTINGS", json.dumps(settings))


def test_what_runs_is_stopped_and_told_once(account: AutomatedAccount) -> None:
    for number, status in enumerate(["Succeeded", "Executing", "Failed", "Stopping", "Executing"]):
        account.add_execution(number, status)
    for _ in range(2):
        handler(message(), None)
    stopped = account.sent("StopPipelineExecution")
    assert [body["PipelineExecutionArn"][-12:] for body in stopped] == ["started00004", "started00001"]
    assert len({body["ClientRequestToken"] for body in stopped}) == 2
    assert [subject for subject, _ in account.told] == [
        f"Budget {NAME} is spent: 2 execution(s) of {NAME} stopped"
    ]  # fmt: skip


def test_nothing_is_told_where_nothing_runs(account: AutomatedAccount) -> None:
    account.add_execution(0, "Succeeded")
    handler(message(), None)
    assert account.told == []


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({}, "event Records: None; limit messages of a topic"),
        ({"Records": [{}]}, "event Sns.TopicArn: missing; limit a text"),
        (message(topic="arn:other"), f"event Sns.TopicArn: arn:other; limit {BUDGET_TOPIC_ARN}"),
        (message(text="Budget Name: of-others"), f"event Sns.Message: another budget; limit {NAME}"),
        (message(text=""), "event Sns.Message: ''; limit a text"),
    ],
)  # fmt: skip
def test_messages_of_others_stop_nothing(account: AutomatedAccount, event: Any, line: str) -> None:
    account.add_execution(0, "Executing")
    with pytest.raises(EventError) as raised:
        handler(event, None)
    assert str(raised.value) == line
    assert account.calls == []
