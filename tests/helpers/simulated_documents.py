"""How often the paired bootstrap's interval covers zero where two models are equal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steps.modeling.bootstrap import paired_bootstrap

Noise = Callable[[np.random.Generator, int], np.ndarray]


def coverage(sets: int, documents: int, resamples: int, *, spread: float, noise: Noise, seed: int = 0) -> float:
    """Share of intervals over simulated documents of equal models that cover zero.

    spread: of the logarithm of the documents' bytes. noise: (generator, documents) to differences in bits per byte, of
    mean zero.
    """
    generator = np.random.default_rng(seed)
    covered = 0
    for index in range(sets):
        sizes = np.ceil(np.exp(generator.normal(6, spread, documents))).astype(np.int64)
        bits = generator.uniform(0.5, 3, documents) * sizes
        low, high = paired_bootstrap(bits + noise(generator, documents) * sizes, bits, sizes, resamples, index)
        covered += low <= 0 <= high
    return covered / sets


def normal(generator: np.random.Generator, documents: int) -> np.ndarray:
    """A tenth of a bit a byte either way."""
    return generator.normal(0, 0.1, documents)


def skewed(generator: np.random.Generator, documents: int) -> np.ndarray:
    """Many documents a little worse, a few much better."""
    return 0.1 * (generator.exponential(1, documents) - 1)
