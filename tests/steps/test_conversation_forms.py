"""The same conversations in every form: the same messages, token ids and labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from doubtful_conversations import SPOILT, sample_pairs

from steps.check_data import check_conversations
from steps.text.assistant_mask import Example, ExampleBuilder
from steps.text.conversation_forms import FORMS, FORMS_TEXT
from steps.text.conversation_warnings import find_doubts
from steps.text.conversations import OTHER_FORM, Conversations, read_conversations

Turns = list[tuple[str, str]]
# (question, answer) each; a blank line parts what is asked from what it is asked about, where a form has both.
PAIRS = [
    ("PUK kodu nədir?", "SIM kartın kilidini açan səkkiz rəqəmli koddur."),
    ("Ailə üçün paket? 👨‍👩‍👧", "Bəli 😀, «Ailə» paketi var."),
    ("İI ıi ƏəĞğŞşÇçÖöÜü", "Bakı'nın İçərişəhəri, ılıq külək."),
    (" Siyahı ver:\n- bir\n- iki\n", "\nBir:\n\n\n1. iki\n2. üç  "),
    ("Mətni qısalt.\n\nXəzər dənizi dünyanın ən böyük gölüdür.\n\nSuyu şordur.", "Xəzər ən böyük göldür."),
    ("<|eot_id|> nədir?", "<|eot_id|> növbənin sonudur."),
]
LONGER: list[Turns] = [
    [("system", "Qısa cavab ver."), ("user", "Salam"), ("assistant", "Salam!")],
    [("system", "Sən\n\nköməkçisən 😀"), ("user", "Bir"), ("assistant", "1"), ("user", "İki"), ("assistant", "2")],
    [("user", "Bir"), ("assistant", "1"), ("user", "İki"), ("assistant", "2"), ("user", "Üç"), ("assistant", "3")],
]


def cut_context(question: str) -> tuple[str, str]:
    """(instruction, context) of a question; no context where it has no blank line."""
    instruction, _, context = question.partition("\n\n")
    return instruction, context


def as_messages(turns: Turns) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def as_sharegpt(turns: Turns) -> dict[str, Any]:
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    return {"conversations": [{"from": names[role], "value": content} for role, content in turns]}


def as_fields(question: str, answer: str, context: str = "") -> Callable[[Turns], dict[str, Any]]:
    def write(turns: Turns) -> dict[str, Any]:
        (_, asked), (_, answered) = turns
        instruction, about = cut_context(asked) if context else (asked, "")
        return {question: instruction, answer: answered} | ({context: about} if context else {})

    return write


WRITERS: dict[str, Callable[[Turns], dict[str, Any]]] = {
    "messages": as_messages,
    "sharegpt": as_sharegpt,
    "dolly": as_fields("instruction", "response", "context"),
    "alpaca": as_fields("instruction", "output", "input"),
    "instruction/response": as_fields("instruction", "response"),
    "prompt/completion": as_fields("prompt", "completion"),
}


def read(folder: Path, *lines: dict[str, Any]) -> Conversations:
    path = folder / "talk.jsonl"
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return read_conversations(path)


def examples(found: Conversations, tokenizer) -> list[tuple[list[int], list[int]]]:
    builder = ExampleBuilder(tokenizer, 512)
    built = [builder.build(*pair) for pair in zip(found.conversations, found.places, strict=True)]
    assert all(isinstance(example, Example) for example in built)
    return [(example.input_ids, example.labels) for example in built]


def test_every_form_is_written_here():
    assert WRITERS.keys() == {form.name for form in FORMS}
    assert all(form.name in FORMS_TEXT for form in FORMS)


@pytest.mark.parametrize("form", [name for name in WRITERS if name != "messages"])
def test_the_same_conversations_give_the_same_tokens_and_labels_in_every_form(tmp_path, tiny_tokenizer, form):
    pairs: list[Turns] = [[("user", question), ("assistant", answer)] for question, answer in PAIRS]
    wanted = read(tmp_path, *map(as_messages, pairs))
    found = read(tmp_path, *map(WRITERS[form], pairs))
    assert (wanted.form, found.form) == ("messages", form)
    assert (found.unusable, len(found.conversations)) == ({}, len(PAIRS))
    assert examples(found, tiny_tokenizer) == examples(wanted, tiny_tokenizer)


def test_many_turns_and_system_messages_are_the_same_in_messages_and_sharegpt(tmp_path, tiny_tokenizer):
    wanted, found = (read(tmp_path, *map(write, LONGER)) for write in (as_messages, as_sharegpt))
    assert found.form == "sharegpt"
    assert found.conversations == wanted.conversations
    assert len(found.conversations) == len(LONGER)
    assert examples(found, tiny_tokenizer) == examples(wanted, tiny_tokenizer)


def test_sharegpt_takes_user_and_assistant_too(tmp_path):
    turns = [{"from": "user", "value": "Salam"}, {"from": "assistant", "value": "Buyurun"}]
    assert (
        read(tmp_path, {"conversations": turns}).conversations
        == read(tmp_path, as_messages([("user", "Salam"), ("assistant", "Buyurun")])).conversations
    )


@pytest.mark.parametrize("form", WRITERS)
def test_a_field_system_is_the_system_message(tmp_path, form):
    pair: Turns = [("user", "Salam"), ("assistant", "Buyurun")]
    line = WRITERS[form](pair)
    found = read(tmp_path, line | {"system": "Qısa s\u0327ərh"}, line | {"system": None}, line | {"system": " "}, line)
    with_system = as_messages([("system", "Qısa şərh"), *pair])["messages"]
    assert found.conversations == [with_system, *[as_messages(pair)["messages"]] * 3]


def test_two_system_messages_are_counted(tmp_path):
    line = as_sharegpt(LONGER[0]) | {"system": "Uzun cavab ver."}
    assert read(tmp_path, line).unusable["roles out of order"].first.endswith("system system user assistant")


def test_prompt_and_completion_may_be_lists_of_messages(tmp_path, tiny_tokenizer):
    turns = as_messages(LONGER[1])["messages"]
    found = read(tmp_path, {"prompt": turns[:-1], "completion": turns[-1:]})
    assert found.form == "prompt/completion"
    assert examples(found, tiny_tokenizer) == examples(read(tmp_path, {"messages": turns}), tiny_tokenizer)
    # One side may be plain text.
    assert read(tmp_path, {"prompt": "Salam", "completion": [{"role": "assistant", "content": "Buyurun"}]}).places


def test_a_context_stands_after_a_blank_line(tmp_path):
    def question(**fields: str | None) -> str:
        return read(tmp_path, {"response": "b", **fields}).conversations[0][0]["content"]

    assert question(instruction="Qısalt. \n", context="\n  x = 1\n\ny = 2\r\n") == "Qısalt.\n\n  x = 1\n\ny = 2"
    assert question(instruction="Qısalt.", context=" \n") == question(instruction="Qısalt.", context=None) == "Qısalt."


def test_a_line_of_a_form_that_holds_another_ones_fields_is_told_apart(tmp_path):
    """dolly has all fields of instruction/response: neither is read as the other, which would drop the context."""
    dolly = {"instruction": "Qısalt.", "context": "Xəzər.", "response": "X."}
    pair = {"instruction": "Salam", "response": "Buyurun"}
    for lines, form in (([dolly, pair], "dolly"), ([pair, dolly], "instruction/response")):
        found = read(tmp_path, *lines)
        assert (found.form, len(found.conversations)) == (form, 1)
        assert found.unusable[OTHER_FORM].first == (
            f"talk.jsonl line 2: fields {', '.join(lines[1])}, while the file's form is {form}"
        )


@pytest.mark.parametrize("form", WRITERS)
def test_what_looks_at_conversations_before_a_run_sees_the_same_in_every_form(tmp_path, form):
    """What is doubtful about them, and whether FineTune would refuse them."""
    for spoil in (lambda pairs: pairs, *SPOILT.values()):
        pairs: list[Turns] = [[("user", question), ("assistant", answer)] for question, answer in spoil(sample_pairs())]
        wanted = read(tmp_path, *map(as_messages, pairs))
        found = read(tmp_path, *map(WRITERS[form], pairs))
        assert find_doubts(found.conversations) == find_doubts(wanted.conversations)
        check_conversations(tmp_path / "talk.jsonl", 0.1)
