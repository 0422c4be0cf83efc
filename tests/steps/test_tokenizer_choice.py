"""The rule by which a tokenizer is chosen, on candidates written down by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizer_bases import CONTEXT_TOKENS, OTHER_PARAMETERS, WIDTH, write_base

from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import ConfigError, StepError
from steps.schemas.fertility import FertilityCandidate, FertilityChange, FertilityReport, TextFertility
from steps.text.bbpe import train_bbpe
from steps.text.tokenizer_choice import choose
from steps.text.vocabulary_cost import ModelSize


def candidate(name: str, tokens: int, tokens_per_word: float, share: float = 0.1, errors: int = 0, kind="bbpe"):
    text = TextFertility(
        tokens_per_word=tokens_per_word,
        ci95=(tokens_per_word - 0.1, tokens_per_word + 0.1),
        bytes_per_token=8 / tokens_per_word,
        bytes_per_token_ci95=(1.0, 2.0),
        one_token_words=0.5,
        renyi_efficiency=0.5,
        round_trip_errors=errors,
    )
    return FertilityCandidate(
        name=name, kind=kind, vocab_size=tokens, vocabulary_parameters=tokens, vocabulary_parameters_share=share,
        context_words=100.0, texts={"heldout": text}, train_seconds=1.0, peak_memory_bytes=1,
    )  # fmt: skip


BASE = candidate("base", 128_256, 3.2, share=0.2, kind="base")
SMALL, MIDDLE, LARGE = (
    candidate("bbpe-8192", 8_192, 2.0),
    candidate("bbpe-16384", 16_384, 1.8),
    candidate("bbpe-32768", 32_768, 1.79, share=0.3),
)


def chosen(candidates, **settings) -> str:
    return choose([BASE, *candidates], TrainTokenizerConfig(**settings))[0]


def test_a_larger_vocabulary_must_gain_enough() -> None:
    assert chosen([SMALL, MIDDLE, LARGE], min_gain=0.0) == "bbpe-32768"
    assert chosen([SMALL, MIDDLE, LARGE], min_gain=0.01) == "bbpe-16384"
    # 10% of 2.0 tokens is what the middle one saves: it must save more.
    assert chosen([SMALL, MIDDLE, LARGE], min_gain=0.0999) == "bbpe-16384"
    assert chosen([SMALL, MIDDLE, LARGE], min_gain=0.11) == "bbpe-8192"
    # Both small gains together are enough for the largest one over the smallest.
    steps = [candidate(f"bbpe-{size}", size, value) for size, value in ((1_024, 2.0), (2_048, 1.9), (4_096, 1.8))]
    assert chosen(steps, min_gain=0.06) == "bbpe-4096"


def test_of_one_size_the_better_kind() -> None:
    unigram = candidate("unigram-16384", 16_384, 1.75, kind="unigram")
    assert chosen([SMALL, MIDDLE, unigram, LARGE], min_gain=0.01) == "unigram-16384"
    assert chosen([unigram, MIDDLE, SMALL], min_gain=0.01) == "unigram-16384"


def test_the_share_of_the_model_is_a_limit() -> None:
    assert chosen([SMALL, MIDDLE, LARGE], min_gain=0.0, max_vocabulary_parameters_share=0.29) == "bbpe-16384"
    with pytest.raises(ConfigError, match=r"max_vocabulary_parameters_share: 0.05; limit 0.100, of bbpe-8192"):
        chosen([SMALL, MIDDLE, LARGE], max_vocabulary_parameters_share=0.05)


def test_one_that_does_not_give_the_text_back_is_never_chosen() -> None:
    broken = candidate("bbpe-64000", 64_000, 1.0, errors=1)
    assert chosen([SMALL, broken], min_gain=0.0) == "bbpe-8192"
    with pytest.raises(ConfigError, match="bbpe-64000, which does not decode to the text it was given"):
        chosen([SMALL, broken], chosen="bbpe-64000")
    with pytest.raises(StepError, match="no candidate decodes"):
        chosen([broken])
    reason = choose([BASE, SMALL, broken], TrainTokenizerConfig())[1]
    assert "1 do not give every text back" in reason


def test_a_name_is_taken_though_the_rule_would_not() -> None:
    assert choose([BASE, SMALL, LARGE], TrainTokenizerConfig(chosen="bbpe-8192")) == (
        "bbpe-8192", "named in the configuration",
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"train_tokenizer.chosen: bbpe-16384; limit bbpe-8192, bbpe-32768"):
        chosen([SMALL, LARGE], chosen="bbpe-16384")
    with pytest.raises(ConfigError, match=r"train_tokenizer.chosen: base; limit a candidate of the kinds bbpe"):
        TrainTokenizerConfig(chosen="base")


def test_the_reason_says_what_it_rests_on() -> None:
    reason = choose([BASE, SMALL, MIDDLE, LARGE], TrainTokenizerConfig(min_gain=0.01))[1]
    assert reason == (
        "1.800 tokens a word; bbpe-32768, the next larger, would save 0.6%, not more than 1.0%; its vocabulary is "
        "10.0% of the model's parameters (limit 50%); all candidates decode every text exactly"
    )


def test_the_table_marks_the_chosen_one_and_leads_with_what_counts() -> None:
    change = FertilityChange(base=3.2, chosen=1.8)
    report = FertilityReport(candidates=[BASE, MIDDLE], chosen="bbpe-16384", reason="", tokens_per_word=change)
    assert report.headline() == "3.20 -> 1.80 tokens a word (bbpe-16384)"
    above, heading, base, middle = report.table()
    assert above.split()[:2] == ["tokens", "bytes"]
    assert heading.split()[:4] == ["candidate", "tokens", "a", "word"]
    assert base.split()[:4] == ["base", "128,256", "3.200", "3.10-3.30"]
    assert middle.split()[:5] == ["*", "bbpe-16384", "16,384", "1.800", "1.70-1.90"]
    assert len({len(line) for line in report.table()}) == 1
    khmer = report.model_copy(update={"leads": "bytes_per_token"})
    assert khmer.headline() == "2.50 -> 4.44 bytes a token (bbpe-16384)"
    assert khmer.table()[3].split()[:6] == ["*", "bbpe-16384", "16,384", "4.444", "1.00-2.00", "1.800"]


@pytest.mark.parametrize(("tied", "matrices"), [(True, 1), (False, 2)])
def test_parameters_of_a_vocabulary(tmp_path: Path, tied: bool, matrices: int) -> None:
    size = ModelSize.of(write_base(tmp_path, train_bbpe(["a text"], 576, 2), tied=tied))
    assert size == ModelSize(WIDTH, matrices, OTHER_PARAMETERS, CONTEXT_TOKENS)
    # 1,000 tokens are 1,024 rows.
    assert size.vocabulary_parameters(1_000) == 1_024 * WIDTH * matrices
    whole = OTHER_PARAMETERS + 1_024 * WIDTH * matrices
    assert size.vocabulary_share(1_000) == pytest.approx(1_024 * WIDTH * matrices / whole)


def test_the_published_model_s_share() -> None:
    """Llama 3.2 1B: 1.2358e9 parameters, 128,256 rows of 2,048, one matrix; with 100,000 rows 1.178e9."""
    vocabulary = 128_256 * 2_048
    size = ModelSize(width=2_048, matrices=1, other_parameters=1_235_814_400 - vocabulary, context_tokens=131_072)
    assert size.vocabulary_share(128_256) == pytest.approx(0.2125, abs=1e-4)
    assert size.other_parameters + size.vocabulary_parameters(100_000) == pytest.approx(1.178e9, rel=1e-3)


def test_a_file_of_an_earlier_version_is_read() -> None:
    text = {"tokens_per_word": 2.0, "ci95": [1.9, 2.1], "bytes_per_token": 3.0, "one_token_words": 0.5,
            "round_trip_errors": 0}  # fmt: skip
    row = {"name": "base", "kind": "base", "vocab_size": 576, "texts": {"heldout": text}, "train_seconds": 0.0,
           "peak_memory_bytes": 1}  # fmt: skip
    content = {"candidates": [row], "chosen": "base", "reason": "", "tokens_per_word": {"base": 2.0, "chosen": 2.0}}
    report = FertilityReport.model_validate_json(json.dumps(content))
    assert report.table()[2].split()[:3] == ["*", "base", "576"]
