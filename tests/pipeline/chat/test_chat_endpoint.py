"""`langadapt chat --endpoint` against SageMaker's runtime on loopback, whose event streams botocore itself decodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest
from stub_endpoint import (
    Answer,
    StubEndpoint,
    json_lines,
    openai_stream,
    payload_part,
    stream_error,
    stub_endpoint,
)
from terminal import Terminal

from pipeline.__main__ import command_code
from pipeline.chat.endpoint import Endpoint
from pipeline.chat.session import Chat, Reply
from pipeline.chat.speakers import ReplySettings

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "pipeline", "chat"]
TEXTS = ["Sa", "lam, ", "dünya", " 👍🏽"]
WHOLE = "".join(TEXTS)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubEndpoint]:
    with stub_endpoint() as opened:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        for name, value in opened.environment.items():
            monkeypatch.setenv(name, value)
        yield opened


class Pieces:
    """Implements Painter: keeps what it is given."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def piece(self, speaker: int, text: str) -> None:
        self.texts.append(text)

    def end(self, speaker: int, *, failed: bool) -> None: ...


def opened(**settings) -> Chat:
    chat = Chat([Endpoint("talker", ReplySettings(**settings))])
    chat.open()
    return chat


def asked(chat: Chat, text: str = "Salam") -> tuple[list[str], Reply]:
    pieces = Pieces()
    (reply,) = chat.ask(text, pieces)
    return pieces.texts, reply


# --- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("form", [openai_stream, json_lines])
def test_a_reply_is_the_same_however_its_bytes_are_cut(stub, form, size):
    content = form(*TEXTS)
    stub.streams(*(content[start : start + size] for start in range(0, len(content), size)))
    pieces, reply = asked(opened())
    assert pieces == TEXTS
    assert (reply.text, reply.stopped, reply.error) == (WHOLE, "end_of_turn", None)


def test_what_ended_a_reply_and_how_many_tokens_it_has_are_told(stub):
    stub.streams(openai_stream(*TEXTS, finish="length", usage=True))
    stub.streams(json_lines(*TEXTS, finish="length"))
    stub.streams(b'{"choices": [{"message": {"role": "assistant", "content": "Salam"}, "finish_reason": "stop"}]}')
    found = [asked(opened())[1] for _ in range(3)]
    assert [reply.stopped for reply in found] == ["max_new_tokens", "max_new_tokens", "end_of_turn"]
    assert [reply.ended.tokens for reply in found if reply.ended] == [4, 4, None]
    assert found[0].ended.prompt_tokens == 11
    # A server that does not stream.
    assert found[2].text == "Salam"


def test_requests_are_those_of_the_service_model_and_carry_the_turns(stub):
    stub.streams(openai_stream("Salam!"))
    chat = opened(max_new_tokens=7, temperature=0.5, top_p=0.9, seed=3)
    chat.system = "Qısa."
    asked(chat, "Bir")
    asked(chat, "İki <|eot_id|>")
    chat.reset()
    asked(chat, "Üç")
    first, second, third = stub.requests
    operation = (
        botocore.session.get_session()
        .get_service_model("sagemaker-runtime")
        .operation_model("InvokeEndpointWithResponseStream")
    )
    path = operation.http["requestUri"].format(EndpointName="talker")
    assert {(request.method, request.path) for request in stub.requests} == {(operation.http["method"], path)}
    assert first.headers["Content-Type"] == "application/json"
    assert "/eu-central-1/sagemaker/aws4_request" in first.headers["Authorization"]
    system, question = {"role": "system", "content": "Qısa."}, {"role": "user", "content": "Bir"}
    assert first.body == {
        "messages": [system, question], "stream": True, "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "seed": 3
    }  # fmt: skip
    answer = {"role": "assistant", "content": "Salam!"}
    typed = {"role": "user", "content": "İki <|eot_id|>"}
    assert second.body["messages"] == [system, question, answer, typed]
    assert third.body["messages"] == [system, {"role": "user", "content": "Üç"}]


# --- errors -----------------------------------------------------------------------------------------------------------

REFUSALS = {
    "expired": (
        Answer(status=403, error="ExpiredTokenException", members={"message": "The security token is expired"}),
        "endpoint talker: ExpiredTokenException: The security token is expired. Sign in again (`aws sso login`",
    ),
    "not found": (
        Answer(status=400, error="ValidationError", members={"message": "Endpoint talker of account 1 not found."}),
        "endpoint talker: Endpoint talker of account 1 not found. Look at its name, the account and --region",
    ),
    "model": (
        Answer(
            status=424, error="ModelError",
            members={"Message": "Received client error (400)", "OriginalStatusCode": 400,
                     "OriginalMessage": '{"message": "maximum context length is 4096"}', "LogStreamArn": "arn"},
        ),
        'endpoint talker: ModelError: {"message": "maximum context length is 4096"}. Look at the endpoint\'s log',
    ),
    "throttled": (
        Answer(status=400, error="ThrottlingException", members={"message": "Rate exceeded"}),
        "endpoint talker: ThrottlingException: Rate exceeded. Ask again in a moment.",
    ),
    "denied": (
        Answer(status=403, error="AccessDeniedException", members={"Message": "not authorized"}),
        "endpoint talker: AccessDeniedException: not authorized. Ask for the right to sagemaker:InvokeEndpoint",
    ),
    "broken stream": (
        Answer([payload_part(openai_stream("Sa")[:90]), stream_error("ModelStreamError", Message="worker died")]),
        "endpoint talker: ModelStreamError: worker died. Look at the endpoint's log",
    ),
    "cut": (
        Answer([payload_part(b'data: {"choices": [{"delta": {"content": "Sa"}}]}\n\n')]),
        "endpoint talker: its reply broke off before its end. Ask again.",
    ),
    "error in a line": (
        Answer([payload_part(b'data: {"error": {"message": "no such model", "code": 404}}\n\n')]),
        "endpoint talker: no such model. Look at the endpoint's log",
    ),
    "no JSON": (
        Answer([payload_part(b"data: <html>\n\n")]),
        "endpoint talker: a line that is no JSON object: <html>. Look at the endpoint's log",
    ),
    "bad checksum": (
        Answer([payload_part(b"data: [DONE]\n\n")[:-1] + b"\0"]),
        "endpoint talker: an answer that is none of SageMaker's (Checksum mismatch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_one_line_and_the_chat_goes_on(stub, name):
    answer, line = REFUSALS[name]
    # The service's own errors are tried again where that may help.
    stub.answers += [answer] * (3 if name == "throttled" else 1)
    stub.streams(openai_stream("Salam!"))
    chat = opened()
    reply = asked(chat, "Bir")[1]
    assert reply.error is not None
    assert str(reply.error).startswith(line)
    assert "\n" not in str(reply.error)
    assert asked(chat, "İki")[1].text == "Salam!"
    # The question without a whole reply is forgotten.
    assert [message["content"] for message in stub.requests[-1].body["messages"]] == ["İki"]


def langadapt(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], cwd=ROOT, input=typed, capture_output=True, text=True, timeout=60)


def test_one_question_and_nothing_else_on_standard_output(stub):
    stub.streams(openai_stream(*TEXTS))
    done = langadapt("--endpoint=talker", "--prompt=-", typed="Bir\nİki\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{WHOLE}\n", "")
    assert stub.requests[0].body["messages"] == [{"role": "user", "content": "Bir\nİki"}]
    stub.answers[:] = [REFUSALS["not found"][0]]
    refused = langadapt("--endpoint=talker", "--prompt=Salam", "--json")
    assert (refused.returncode, refused.stderr) == (1, "")
    assert json.loads(refused.stdout)["error"]["subject"] == "endpoint talker"


def test_a_pipe_is_a_message_a_line_without_prompts(stub):
    stub.streams(openai_stream("Salam!"))
    typed = "Bir\\\nİki\n\n/reset\n/system  Qısa.\nÜç\n"
    done = langadapt("--endpoint=talker", typed=typed)
    assert (done.returncode, done.stdout) == (0, "Salam!\nSalam!\n")
    assert "endpoint in eu-central-1" in done.stderr
    assert [request.body["messages"] for request in stub.requests] == [
        [{"role": "user", "content": "Bir\nİki"}],
        [{"role": "system", "content": "Qısa."}, {"role": "user", "content": "Üç"}],
    ]
    stub.answers.insert(0, REFUSALS["not found"][0])
    failed = langadapt("--endpoint=talker", typed="Bir\nİki\n/exit\nÜç\n")
    assert (failed.returncode, failed.stdout) == (1, "Salam!\n")
    assert failed.stderr.count("error: endpoint talker: Endpoint talker of account 1 not found.") == 1


WITHOUT = {
    "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY": (
        "error: AWS credentials: none found. Set them: `aws configure`, AWS_PROFILE, or AWS_ACCESS_KEY_ID and"
    ),
    "AWS_SECRET_ACCESS_KEY": "error: AWS credentials: Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY",
    "AWS_REGION AWS_DEFAULT_REGION": "error: --region: not given, and no default is set. Give --region, or set AWS_",
}


@pytest.mark.parametrize("names", WITHOUT)
def test_missing_credentials_and_regions_are_told_before_anything_is_asked(stub, names, monkeypatch, capsys):
    for name in names.split():
        monkeypatch.delenv(name)
    assert command_code(["chat", "--endpoint=talker"], as_json=False) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(WITHOUT[names])
    assert told.err.count("\n") == 1
    assert stub.requests == []


MISUSED = {
    "": "error: MODEL_DIR, --endpoint: neither is given; limit one of them. Name a model folder or an endpoint.",
    "runs --endpoint=e": "error: MODEL_DIR, --endpoint: both are given; limit one of them.",
    "none": "error: none: no such folder. Name a model folder, or the folder of a run such as runs/laptop.",
    "README.md": "error: README.md: a file, not a folder. Name",
    "tests": "error: tests: no model: neither config.json nor execution.json. Name",
    "none --region=x": "error: --region: without --endpoint. Leave it out",
    "--endpoint=e --json": "error: --json: ",
    "--endpoint=e --prompt=": "error: --prompt: empty. Give a question.",
    "--endpoint=e --temperature=-1": "error: Invalid value for '--temperature': ",
    "--endpoint=e --top-p=0": "error: Invalid value for '--top-p': ",
    "--endpoint=e_e! --prompt=x": "error: --endpoint: e_e!; limit up to 63 letters, digits and hyphens. Name it",
}


@pytest.mark.parametrize("words", MISUSED)
def test_misuse_is_one_line(stub, words, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    as_json = "--json" in words
    assert command_code(["chat", *words.split()], as_json=as_json) == 1
    told = capsys.readouterr()
    line = f"error: {json.loads(told.out)['error']['line']}\n" if as_json else told.err
    assert line.startswith(MISUSED[words])
    assert line.count("\n") == 1


# --- terminal ---------------------------------------------------------------------------------------------------------


def started(stub: StubEndpoint) -> Terminal:
    return Terminal([*COMMAND, "--endpoint=talker"], 100, 40, typed=True, NO_COLOR="1", **stub.environment)


def keys(terminal: Terminal) -> list:
    """How the terminal treats what is typed: echo, whole lines, ctrl-C."""
    return termios.tcgetattr(terminal.master)[:6]


def ended(terminal: Terminal) -> int:
    code, _ = terminal.end()
    assert "Traceback" not in terminal.received
    return code


def test_ctrl_c_ends_a_reply_that_hangs_and_the_chat_goes_on(stub):
    hold = threading.Event()
    stub.answers.append(Answer([payload_part(b'data: {"choices": [{"delta": {"content": "Sala"}}]}\n\n')], hold=hold))
    stub.streams(openai_stream("Yenə salam."))
    terminal = started(stub)
    terminal.wait_for_prompt("you>")
    terminal.type("Bir\n")
    terminal.wait_for("model> Sala")
    terminal.type("\x03")
    terminal.wait_for("(stopped)")
    terminal.wait_for_prompt("you>")
    # What was typed is discarded by ctrl-C; nothing more than that.
    terminal.type("yanlış")
    terminal.wait_for_prompt("you> yanlış")
    terminal.type("\x03")
    terminal.wait_for_prompt("you>")
    terminal.type("İki\n")
    terminal.wait_for("model> Yenə salam.")
    assert stub.requests[-1].body["messages"] == [
        {"role": "user", "content": "Bir"}, {"role": "assistant", "content": "Sala"}, {"role": "user", "content": "İki"}
    ]  # fmt: skip
    terminal.type("/exit\n")
    assert ended(terminal) == 0
    hold.set()


def test_a_terminal_is_left_as_it_was_and_the_exit_code_tells_why(stub):
    """ctrl-C at the prompt, ctrl-D, SIGTERM, and a terminal that is closed."""
    ends = (("\x03", 130), ("\x04", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 143))
    terminals = [started(stub) for _ in ends]
    fresh, copy = os.openpty()
    os.close(copy)
    for terminal, (end, code) in zip(terminals, ends, strict=True):
        terminal.wait_for_prompt("you>")
        end_by(terminal, end)
        assert keys(terminal) == termios.tcgetattr(fresh)[:6], end
        assert ended(terminal) == code, end
    os.close(fresh)


def end_by(terminal: Terminal, end: str | signal.Signals) -> None:
    """At once: the moment at which readline begins to wait is when Python alone would overlook a signal."""
    if isinstance(end, str):
        terminal.type(end)
    else:
        terminal.process.send_signal(end)
    deadline = time.monotonic() + 20
    while terminal.process.poll() is None:
        assert time.monotonic() < deadline, f"{end!r} did not end it"
        terminal.take(0.02)


def test_a_reader_who_goes_leaves_no_traceback(stub):
    stub.streams(*[openai_stream("Salam! " * 5_000)] * 1)
    line = f"{sys.executable} -m pipeline chat --endpoint talker --prompt Salam | head -c 3"
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Sal", "")
