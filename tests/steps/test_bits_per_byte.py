"""Bits per byte against hand computation, a direct sum, and the ways to get it wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from steps.contract import StepError
from steps.modeling.bits_per_byte import cut_windows, score_documents
from steps.text.byte_characters import byte_of_character
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import TokenBytes

DOCUMENTS = [
    "Bakı Xəzər dənizinin sahilində yerləşir.",
    "Salam! Paketimi necə dəyişə bilərəm? 😀",
    "İ ı ə ğ\n\nş ç ö ü",
    "Qış axşamları nənəm sobanın yanında oturub bizə nağıl danışardı. " * 6,
    "x",
]


def direct_bits(model, tokenizer, text: str) -> float:
    """One document in one pass: the definition, without windows, batches or padding."""
    ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, :-1].double()
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")) / math.log(2)


def test_uniform_model_needs_log2_of_the_vocabulary_for_each_token(tiny_tokenizer, tiny_llama):
    with torch.no_grad():
        tiny_llama.lm_head.weight.zero_()
    scores = score_documents(tiny_llama, tiny_tokenizer, DOCUMENTS, context_bytes=64, batch_tokens=128)
    tokens = [len(tiny_tokenizer(text, add_special_tokens=False)["input_ids"]) for text in DOCUMENTS]
    total_bytes = sum(len(text.encode()) for text in DOCUMENTS)
    assert scores.tokens.tolist() == tokens
    assert scores.bytes.tolist() == [len(text.encode()) for text in DOCUMENTS]
    assert scores.bits_per_byte == pytest.approx(math.log2(320) * sum(tokens) / total_bytes, abs=1e-9)


@pytest.mark.parametrize("batch_tokens", [1, 50, 400, 100_000])
def test_equals_the_direct_sum_for_any_batch_size_and_order(tiny_tokenizer, tiny_llama, batch_tokens):
    order = np.random.default_rng(3).permutation(len(DOCUMENTS))
    shuffled = [DOCUMENTS[index] for index in order]
    scores = score_documents(tiny_llama, tiny_tokenizer, shuffled, context_bytes=4_096, batch_tokens=batch_tokens)
    direct = np.array([direct_bits(tiny_llama, tiny_tokenizer, text) for text in shuffled])
    assert scores.bits == pytest.approx(direct, rel=1e-6)
    assert scores.bits_per_byte == pytest.approx(direct.sum() / sum(len(t.encode()) for t in DOCUMENTS), abs=1e-6)


@pytest.mark.parametrize("batch_tokens", [40, 333, 10_000])
@pytest.mark.parametrize("context", [{"context_bytes": 64}, {"context_tokens": 24}])
def test_windows_do_not_depend_on_the_batch(tiny_tokenizer, tiny_llama, context, batch_tokens):
    one_by_one = [
        score_documents(tiny_llama, tiny_tokenizer, [text], **context, batch_tokens=1).bits[0] for text in DOCUMENTS
    ]
    together = score_documents(tiny_llama, tiny_tokenizer, DOCUMENTS, **context, batch_tokens=batch_tokens)
    assert together.bits == pytest.approx(np.array(one_by_one), rel=1e-6)


def test_hand_computed(tiny_tokenizer, tiny_llama):
    """An output layer of zeros but for the row of `a`: its logit is the hidden state's, the others are 0."""
    text = "ab"
    ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == 2
    with torch.no_grad():
        hidden = tiny_llama.model(torch.tensor([[tiny_tokenizer.bos_token_id, ids[0]]]), use_cache=False)[0][0].clone()
        tiny_llama.config.tie_word_embeddings = False
        tiny_llama.lm_head.weight = torch.nn.Parameter(torch.zeros(320, 32))
        tiny_llama.lm_head.weight[ids[0], 0] = 3.0
    logit_after_bos, logit_after_a = (3.0 * hidden[:, 0]).tolist()
    nats_a = math.log(math.exp(logit_after_bos) + 319) - logit_after_bos
    nats_b = math.log(math.exp(logit_after_a) + 319)
    scores = score_documents(tiny_llama, tiny_tokenizer, [text], context_tokens=16, batch_tokens=16)
    assert scores.bits_per_byte == pytest.approx((nats_a + nats_b) / math.log(2) / 2, rel=1e-6)


def test_naive_figures_differ(tiny_tokenizer, tiny_llama):
    """A mean of means, bytes of tokens decoded alone, windows that skip their first token: all give other numbers."""
    scores = score_documents(tiny_llama, tiny_tokenizer, DOCUMENTS, context_tokens=24, batch_tokens=512)
    mean_of_means = float(np.mean(scores.bits / scores.bytes))
    assert abs(mean_of_means - scores.bits_per_byte) > 1e-3
    ids = tiny_tokenizer(DOCUMENTS[1], add_special_tokens=False)["input_ids"]
    decoded_alone = sum(len(tiny_tokenizer.decode([token]).encode()) for token in ids)
    assert decoded_alone > scores.bytes[1]
    long = tiny_tokenizer(DOCUMENTS[3], add_special_tokens=False)["input_ids"]
    disjoint_targets = sum(len(long[at : at + 24]) - 1 for at in range(0, len(long), 24))
    assert disjoint_targets < scores.tokens[3] == len(long)


def test_every_position_is_scored_once_with_half_a_window_behind_it():
    generator = np.random.default_rng(0)
    for context in (8, 9, 64):
        for _ in range(50):
            sizes = np.concatenate([[0], generator.integers(1, context // 2 + 1, generator.integers(1, 200))])
            ends = np.concatenate([[0], np.cumsum(sizes)])
            windows = cut_windows(sizes, context)
            covered = [position for window in windows for position in range(window.scored, window.end)]
            assert covered == list(range(1, len(sizes)))
            for window in windows:
                for position in range(window.scored, window.end):
                    behind = ends[position] - ends[window.start]
                    assert behind < context
                    assert window.start == 0 or behind >= context / 2
                if window.end - window.scored > 1:
                    assert ends[window.end] - ends[window.start] <= context


def test_token_windows_by_hand():
    windows = cut_windows(np.ones(12, dtype=np.int64), 6)
    assert [(window.start, window.scored, window.end) for window in windows] == [(0, 1, 6), (3, 6, 9), (6, 9, 12)]


def test_longer_context_lets_two_tokenizers_see_the_same_text(make_tiny_tokenizer, make_tiny_llama):
    """At equal bytes the windows of a coarse and a fine tokenizer start and end within a token of each other."""
    text = DOCUMENTS[3]
    for tokenizer in (make_tiny_tokenizer(vocab_size=262), make_tiny_tokenizer(vocab_size=400)):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        sizes = np.array([0] + [len(TokenBytes(tokenizer)[token]) for token in ids])
        assert sizes.sum() == len(text.encode())
        first = cut_windows(sizes, 64)[0]
        assert 64 - sizes.max() < sizes[first.start : first.end].sum() <= 64


def test_limits_are_named(tiny_tokenizer, make_tiny_llama):
    model = make_tiny_llama(max_position_embeddings=16)
    with pytest.raises(StepError, match=r"context_bytes: the longest window has \d+ tokens; limit 16"):
        score_documents(model, tiny_tokenizer, [DOCUMENTS[3]], context_bytes=256, batch_tokens=64)
    with pytest.raises(StepError, match="held-out document 1: empty"):
        score_documents(model, tiny_tokenizer, ["a", ""], context_bytes=64, batch_tokens=64)
    with pytest.raises(StepError, match="held-out documents: 0"):
        score_documents(model, tiny_tokenizer, [], context_bytes=64, batch_tokens=64)
    with pytest.raises(ValueError, match="exactly one"):
        score_documents(model, tiny_tokenizer, ["a"], context_bytes=64, context_tokens=64, batch_tokens=64)


def test_a_tokenizer_that_loses_text_is_refused(make_tiny_tokenizer, tiny_llama):
    from tokenizers import normalizers

    tokenizer = make_tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    score_documents(tiny_llama, tokenizer, ["şəhər"], context_bytes=64, batch_tokens=64)
    with pytest.raises(StepError, match="held-out document 0: its tokens do not spell it"):
        score_documents(tiny_llama, tokenizer, ["s\u0327əhər"], context_bytes=64, batch_tokens=64)


def test_text_that_spells_a_special_token_is_scored_as_text(tiny_tokenizer, tiny_llama, tmp_path):
    text = "Növbə <|eot_id|> ilə bitir; <|begin_of_text|> başlanğıcdır."
    tiny_tokenizer.save_pretrained(tmp_path / "before")
    (ids,) = encode_plain(tiny_tokenizer, [text])
    assert not set(ids) & set(tiny_tokenizer.all_special_ids)
    assert b"".join(TokenBytes(tiny_tokenizer)[token] for token in ids) == text.encode()
    assert tiny_tokenizer.decode(ids, skip_special_tokens=True) == text
    scores = score_documents(tiny_llama, tiny_tokenizer, [text], context_bytes=256, batch_tokens=256)
    assert scores.tokens.tolist() == [len(ids)]
    assert scores.bytes.tolist() == [len(text.encode())]
    # Nothing of it stays in the tokenizer: the chat template still writes tokens.
    tiny_tokenizer.save_pretrained(tmp_path / "after")
    for path in (tmp_path / "before").iterdir():
        assert (tmp_path / "after" / path.name).read_bytes() == path.read_bytes()
    assert tiny_tokenizer("<|eot_id|>", add_special_tokens=False)["input_ids"] == [
        tiny_tokenizer.convert_tokens_to_ids("<|eot_id|>")
    ]


def test_a_model_that_is_not_finite_is_refused(tiny_tokenizer, tiny_llama):
    with torch.no_grad():
        tiny_llama.model.norm.weight[0] = float("nan")
    with pytest.raises(StepError, match="bits per byte: nan; limit a finite number"):
        score_documents(tiny_llama, tiny_tokenizer, ["Salam"], context_bytes=64, batch_tokens=64)


def test_training_mode_is_left_as_found(tiny_tokenizer, tiny_llama):
    tiny_llama.train()
    score_documents(tiny_llama, tiny_tokenizer, ["Salam"], context_bytes=64, batch_tokens=64)
    assert tiny_llama.training


def test_byte_table_is_the_byte_level_alphabet():
    from tokenizers import pre_tokenizers

    assert set(byte_of_character()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_of_character().values()) == list(range(256))
    assert byte_of_character()["Ġ"] == 0x20
