"""One readable line each for a failed execution, a closed gate and a version that waits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from automated_account import NAME, PIPELINE_ARN, TOPIC_ARN, AutomatedAccount, execution_event, package_event

from infra.handlers.events import EventError
from infra.handlers.notify import failed_conditions, handler

FIGURES = {"bits_per_byte.base": "2.5", "bits_per_byte.candidate": "1.5"}


def settings(**more: Any) -> str:
    return json.dumps({"topic_arn": TOPIC_ARN, "pipeline": NAME, "group": NAME, "tells_approved": False, **more})


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETTINGS", settings())


def gate_message(candidate: str, improvement: str, champion: str, present: str) -> str:
    """As pipeline/quality_gate.py puts it; a test of the template compares with what is deployed."""
    return (
        f"Quality gate closed. All of these must hold: bits_per_byte.candidate = {candidate}, limit <= 1.25;"
        f" bits_per_byte.improvement = {improvement}, limit >= 0.05; bits_per_byte.improvement_ci95[0] = 0.04,"
        f" limit > 0.0; champion.improvement_ci95[0] = {champion}, limit > 0.0 unless champion_present = false"
        f" (it is {present})."
    )


@pytest.mark.parametrize(
    ("message", "failed"),
    [
        (gate_message("1.3", "0.1", "0.1", "true"), ["bits_per_byte.candidate 1.3, limit <= 1.25"]),
        (gate_message("1.25", "0.05", "0.0", "false"), []),
        (gate_message("1.25", "0.05", "0.0", "true"), ["champion.improvement_ci95[0] 0.0, limit > 0.0"]),
        (gate_message("1e1", "-2.5e-3", "0.1", "true"),
         ["bits_per_byte.candidate 1e1, limit <= 1.25", "bits_per_byte.improvement -2.5e-3, limit >= 0.05"]),
        ("another gate's message", []),
    ],
)  # fmt: skip
def test_a_closed_gate_names_what_failed(message: str, failed: list[str]) -> None:
    assert failed_conditions(message) == failed


def test_a_closed_gate_is_told_in_one_line(account: AutomatedAccount) -> None:
    execution = account.add_execution(7, "Failed")
    message = gate_message("1.3", "0.1", "0.1", "true")
    account.steps[execution["PipelineExecutionArn"]] = [
        {"StepName": f"Step{number}", "StepStatus": "Succeeded"} for number in range(4)
    ] + [{"StepName": "GateClosed", "StepStatus": "Failed", "FailureReason": "The step failed",
          "Metadata": {"Fail": {"ErrorMessage": message}}}]  # fmt: skip
    handler(execution_event(execution), None)
    ((subject, text),) = account.told
    assert subject == f"{NAME} started00007: gate closed: bits_per_byte.candidate 1.3, limit <= 1.25"
    assert text.splitlines() == [f"{subject}.", message, "langadapt status started00007"]


def test_a_failed_step_is_told_with_its_reason(account: AutomatedAccount) -> None:
    execution = account.add_execution(7, "Failed")
    account.steps[execution["PipelineExecutionArn"]] = [
        {"StepName": "PrepareCorpus", "StepStatus": "Failed",
         "FailureReason": "AlgorithmError: error: corpus: empty;\nlimit 1 document."}
    ]  # fmt: skip
    handler(execution_event(execution), None)
    subject, text = account.told[0]
    line = f"{NAME} started00007 failed at PrepareCorpus: AlgorithmError: error: corpus: empty; limit 1 document"
    assert subject == line[:100]
    assert text == f"{line}.\nMend the cause, then: langadapt retry started00007"


def test_a_failure_before_the_first_step(account: AutomatedAccount) -> None:
    execution = account.add_execution(7, "Failed")
    execution["PipelineExecutionFailureReason"] = "the role cannot be assumed"
    handler(execution_event(execution), None)
    assert account.told[0][0] == f"{NAME} started00007 failed: the role cannot be assumed"


def test_a_version_that_waits_is_told_with_its_figures(account: AutomatedAccount) -> None:
    account.register(3, CustomerMetadataProperties=FIGURES)
    handler(package_event(3, "PendingManualApproval"), None)
    ((subject, text),) = account.told
    assert subject == f"{NAME} version 3 waits for approval: bits per byte 2.5 -> 1.5"
    assert "langadapt models approve 3 --remote" in text


def test_a_version_that_was_decided_meanwhile_waits_no_more(account: AutomatedAccount) -> None:
    account.register(3, "Rejected")
    handler(package_event(3, "PendingManualApproval"), None)
    assert account.told == []


@pytest.mark.parametrize(("tells_approved", "messages"), [(True, 1), (False, 0)])
def test_an_approval_is_told_where_nothing_deploys_it(
    account: AutomatedAccount, monkeypatch: pytest.MonkeyPatch, tells_approved: bool, messages: int
) -> None:
    monkeypatch.setenv("SETTINGS", settings(tells_approved=tells_approved))
    account.register(3, "Approved", CustomerMetadataProperties=FIGURES)
    handler(package_event(3, "Approved"), None)
    assert len(account.told) == messages


def test_an_execution_that_succeeded_is_not_told(account: AutomatedAccount) -> None:
    handler(execution_event(account.add_execution(7, "Succeeded")), None)
    assert account.told == []


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({}, "event detail-type: missing; limit a text"),
        ({"detail-type": ["a"]}, "event detail-type: ['a']; limit a text"),
        (execution_event({"PipelineExecutionArn": "", "PipelineExecutionStatus": "Failed"}),
         "event detail.pipelineExecutionArn: ''; limit a text"),
        ({"detail-type": "SageMaker Model Building Pipeline Execution Status Change",
          "detail": {"pipelineArn": f"{PIPELINE_ARN}-other"}},
         f"event detail.pipelineArn: {NAME}-other; limit {NAME}"),
        ({"detail-type": "SageMaker Model Package State Change", "detail": {"ModelPackageGroupName": "other"}},
         f"event detail.ModelPackageGroupName: other; limit {NAME}"),
    ],
)  # fmt: skip
def test_events_of_others_are_told(account: AutomatedAccount, event: Any, line: str) -> None:
    with pytest.raises(EventError) as raised:
        handler(event, None)
    assert str(raised.value) == line
    assert account.calls == []
