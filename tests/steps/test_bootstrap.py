"""The paired bootstrap against a closed form and by its own properties."""

from __future__ import annotations

import numpy as np
import pytest

from steps.modeling.bits_per_byte import paired_bootstrap


def test_interval_matches_the_normal_one_for_many_equal_documents():
    generator = np.random.default_rng(1)
    document_bytes = np.full(400, 100, dtype=np.int64)
    shared = generator.normal(200, 60, 400)
    gain = generator.normal(20, 5, 400)
    low, high = paired_bootstrap(shared + gain, shared, document_bytes, 2_000, seed=0)
    half_width = 1.96 * gain.std() / np.sqrt(400) / 100
    centre = gain.mean() / 100
    assert low == pytest.approx(centre - half_width, abs=half_width * 0.15)
    assert high == pytest.approx(centre + half_width, abs=half_width * 0.15)


def test_pairing_removes_what_both_models_share():
    """Documents of very different difficulty, one bit a byte of gain on each: no doubt is left."""
    document_bytes = np.array([10, 1_000, 50, 7])
    bits = np.array([90.0, 2_000.0, 50.0, 1.0])
    assert paired_bootstrap(bits + document_bytes, bits, document_bytes, 500, seed=3) == pytest.approx((1.0, 1.0))


def test_documents_weigh_by_their_bytes():
    """One byte gains a bit, nine documents of 999 bytes gain none: a mean of means would reach 0.3."""
    difference = np.array([1.0, *[0.0] * 9])
    low, high = paired_bootstrap(difference, np.zeros(10), np.array([1, *[999] * 9]), 2_000, seed=0)
    assert low == 0.0
    assert high == pytest.approx(3 / (3 + 7 * 999))


def test_the_seed_decides():
    generator = np.random.default_rng(2)
    arguments = (generator.normal(50, 9, 30), generator.normal(45, 9, 30), generator.integers(20, 90, 30), 300)
    assert paired_bootstrap(*arguments, 5) == paired_bootstrap(*arguments, 5)
    assert paired_bootstrap(*arguments, 5) != paired_bootstrap(*arguments, 6)


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="one entry a document"):
        paired_bootstrap(np.ones(3), np.ones(2), np.ones(3), 100, 0)
