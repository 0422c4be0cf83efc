"""Which tokens are trained, token by token, and what is dropped or refused."""

from __future__ import annotations

import pytest

from steps.contract import StepError
from steps.text.assistant_mask import ExampleBuilder, marked_runs
from steps.text.chat_template import CHAT_TEMPLATE

CONVERSATION = [
    {"role": "user", "content": "Balansı necə yoxlayım?"},
    {"role": "assistant", "content": " Tətbiqdə 😀\n"},
    {"role": "user", "content": "Sağ ol"},
    {"role": "assistant", "content": "Dəyməz"},
]


def test_labels_are_the_assistants_tokens_and_ends_of_turn_one_by_one(tiny_tokenizer):
    def tokens(text: str) -> list[int]:
        return tiny_tokenizer(text, add_special_tokens=False)["input_ids"]

    eot = tiny_tokenizer.convert_tokens_to_ids("<|eot_id|>")
    bos, start, end = (
        tiny_tokenizer.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("begin_of_text", "start_header_id", "end_header_id")
    )
    parts = [
        ([bos], False),
        ([start, *tokens("user"), end, *tokens("\n\n"), *tokens("Balansı necə yoxlayım?"), eot], False),
        ([start, *tokens("assistant"), end, *tokens("\n\n")], False),
        ([*tokens("Tətbiqdə 😀"), eot], True),
        ([start, *tokens("user"), end, *tokens("\n\n"), *tokens("Sağ ol"), eot], False),
        ([start, *tokens("assistant"), end, *tokens("\n\n")], False),
        ([*tokens("Dəyməz"), eot], True),
    ]
    example = ExampleBuilder(tiny_tokenizer, 512).build(CONVERSATION, "here")
    assert example.input_ids == [token for ids, _ in parts for token in ids]
    assert example.labels == [token if trained else -100 for ids, trained in parts for token in ids]
    assert example.prompt_tokens == sum(len(ids) for ids, _ in parts[:-1])
    assert example.labels[-1] == eot


def test_what_cannot_be_trained_is_named(tiny_tokenizer):
    def build(messages, max_tokens=512):
        return ExampleBuilder(tiny_tokenizer, max_tokens).build(messages, "here")

    whole = len(build(CONVERSATION).input_ids)
    assert build(CONVERSATION, whole).labels[-1] != -100
    assert build(CONVERSATION, whole - 1) == "end of turn beyond max_tokens"
    assert build(CONVERSATION[:1]) == "no answer"
    assert build([CONVERSATION[0], {"role": "assistant", "content": " \n"}]) == "empty turn"


def test_a_conversation_ends_with_an_answer(tiny_tokenizer):
    assert ExampleBuilder(tiny_tokenizer, 512).build(CONVERSATION[:3], "here") == "roles out of order"


def test_two_answers_to_one_question_share_its_digest(tiny_tokenizer):
    builder = ExampleBuilder(tiny_tokenizer, 512)
    first = builder.build(CONVERSATION[:2], "here")
    second = builder.build([CONVERSATION[0], {"role": "assistant", "content": "Başqa cür"}], "here")
    assert first.question_digest == second.question_digest
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "message['role'] == 'assistant'",
            "message['role'] == 'user'",
            "conversation 3: trained tokens spell .*; limit",
        ),
        (" | trim + '<|eot_id|>' -}}\n        {%- endgen", " | trim -}}\n        {%- endgen", "trained tokens spell"),
        ("{{- bos_token -}}", "{{- bos_token + bos_token -}}", "conversation 3: 2 BOS tokens; limit exactly 1"),
        ("{%- if add_generation_prompt -%}", "{%- if false -%}", "conversation 3: the generation prompt differs"),
    ],
)
def test_a_template_that_trains_the_wrong_tokens_is_refused(make_tiny_tokenizer, old, new, line):
    tokenizer = make_tiny_tokenizer()
    assert old in CHAT_TEMPLATE
    tokenizer.chat_template = CHAT_TEMPLATE.replace(old, new)
    with pytest.raises(StepError, match=line):
        ExampleBuilder(tokenizer, 512).build(CONVERSATION, "conversation 3")


def test_runs():
    assert marked_runs([False, True, True, False, True]) == [(1, 3), (4, 5)]
    assert marked_runs([True]) == [(0, 1)]
    assert marked_runs([False, False]) == []
