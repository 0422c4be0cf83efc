"""The longer proofs of the measure: its interval, and that it agrees with lm-eval and is faster."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from simulated_documents import coverage, normal, skewed
from workplace import prove

pytestmark = pytest.mark.verify

BENCH = Path(__file__).parents[1] / "bench" / "beside_lm_eval.py"
LARGEST_DIFFERENCE = 1e-3
LEAST_RATIO = 2.0


@pytest.mark.parametrize(
    ("what", "spread", "noise"),
    [
        ("documents of one length, normal differences", 0.0, normal),
        ("documents of mixed length, normal differences", 1.0, normal),
        ("documents of mixed length, skewed differences", 1.0, skewed),
    ],
)
def test_the_interval_covers_zero(what: str, spread: float, noise) -> None:
    share = coverage(1_000, 60, 1_000, spread=spread, noise=noise)
    claim = f"share of 1,000 zero-effect sets of 60 {what}, whose interval covers zero"
    prove(claim, share, "0.91 to 0.97", 0.91 <= share <= 0.97)


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """tests/bench/beside_lm_eval.py as a module."""
    if importlib.util.find_spec("lm_eval") is None:
        print("\nnot measured: beside lm-eval: it is not installed (pip install -e '.[dev]')", flush=True)
        pytest.skip("lm-eval is not installed")
    specification = importlib.util.spec_from_file_location("beside_lm_eval", BENCH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up by its name.
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    logging.disable(logging.WARNING)
    yield module
    logging.disable(logging.NOTSET)


def test_beside_lm_eval(bench: ModuleType) -> None:
    documents = bench.sample_documents(30)
    tokenizer, shape = bench.sample_tokenizer(documents), bench.SHAPES["sample"]
    sentences = bench.compare(shape, tokenizer, bench.sentences_of(documents), bench.by_rolling, repeats=3)
    long = bench.compare(shape, tokenizer, documents, bench.by_our_windows, repeats=2)
    for text, found in (("sentences, by its loglikelihood_rolling", sentences), ("long documents, our windows", long)):
        claim = f"bits per byte beside lm-eval's, {text}"
        prove(claim, f"{found.difference:.1e}", "1e-3", found.difference <= LARGEST_DIFFERENCE)
    print(f"\nmeasured: speed over lm-eval's, long documents in our windows: {long.ratio:.2f}", flush=True)
    prove("speed over lm-eval's, sentences", round(sentences.ratio, 2), "2", sentences.ratio >= LEAST_RATIO)
