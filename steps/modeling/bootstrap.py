"""The interval of a difference in bits per byte between two models on the same documents."""

from __future__ import annotations

import numpy as np

from steps.contract import StepError

COVERAGE = 0.95
# The width in standard errors that no interval falls below: the normal distribution's, for endlessly many documents.
LEAST_WIDTH = 1.96
# A resample whose standard error is a smaller share of the whole's than this has only rounding for one.
NO_SPREAD = 1e-6
# Resamples times documents held at once.
CHUNK_DRAWS = 2**22


def paired_bootstrap(
    bits_a: np.ndarray, bits_b: np.ndarray, document_bytes: np.ndarray, resamples: int, seed: int
) -> tuple[float, float]:
    """95% interval of (bits of a - bits of b) / bytes, documents drawn with replacement, both models on the same ones.

    bits_a, bits_b and document_bytes are [documents]. The interval is the symmetric studentised one (Hall, 1988): the
    estimate and, to both sides, its standard error times the 95% quantile of |estimate of a resample - estimate| /
    standard error of the resample. The standard error is that of a ratio of two sums, whose terms are the documents'
    bits - estimate x bytes.

    Quantiles of the resampled ratios themselves are too narrow where few long documents carry the sum, since a
    resample of such documents is rarely as uneven as the next sample would be (`make verify` has the figures).

    Raises StepError for fewer than two documents, which leave the spread unknown.
    """
    if not len(bits_a) == len(bits_b) == len(document_bytes):
        raise ValueError("one entry a document in each array")
    documents = len(document_bytes)
    if documents < 2:
        raise StepError("held-out documents", documents, limit="at least 2 for an interval", remedy="Give more text.")
    sizes = np.asarray(document_bytes, dtype=np.float64)
    difference = np.asarray(bits_a, dtype=np.float64) - np.asarray(bits_b, dtype=np.float64)
    estimate = difference.sum() / sizes.sum()
    # What is left has the ratio 0, so that the sums of squares below lose no digits.
    rest = difference - estimate * sizes
    own_error = float(_standard_errors(np.ones((1, documents)), rest, sizes)[1][0])
    generator = np.random.default_rng(seed)
    share, chunk = np.full(documents, 1 / documents), max(1, CHUNK_DRAWS // documents)
    widths = []
    for first in range(0, resamples, chunk):
        times_drawn = generator.multinomial(documents, share, min(chunk, resamples - first)).astype(np.float64)
        ratios, errors = _standard_errors(times_drawn, rest, sizes)
        # A resample of one document over and over says nothing of the spread.
        spread = errors > NO_SPREAD * own_error
        widths.append(np.abs(ratios[spread]) / errors[spread])
    known = np.concatenate(widths)
    width = max(LEAST_WIDTH, float(np.quantile(known, COVERAGE))) if len(known) else LEAST_WIDTH
    return float(estimate - width * own_error), float(estimate + width * own_error)


def _standard_errors(times_drawn: np.ndarray, rest: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ratio sum(rest) / sum(sizes) and its standard error in each resample; times_drawn is [resamples, documents].

    The error is sqrt(n / (n - 1) x sum((rest - ratio x size)^2)) / sum(sizes), by linearisation of the ratio.
    """
    bytes_drawn = times_drawn @ sizes
    ratios = (times_drawn @ rest) / bytes_drawn
    squares = (
        times_drawn @ (rest * rest)
        - 2 * ratios * (times_drawn @ (rest * sizes))
        + ratios * ratios * (times_drawn @ (sizes * sizes))
    )
    documents = len(sizes)
    return ratios, np.sqrt(np.maximum(squares, 0.0) * documents / (documents - 1)) / bytes_drawn
