"""Shared n-grams of 13 words, against a plain search, and texts' repetition by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from steps.text.contamination import (
    Contamination,
    WordHashes,
    measure_contamination,
    ngram_hashes,
    strip_punctuation,
)
from steps.text.loops import distinct_share, repeated_share

WORDS = [f"söz{index}" for index in range(400)]


def test_a_run_of_13_words_is_found_and_one_of_12_is_not():
    training = [" ".join(WORDS[:40])]
    inside = "başqa mətn " + " ".join(WORDS[5:18]) + " sonra"
    shorter = "başqa mətn " + " ".join(WORDS[5:17]) + " sonra"
    found = measure_contamination({"test": [inside, shorter]}, training)
    assert found == {"test": Contamination(texts=2, found=1, too_short=0)}
    assert found["test"].share == 0.5


def test_case_and_punctuation_do_not_hide_a_run():
    training = ["«" + ", ".join(WORDS[:13]) + "!»"]
    assert measure_contamination({"test": [" ".join(WORDS[:13]).upper() + "..."]}, training)["test"].found == 1
    assert strip_punctuation("«Bakı'nın»,") == "Bakı'nın"
    assert strip_punctuation("—") == ""
    assert len(WordHashes()("bir — iki")) == 2


def test_words_of_scripts_with_vowel_signs_stay_whole():
    hindi = "हिन्दी में तेरह शब्दों"
    assert len(WordHashes()(hindi)) == 4


def test_short_texts_are_looked_for_whole_or_not_at_all():
    training = [" ".join(WORDS[:30])]
    texts = [" ".join(WORDS[3:11]), " ".join([*WORDS[3:10], "yox"]), " ".join(WORDS[3:10])]
    found = measure_contamination({"test": texts, "none": []}, training)
    assert found["test"] == Contamination(texts=2, found=1, too_short=1)
    assert found["none"].share == 0.0


def test_groups_are_counted_apart_and_training_is_streamed():
    read = []

    def training():
        for start in (0, 100):
            read.append(start)
            yield " ".join(WORDS[start : start + 50])

    groups = {"a": [" ".join(WORDS[100:120])], "b": [" ".join(WORDS[200:220]), " ".join(WORDS[0:20])]}
    found = measure_contamination(groups, training())
    assert read == [0, 100]
    assert (found["a"].found, found["b"].found) == (1, 1)


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_plain_search(seed):
    generator = random.Random(seed)
    few = WORDS[:3]
    training = [" ".join(generator.choices(few, k=generator.randrange(1, 60))) for _ in range(60)]
    texts = [" ".join(generator.choices(few, k=generator.randrange(8, 40))) for _ in range(80)]

    def runs(text, length):
        parts = text.split()
        return {tuple(parts[at : at + length]) for at in range(len(parts) - length + 1)}

    expected = 0
    for text in texts:
        length = min(13, len(text.split()))
        seen = set().union(*(runs(document, length) for document in training))
        expected += bool(runs(text, length) & seen)
    found = measure_contamination({"test": texts}, training)["test"]
    assert found == Contamination(texts=80, found=expected, too_short=0)
    assert 0 < expected < 80


def test_word_order_counts():
    a, b = WordHashes()("bir iki üç"), WordHashes()("üç iki bir")
    assert ngram_hashes(a, 3)[0] != ngram_hashes(b, 3)[0]
    assert ngram_hashes(a, 4).shape == (0,)
    assert sorted(a.tolist()) == sorted(b.tolist())
    assert ngram_hashes(np.array([2, 3], dtype=np.uint64), 2).dtype == np.uint64


def test_repetition_by_hand():
    assert repeated_share("the cat the cat the cat") == 0.5
    assert repeated_share("bir iki üç dörd") == 0.0
    assert repeated_share("bir iki") == 0.0
    assert distinct_share("a b a b") == pytest.approx(2 / 3)
    assert distinct_share("tək") == 1.0
