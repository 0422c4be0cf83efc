"""The paired bootstrap against a closed form, by its own properties, and by how often it covers the truth."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_documents import coverage, normal

from steps.contract import StepError
from steps.modeling.bootstrap import paired_bootstrap


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


def test_two_documents_by_hand():
    """Ratio 4 / 40; the rests are -1 and 1, so the standard error is sqrt(2 x 2) / 40. No resample of two documents
    has a spread and another ratio, so the width is the normal one."""
    low, high = paired_bootstrap(np.array([1.0, 3.0]), np.zeros(2), np.array([20, 20]), 500, seed=0)
    assert (low, high) == pytest.approx((0.1 - 1.96 / 20, 0.1 + 1.96 / 20))


def test_zero_effect_is_covered_as_often_as_it_says():
    """A smaller edition of the proof in tests/verify/test_bits_per_byte.py."""
    share = coverage(300, 60, 300, spread=1.0, noise=normal)
    assert 0.91 <= share <= 0.97


def test_pairing_removes_what_both_models_share():
    """Documents of very different difficulty, one bit a byte of gain on each: no doubt is left."""
    document_bytes = np.array([10, 1_000, 50, 7])
    bits = np.array([90.0, 2_000.0, 50.0, 1.0])
    assert paired_bootstrap(bits + document_bytes, bits, document_bytes, 500, seed=3) == pytest.approx((1.0, 1.0))


def test_documents_weigh_by_their_bytes():
    """One byte gains a bit, nine documents of 999 bytes gain none: a mean of means would have its middle at 0.1."""
    difference = np.array([1.0, *[0.0] * 9])
    low, high = paired_bootstrap(difference, np.zeros(10), np.array([1, *[999] * 9]), 2_000, seed=0)
    assert (low + high) / 2 == pytest.approx(1 / (1 + 9 * 999))
    assert high < 0.01


def test_the_seed_decides():
    generator = np.random.default_rng(2)
    arguments = (generator.normal(50, 9, 30), generator.normal(45, 9, 30), generator.integers(20, 90, 30), 300)
    assert paired_bootstrap(*arguments, 5) == paired_bootstrap(*arguments, 5)
    assert paired_bootstrap(*arguments, 5) != paired_bootstrap(*arguments, 6)


def test_swapping_the_models_turns_the_interval():
    generator = np.random.default_rng(4)
    a, b, sizes = generator.normal(50, 9, 30), generator.normal(45, 9, 30), generator.integers(20, 90, 30)
    low, high = paired_bootstrap(a, b, sizes, 300, 0)
    assert paired_bootstrap(b, a, sizes, 300, 0) == pytest.approx((-high, -low))


def test_an_unmeasured_document_is_not_hidden():
    bits = np.array([1.0, np.nan, 2.0])
    assert np.isnan(paired_bootstrap(bits, np.ones(3), np.array([5, 5, 5]), 100, 0)).all()


def test_limits():
    with pytest.raises(ValueError, match="one entry a document"):
        paired_bootstrap(np.ones(3), np.ones(2), np.ones(3), 100, 0)
    with pytest.raises(StepError, match="held-out documents: 1; limit at least 2 for an interval"):
        paired_bootstrap(np.ones(1), np.ones(1), np.ones(1), 100, 0)
