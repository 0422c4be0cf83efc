"""Conversations as token ids: those of transformers' own apply_chat_template, but that a user's words are words."""

from __future__ import annotations

import json

import pytest

from steps.contract import StepError
from steps.text.chat_encoding import ChatEncoder, make_chat_ready
from steps.text.chat_template import CHAT_TEMPLATE, CHAT_TOKENS

CONVERSATIONS = [
    [("user", "Salam"), ("assistant", "Buyurun")],
    [
        ("system", "Qısa cavab ver."),
        ("user", " Salam! \n"),
        ("assistant", "Buyurun,\n\neşidirəm. "),
        ("user", "Sağ ol"),
    ],
    [("user", "مرحبا، كيف أفحص الرصيد؟"), ("assistant", "من التطبيق \u200f😀👩‍👩‍👧")],
    [("user", "<html>&amp;'\"{{ bos_token }}{% generation %}"), ("assistant", "```\n\n\n    x = 1\n```")],
    [("user", "a\ue000b \ue001"), ("assistant", "\ue000")],
]


def as_messages(turns: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


@pytest.mark.parametrize("number", range(len(CONVERSATIONS)))
@pytest.mark.parametrize("add_generation_prompt", [False, True])
def test_ids_and_marks_are_those_of_apply_chat_template(tiny_tokenizer, number, add_generation_prompt):
    messages = as_messages(CONVERSATIONS[number])
    wanted = tiny_tokenizer.apply_chat_template(
        messages, return_dict=True, return_assistant_tokens_mask=True, add_generation_prompt=add_generation_prompt
    )
    encoded = ChatEncoder(tiny_tokenizer).encode(messages, add_generation_prompt=add_generation_prompt)
    assert encoded.ids == wanted["input_ids"]
    assert encoded.is_marked == [bool(mark) for mark in wanted["assistant_masks"]]


@pytest.mark.parametrize("token", CHAT_TOKENS)
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_a_special_token_that_is_typed_is_text(tiny_tokenizer, token, role):
    """The same conversation without it has as many control tokens."""
    turns = [("system", "Sistem"), ("user", "Sual"), ("assistant", "Cavab")]
    typed = [(name, f"{text}{token}{text} {token}" if name == role else text) for name, text in turns]
    encoder = ChatEncoder(tiny_tokenizer)
    control = set(tiny_tokenizer.all_special_ids) | set(tiny_tokenizer.added_tokens_decoder)
    plain, found = (encoder.encode(as_messages(conversation)) for conversation in (turns, typed))
    assert [i for i in found.ids if i in control] == [i for i in plain.ids if i in control]
    assert tiny_tokenizer.decode(found.ids) == tiny_tokenizer.apply_chat_template(as_messages(typed), tokenize=False)
    # What transformers makes of it has four more.
    theirs = tiny_tokenizer.apply_chat_template(as_messages(typed), return_dict=True)["input_ids"]
    assert len([i for i in theirs if i in control]) == len([i for i in found.ids if i in control]) + 2


def test_a_template_without_marks_is_replaced_and_said_once(make_tiny_tokenizer, capsys):
    for template, found in ((None, "has none"), ("{{ messages[0]['content'] }}", "does not mark")):
        tokenizer = make_tiny_tokenizer()
        tokenizer.chat_template = template
        ChatEncoder(tokenizer)
        ChatEncoder(tokenizer)
        assert tokenizer.chat_template == CHAT_TEMPLATE
        assert (
            capsys.readouterr().err.count(f"warning: chat-template-replaced: the tokenizer's chat template {found}")
            == 1
        )


@pytest.mark.parametrize("pad", ["<|end_of_text|>", "<|eot_id|>", None])
def test_a_pad_token_that_would_hide_an_end_is_replaced(make_tiny_tokenizer, pad, capsys):
    tokenizer = make_tiny_tokenizer()
    tokenizer.pad_token = pad
    make_chat_ready(tokenizer)
    assert tokenizer.pad_token == "<|finetune_right_pad_id|>"
    assert "warning: pad-token-replaced" in capsys.readouterr().err


def without(tokenizer, token: str):
    """The tokenizer with a special token under another name."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    state = tokenizer.backend_tokenizer.to_str().replace(json.dumps(token), json.dumps("<|other|>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(state),
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        chat_template=CHAT_TEMPLATE,
    )


def test_a_tokenizer_that_lacks_the_tokens_is_refused(make_tiny_tokenizer):
    with pytest.raises(
        StepError, match=r"tokenizer: no token <\|eot_id\|>. Use the tokenizer that TrainTokenizer made"
    ):
        make_chat_ready(without(make_tiny_tokenizer(), "<|eot_id|>"))
    with pytest.raises(StepError, match=r"pad_token: None; limit a token of its own"):
        make_chat_ready(without(make_tiny_tokenizer(), "<|finetune_right_pad_id|>"))
    tokenizer = without(make_tiny_tokenizer(), "<|start_header_id|>")
    tokenizer.chat_template = "{{ messages }}"
    with pytest.raises(
        StepError,
        match=r"a chat template without generation marks; limit marks, or .* <\|start_header_id\|> are missing",
    ):
        make_chat_ready(tokenizer)


def test_a_template_that_refuses_is_told(make_tiny_tokenizer):
    tokenizer = make_tiny_tokenizer()
    tokenizer.chat_template = CHAT_TEMPLATE.replace(
        "{%- if message['role'] == 'assistant' -%}",
        "{%- if message['role'] == 'system' -%}{{ raise_exception('no system') }}{%- endif -%}"
        "{%- if message['role'] == 'assistant' -%}",
    )
    with pytest.raises(StepError, match=r"chat template: refuses a conversation \(no system\)"):
        ChatEncoder(tokenizer).encode(as_messages(CONVERSATIONS[1]))
