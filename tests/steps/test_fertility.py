"""Fertility by hand."""

import numpy
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from steps.text.fertility import FertilityText, bootstrap_ratio, leading_measure, measure_fertility, renyi_efficiency


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
    measured = measure_fertility(byte_tokenizer, FertilityText(["ev su su", "ə su"]))
    assert measured.tokens_per_word == pytest.approx(7 / 5)
    assert measured.bytes_per_token == pytest.approx(13 / 7)
    assert measured.one_token_words == pytest.approx(3 / 5)
    assert measured.round_trip_errors == 0
    assert measured.ci95[0] <= 7 / 5 <= measured.ci95[1]


def test_a_spelt_special_token_is_text(byte_tokenizer: Tokenizer) -> None:
    byte_tokenizer.add_special_tokens([AddedToken("<|eot_id|>", special=True, normalized=False)])
    assert len(byte_tokenizer.encode("<|eot_id|>").ids) == 1
    measured = measure_fertility(byte_tokenizer, FertilityText(["su <|eot_id|>"]))
    assert measured.tokens_per_word == pytest.approx((2 + 1 + 10) / 2)
    assert measured.round_trip_errors == 0
    # The tokenizer itself, which a chat needs, is as before.
    assert len(byte_tokenizer.encode("<|eot_id|>").ids) == 1


def test_interval_of_equal_ratios_is_a_point() -> None:
    resamples = FertilityText(["bir", "iki", "üç"]).resamples
    assert bootstrap_ratio(numpy.array([2.0, 4.0, 6.0]), numpy.array([1.0, 2.0, 3.0]), resamples) == (2.0, 2.0)


def test_interval_holds_the_mean_of_a_population_95_times_of_100() -> None:
    generator = numpy.random.default_rng(3)
    held = 0
    for _ in range(200):
        words = generator.integers(5, 40, 120).astype(float)
        tokens = words * generator.normal(2.0, 0.3, 120)
        low, high = bootstrap_ratio(tokens, words, FertilityText(["söz"] * 120).resamples)
        held += low <= 2.0 <= high
    assert 180 <= held <= 199


def test_renyi_efficiency_by_hand() -> None:
    assert renyi_efficiency(numpy.array([5, 5, 5, 5])) == pytest.approx(1.0)
    assert renyi_efficiency(numpy.array([7, 0, 0, 0])) == pytest.approx(0.0)
    # Shares 1/2, 1/4, 1/4 of 4 tokens, order 2.5: ln(2^-2.5 + 2 * 4^-2.5) / -1.5 / ln 4.
    wanted = -numpy.log(0.5**2.5 + 2 * 0.25**2.5) / 1.5 / numpy.log(4)
    assert renyi_efficiency(numpy.array([2, 1, 1, 0])) == pytest.approx(wanted)


def test_khmer_is_read_by_bytes_a_token() -> None:
    """A Khmer sentence has white space between phrases alone."""
    khmer = "ប្រទេសកម្ពុជាជាប្រទេសមួយនៅអាស៊ីអាគ្នេយ៍ ដែលមានព្រំដែនជាប់នឹងប្រទេសថៃ"
    measure, why = leading_measure(FertilityText([khmer]))
    assert measure == "bytes_per_token"
    assert "characters long on average" in why
    assert leading_measure(FertilityText(["Bakı Azərbaycanın paytaxtı və ən böyük şəhəridir"])) == (
        "tokens_per_word",
        "",
    )


def test_documents_unlike_the_base_are_counted(byte_tokenizer: Tokenizer) -> None:
    plain = Tokenizer.from_str(byte_tokenizer.to_str())
    plain.model = models.BPE(vocab=byte_tokenizer.get_vocab(with_added_tokens=False), merges=[("Ġ", "s")])
    text = FertilityText(["ev su", "ev", "bir su"])
    assert measure_fertility(byte_tokenizer, text, plain).documents_unlike_base == 2
    assert measure_fertility(byte_tokenizer, text, byte_tokenizer).documents_unlike_base == 0
