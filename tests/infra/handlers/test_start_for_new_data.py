"""New objects start the pipeline once, however many events they make, and never beside another execution."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from answered_calls import RefusedError
from automated_account import (
    BUCKET,
    NAME,
    PREFIX,
    AutomatedAccount,
    execution_event,
    object_event,
)

from infra.handlers.events import EventError
from infra.handlers.start_for_new_data import (
    S3Times,
    SageMakerExecutions,
    Settings,
    client,
    handler,
    start_for_new_data,
)
from pipeline.resolve_inputs import S3Store, input_digest

SETTINGS: dict[str, Any] = {
    "pipeline": NAME, "bucket": BUCKET, "prefix": PREFIX, "quiet_seconds": 300,
    "parameters": {"BaseModelUri": f"s3://{BUCKET}/langadapt/inputs/base/"},
}  # fmt: skip
CORPUS_URI = f"s3://{BUCKET}/{PREFIX}"
START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class Folder:
    """The watched folder, with the queue's delay between an object and its event."""

    def __init__(self, account: AutomatedAccount) -> None:
        self.account, self.now = account, START
        self.waiting: list[tuple[datetime, dict[str, Any]]] = []

    def put(self, name: str, content: bytes = b"text") -> None:
        self.account.objects[f"{PREFIX}{name}"] = (content, self.now)
        self.send(object_event(f"{PREFIX}{name}"))

    def send(self, event: dict[str, Any]) -> None:
        self.waiting.append((self.now + timedelta(seconds=SETTINGS["quiet_seconds"]), event))

    def end(self, execution: dict[str, Any], status: str) -> None:
        """An execution ends; a rule passes on all ends but that of a stopped one."""
        execution["PipelineExecutionStatus"] = status
        if status != "Stopped":
            self.send(execution_event(execution))

    def pass_time(self, seconds: int) -> list[str]:
        """What the function says of what becomes due meanwhile, in batches of ten as the queue gives them."""
        until, lines = self.now + timedelta(seconds=seconds), []
        while due := sorted((entry for entry in self.waiting if entry[0] <= until), key=lambda entry: entry[0])[:10]:
            self.now = max(at for at, _ in due)
            self.waiting = [entry for entry in self.waiting if entry not in due]
            lines.append(self.ask(event for _, event in due))
        self.now = until
        return lines

    def ask(self, events: Any) -> str:
        s3 = client("s3")
        executions = SageMakerExecutions(client("sagemaker"))
        return start_for_new_data(events, S3Store(s3), S3Times(s3), executions, Settings(**SETTINGS), self.now)

    @property
    def started(self) -> list[dict[str, Any]]:
        return self.account.sent("StartPipelineExecution")


@pytest.fixture
def folder(account: AutomatedAccount) -> Folder:
    return Folder(account)


def test_fifty_objects_in_a_minute_start_one_execution(account: AutomatedAccount, folder: Folder) -> None:
    for number in range(50):
        folder.put(f"part-{number:02d}.jsonl", f"{number}".encode())
        folder.pass_time(1)
    lines = folder.pass_time(3_600)
    (started,) = folder.started
    assert sum(line.startswith("started arn:") for line in lines) == 1
    assert started["PipelineParameters"] == [
        {"Name": "BaseModelUri", "Value": f"s3://{BUCKET}/langadapt/inputs/base/"},
        {"Name": "CorpusUri", "Value": CORPUS_URI},
    ]
    digest = input_digest("corpus", CORPUS_URI, S3Store(client("s3")).files(CORPUS_URI))
    assert started["PipelineExecutionDisplayName"] == f"new-data-{digest[:32]}"
    assert len(started["ClientRequestToken"]) == 64


def test_a_slow_upload_is_started_once_at_its_end(account: AutomatedAccount, folder: Folder) -> None:
    for number in range(30):
        folder.put(f"part-{number}.jsonl")
        folder.pass_time(120)
        assert folder.started == []
    folder.pass_time(600)
    assert len(folder.started) == 1


def test_events_that_come_twice_and_late_start_nothing_more(account: AutomatedAccount, folder: Folder) -> None:
    folder.put("a.jsonl")
    folder.pass_time(600)
    folder.end(account.executions[0], "Failed")
    for _ in range(10):
        folder.send(object_event(f"{PREFIX}a.jsonl"))
    folder.pass_time(3_600)
    assert len(folder.started) == 1


def test_data_that_comes_while_an_execution_runs_waits_for_its_end(account: AutomatedAccount, folder: Folder) -> None:
    running = account.add_execution(0, "Executing")
    folder.put("a.jsonl")
    assert "is Executing: its end asks again" in folder.pass_time(86_400)[0]
    folder.end(running, "Succeeded")
    folder.pass_time(600)
    assert len(folder.started) == 1
    folder.put("b.jsonl")
    folder.pass_time(600)
    assert len(folder.started) == 1
    folder.end(account.executions[0], "Succeeded")
    folder.pass_time(600)
    assert len({body["ClientRequestToken"] for body in folder.started}) == 2


def test_what_somebody_has_run_by_hand_is_not_run_again(account: AutomatedAccount, folder: Folder) -> None:
    folder.put("a.jsonl")
    digest = input_digest("corpus", CORPUS_URI, S3Store(client("s3")).files(CORPUS_URI))
    by_hand = account.add_execution(0, "Executing", corpus_digest=digest)
    folder.pass_time(600)
    folder.end(by_hand, "Succeeded")
    assert "has read this content" in folder.pass_time(600)[0]
    assert folder.started == []


def test_what_was_stopped_is_not_started_again(account: AutomatedAccount, folder: Folder) -> None:
    folder.put("a.jsonl")
    folder.pass_time(600)
    folder.end(account.executions[0], "Stopped")
    account.add_execution(1, "Failed")
    folder.send(execution_event(account.executions[0]))
    assert "was started for this content" in folder.pass_time(600)[0]
    assert len(folder.started) == 1


def test_a_start_whose_answer_is_lost_is_asked_for_with_the_same_token(
    account: AutomatedAccount, folder: Folder
) -> None:
    folder.put("a.jsonl")
    account.faults["StartPipelineExecution"] = [RefusedError("InternalFailure", "An internal error occurred", 500)]
    with pytest.raises(Exception, match="internal error"):
        folder.pass_time(600)
    folder.send(object_event(f"{PREFIX}a.jsonl"))
    folder.pass_time(600)
    one, other = folder.started
    assert one == other


def test_an_emptied_folder_starts_nothing(folder: Folder) -> None:
    folder.send(object_event(f"{PREFIX}gone.jsonl"))
    assert folder.pass_time(600) == [f"nothing lies at {CORPUS_URI}"]


def test_the_handler_reads_the_queue(account: AutomatedAccount, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("SETTINGS", json.dumps(SETTINGS))
    account.objects[f"{PREFIX}a.jsonl"] = (b"text", datetime(2020, 1, 1, tzinfo=UTC))
    records = [{"messageId": f"m-{n}", "body": json.dumps(object_event(f"{PREFIX}a.jsonl"))} for n in range(10)]
    handler({"Records": records}, None)
    assert len(account.sent("StartPipelineExecution")) == 1
    assert json.loads(capsys.readouterr().out)["events"] == 10


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (object_event("langadapt/runs/x"), f"event detail.object.key: langadapt/runs/x; limit below {PREFIX}"),
        (object_event(f"{PREFIX}a", bucket="other"), f"event detail.bucket.name: other; limit {BUCKET}"),
        ({"detail-type": "Object Created", "detail": {"bucket": {"name": BUCKET}}},
         "event detail.object.key: missing; limit a text"),
        ({"detail-type": "Object Deleted"}, "event detail-type: Object Deleted; limit Object Created or SageMaker"),
        (execution_event({"PipelineExecutionArn": "arn", "PipelineExecutionStatus": "Stopped"}),
         "event detail.currentPipelineExecutionStatus: Stopped; limit Succeeded or Failed"),
    ],
)  # fmt: skip
def test_events_of_others_are_told(account: AutomatedAccount, folder: Folder, event: Any, line: str) -> None:
    with pytest.raises(EventError) as raised:
        folder.ask([event])
    assert str(raised.value).startswith(line)
    assert account.calls == []
