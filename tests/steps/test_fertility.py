"""Fertility by hand."""

import numpy
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from steps.text.fertility import bootstrap_ratio, measure_fertility


@pytest.fixture
def byte_tokenizer() -> Tokenizer:
    """One token a byte, and " su" as one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "Ġs", "Ġsu"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ġ", "s"), ("Ġs", "u")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_figures_by_hand(byte_tokenizer: Tokenizer) -> None:
    # "ev su su": e v, Ġsu, Ġsu = 4 tokens; "ə su": 2 bytes of ə, Ġsu = 3 tokens; 5 words, 8 + 5 bytes.
    measured = measure_fertility(byte_tokenizer, ["ev su su", "ə su"])
    assert measured.tokens_per_word == pytest.approx(7 / 5)
    assert measured.bytes_per_token == pytest.approx(13 / 7)
    assert measured.one_token_words == pytest.approx(3 / 5)
    assert measured.round_trip_errors == 0
    assert measured.ci95[0] <= 7 / 5 <= measured.ci95[1]


def test_a_spelt_special_token_is_text(byte_tokenizer: Tokenizer) -> None:
    byte_tokenizer.add_special_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)])
    assert len(byte_tokenizer.encode("<|eot_id|>").ids) == 1
    measured = measure_fertility(byte_tokenizer, ["su <|eot_id|>"])
    assert measured.tokens_per_word == pytest.approx((2 + 1 + 10) / 2)
    assert measured.round_trip_errors == 0
    # The tokenizer itself, which a chat needs, is as before.
    assert len(byte_tokenizer.encode("<|eot_id|>").ids) == 1


def test_interval_of_equal_ratios_is_a_point() -> None:
    assert bootstrap_ratio(numpy.array([2.0, 4.0, 6.0]), numpy.array([1.0, 2.0, 3.0])) == (2.0, 2.0)
