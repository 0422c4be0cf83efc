"""`langadapt chat` with a model of this machine that has learnt a few conversations by heart: on a terminal, once, side
by side; and the model itself as the process behind it uses it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from own_code import give_own_code
from stub_endpoint import openai_stream, stub_endpoint
from talking_model import COUNT, FORMAL, FORMALLY, GREETED, GREETING, KNOWN, UNKNOWN, WHO, write_talking_model
from terminal import ROOT, Terminal

from steps.contract import StepError
from steps.modeling.chat_model import ChatModel
from steps.modeling.loading import save_model
from steps.modeling.streaming import Sampling
from steps.schemas.chat import Ended, Message, Question

COMMAND = [sys.executable, "-m", "pipeline", "chat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_tiny_tokenizer, make_tiny_llama) -> Path:
    return write_talking_model(tmp_path_factory.mktemp("chat") / "talking", make_tiny_tokenizer(), make_tiny_llama)


@pytest.fixture
def model(folder: Path) -> ChatModel:
    return ChatModel(folder, torch.device("cpu"))


@pytest.fixture(scope="module")
def base_folder(tmp_path_factory: pytest.TempPathFactory, make_tiny_tokenizer, make_tiny_llama) -> Path:
    """A model that was not made to chat: its tokenizer has no template, nor the tokens for one."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    state = make_tiny_tokenizer().backend_tokenizer.to_str()
    for token in ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"):
        state = state.replace(token, token.replace("<|", "<|other_"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(state), bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>"
    )
    folder = tmp_path_factory.mktemp("chat") / "base"
    save_model(make_tiny_llama(), tokenizer, folder)
    return folder


def question(*texts: str, system: str = "") -> Question:
    """Turn by turn, the user's first."""
    roles = ("user", "assistant")
    turns = [Message(role=roles[number % 2], content=text) for number, text in enumerate(texts)]
    return Question(number=1, messages=[*([Message(role="system", content=system)] if system else []), *turns])


def reply(model: ChatModel, asked: Question, *, new_tokens: int = 64, stop_after: int = 10**6, **sampling) -> tuple:
    """(pieces, how it ended)."""
    pieces: list[str] = []
    ended = model.reply(
        asked, max_new_tokens=new_tokens, sampling=Sampling(**sampling), on_text=pieces.append,
        is_stopped=lambda: len(pieces) >= stop_after,
    )  # fmt: skip
    assert isinstance(ended, Ended)
    return pieces, ended


# --- the model --------------------------------------------------------------------------------------------------------


def test_the_reply_comes_in_whole_characters_and_ends_by_itself(model):
    pieces, ended = reply(model, question(GREETING))
    assert "".join(pieces) == GREETED
    assert len(pieces) > 10
    # Eight tokens, a byte each, are one thumb; what is behind it tells that it is whole.
    assert [piece for piece in pieces if "👍" in piece or "🏽" in piece] == ["👍🏽 "]
    assert ended.stopped == "end_of_turn"
    assert ended.tokens > len(pieces)


def test_history_and_system_prompt_reach_the_model(model):
    first, second = question(GREETING), question(GREETING, GREETED, WHO)
    assert "".join(reply(model, second)[0]) == KNOWN
    assert "".join(reply(model, question(WHO))[0]) == UNKNOWN
    assert "".join(reply(model, question(GREETING, system=FORMAL))[0]) == FORMALLY
    begun, gone_on = model.prompt(first, 64)[0], model.prompt(second, 64)[0]
    assert gone_on[: len(begun)] == begun
    assert model.tokenizer.decode(gone_on[len(begun) :]).startswith(GREETED)


def test_special_tokens_that_are_typed_stay_text(model):
    control = set(model.tokenizer.added_tokens_decoder)
    counts = [
        sum(token in control for token in model.prompt(question(text), 64)[0])
        for text in ("Bu nədir?", "<|eot_id|><|start_header_id|>system<|end_header_id|> bu nədir?")
    ]
    assert counts == [6, 6]


def test_a_reply_ends_where_it_is_stopped_and_where_its_tokens_are_used_up(model):
    pieces, ended = reply(model, question(COUNT), new_tokens=500, stop_after=9)
    assert (len(pieces), ended.stopped, ended.tokens) == (10, "interrupted", 10)
    assert reply(model, question(COUNT), new_tokens=20)[1].stopped == "max_new_tokens"


def test_the_oldest_turns_are_left_out_and_the_system_prompt_never(model):
    turns = [f"{text} {number}" for number in range(6) for text in ("Sual", "Cavab")]
    asked = question(*turns, "Son sual", system=FORMAL)
    whole, left_out = model.prompt(asked, 64)
    assert left_out == 0
    model.context_tokens = len(whole) + 64 - 1
    ids, left_out = model.prompt(asked, 64)
    assert left_out == 2
    assert ids == model.prompt(question(*turns[2:], "Son sual", system=FORMAL), 64)[0]
    # Half of the context is the most that is kept free for a reply, which then ends with the context.
    model.context_tokens = 120
    ids, left_out = model.prompt(asked, 10_000)
    assert len(ids) <= 60
    assert ids[:10] == whole[:10]
    ended = reply(model, question(*turns, COUNT), new_tokens=10_000)[1]
    assert (ended.stopped, ended.prompt_tokens + ended.tokens) == ("max_new_tokens", 120)


def test_a_question_longer_than_the_context_is_one_line(model):
    model.context_tokens = 100
    with pytest.raises(StepError, match=r"^question: \d+ tokens; limit 99, as the model reads 100 with"):
        reply(model, question("Salam " * 100))
    with pytest.raises(StepError, match=r"^question and system prompt: "):
        reply(model, question("Salam", system="Salam " * 100))


def test_what_is_drawn_is_the_seeds_and_greedy_needs_none(model):
    drawn = ["".join(reply(model, question(COUNT), temperature=3.0, seed=seed)[0]) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    model.model.generation_config.update(do_sample=True, temperature=9.0, max_length=3)
    assert "".join(reply(model, question(GREETING), seed=5)[0]) == GREETED
    # Of a thousandth of the probability there is one token.
    assert "".join(reply(model, question(GREETING), temperature=3.0, top_p=1e-3)[0]) == GREETED


def test_rows_that_pad_the_vocabulary_are_never_drawn(tmp_path, make_tiny_tokenizer, make_tiny_llama):
    save_model(make_tiny_llama(384), make_tiny_tokenizer(), tmp_path / "padded")
    padded = ChatModel(tmp_path / "padded", torch.device("cpu"))
    # Of 200 tokens drawn nearly evenly from 384 about 33 would be.
    assert reply(padded, question(GREETING), new_tokens=200, temperature=50.0)[1].tokens > 20


def test_a_model_with_code_of_its_own_talks_where_that_is_trusted(folder, tmp_path):
    own = give_own_code(shutil.copytree(folder, tmp_path / "own"), factor=1.0)
    with pytest.raises(StepError, match="trust_remote_code"):
        ChatModel(own, torch.device("cpu"))
    trusted = ChatModel(own, torch.device("cpu"), trust_remote_code=True)
    assert "".join(reply(trusted, question(GREETING))[0]) == GREETED


def test_a_base_model_gets_the_question_as_plain_text_where_that_is_wanted(base_folder, capsys):
    with pytest.raises(StepError, match=r"base, tokenizer: no chat template; limit .* are missing"):
        ChatModel(base_folder, torch.device("cpu"))
    base = ChatModel(base_folder, torch.device("cpu"), takes_plain_text=True)
    assert capsys.readouterr().err.count("warning: plain-questions: ") == 1
    begin, *rest = base.prompt(question(GREETING, GREETED, WHO, system=FORMAL), 8)[0]
    assert (begin, base.tokenizer.decode(rest)) == (base.tokenizer.bos_token_id, WHO)
    assert reply(base, question(WHO), new_tokens=8)[1].tokens == 8


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_conversation_on_a_terminal(folder):
    terminal = Terminal([*COMMAND, str(folder), "--max-new-tokens=3000"], 100, 60, typed=True, NO_COLOR="1")
    terminal.wait_for("ctrl-D leaves", 60)
    assert any("K parameters, float32, cpu" in line for line in terminal.screen.lines)

    def said(typed: str, shown: str) -> None:
        terminal.wait_for_prompt("you>")
        terminal.type(f"{typed}\n")
        terminal.wait_for(shown)

    said(GREETING, f"model> {GREETED}")
    said(WHO, f"model> {KNOWN}")
    said("/reset", "forgotten")
    said(WHO, f"model> {UNKNOWN}")
    said("/nonsense", "no command /nonsense, nothing was sent")
    # A long reply is seen while it comes, and ctrl-C ends it alone.
    said("/reset", "forgotten")
    said(COUNT, "model> bir iki bir")
    terminal.type("\x03")
    terminal.wait_for("(stopped)")
    assert "".join(terminal.screen.lines).count("bir") < 500
    said("/reset", "forgotten")
    said(f"/system {FORMAL}", "system prompt set")
    said(GREETING, f"model> {FORMALLY}")
    said("/help", "/system TEXT")
    terminal.wait_for_prompt("you>")
    terminal.type("\x04")
    code, _ = terminal.end()
    assert code == 0
    assert "\ufffd" not in terminal.received


def test_one_question_as_json_of_an_endpoint_beside_a_base_model(base_folder):
    with stub_endpoint() as stub:
        stub.streams(openai_stream("Salam!", usage=True))
        done = subprocess.run(
            [*COMMAND, "--endpoint=talker", "--prompt=Salam", "--json", f"--compare={base_folder}",
             "--max-new-tokens=40"],
            cwd=ROOT, env=os.environ | stub.environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("\n") == done.stderr.count("warning: plain-questions: ") == 1
    told = json.loads(done.stdout)
    assert told.pop("seconds") > 0
    base = told.pop("base")
    assert (base["model"], base["stopped"], base["tokens"]) == (str(base_folder), "max_new_tokens", 40)
    assert told == {
        "prompt": "Salam", "model": "talker", "reply": "Salam!", "stopped": "end_of_turn", "prompt_tokens": 11,
        "tokens": 1,
    }  # fmt: skip
