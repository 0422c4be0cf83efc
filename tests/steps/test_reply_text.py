"""Tokens that are single bytes, as a tokenizer without merges has them: what is shown are whole characters."""

from __future__ import annotations

import pytest

from steps.text.reply_text import ReplyText
from steps.text.token_bytes import TokenBytes, token_bytes_of

TEXTS = [
    "Salam, dünya!", "👍🏽", "👩‍👩‍👧‍👦 ailə", "🇦🇿🇹🇷", "1️⃣ ❤️", "é e\u0301", "日本語", "שלום مرحبا", "a\n\n\tb",
    "\U0010ffff", "<|eot_id|>",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(vocab_size=262)


def shown(tokenizer, ids: list[int], skipped: frozenset[int] = frozenset()) -> list[str]:
    text = ReplyText(token_bytes_of(tokenizer), skipped)
    return [piece for piece in [*(text.add(token) for token in ids), text.finish()] if piece]


@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_are_the_text_and_none_is_half_a_character(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert len(ids) == len(text.encode())
    pieces = shown(tokenizer, ids)
    assert "".join(pieces) == text
    for whole in ("👍🏽", "👩‍👩‍👧‍👦", "🇦🇿", "🇹🇷", "1️⃣"[1:], "❤️"):
        if whole in text:
            assert any(whole in piece for piece in pieces), pieces


def test_a_character_that_never_ends_is_left_out_and_bytes_that_are_none_are_marked(tokenizer):
    ids = tokenizer("ə👍", add_special_tokens=False)["input_ids"]
    assert shown(tokenizer, ids[:-1]) == ["ə"]
    assert shown(tokenizer, [*ids[:1], *ids[:2]]) == ["\ufffdə"] or shown(tokenizer, [*ids[:1], *ids[:2]]) == [
        "\ufffd", "ə"
    ]  # fmt: skip


def test_control_tokens_stand_for_no_text(tokenizer):
    end = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    ids = tokenizer("a", add_special_tokens=False)["input_ids"]
    assert shown(tokenizer, [end, *ids, end], frozenset({end})) == ["a"]


def test_the_space_that_sentencepiece_begins_with_is_none_of_the_text():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [("<unk>", 0.0), ("▁Salam", -1.0), ("▁ay", -1.0), ("<0xC9>", -2.0), ("<0x99>", -2.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<unk>")
    assert type(token_bytes_of(wrapped)) is not TokenBytes
    assert shown(wrapped, [1, 2, 3, 4]) == ["Salam", " ay", "ə"]
