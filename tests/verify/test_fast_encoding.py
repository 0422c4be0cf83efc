"""gigatoken's ids beside tokenizers' on all real text and on random Unicode: claim, number, limit."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from encoded_shards import random_text, unlike_texts
from tokenizers import Tokenizer
from workplace import ROOT, prove

from steps.text.bbpe import learnt_tokens, train_bbpe

pytestmark = pytest.mark.verify

REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))
SAMPLE = ROOT / "steps" / "sample_data" / "corpus.jsonl"
RANDOM_STRINGS = 100_000
VOCABULARY_SIZES = (8_000, 50_048)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """The text of every line of real text; of the sample where there is none."""
    files = sorted(REAL_TEXT.glob("*.jsonl")) or [SAMPLE]
    return [json.loads(line)["text"] for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module", params=VOCABULARY_SIZES)
def tokenizer(request: pytest.FixtureRequest, lines: list[str]) -> Tokenizer:
    return train_bbpe(lines, request.param, 2)


def test_every_line_of_real_text(tmp_path: Path, tokenizer: Tokenizer, lines: list[str]) -> None:
    unlike, tokens = unlike_texts(tmp_path, tokenizer, lines)
    claim = f"lines of real text with other ids, vocabulary {learnt_tokens(tokenizer):,}, {tokens:,} tokens"
    prove(f"{claim}, of {len(lines):,}; or not given back", unlike, "0", unlike == 0)


def test_random_unicode(tmp_path: Path, tokenizer: Tokenizer) -> None:
    draw = random.Random(6)
    texts = [random_text(draw) for _ in range(RANDOM_STRINGS)]
    unlike, _ = unlike_texts(tmp_path, tokenizer, texts)
    claim = f"random strings with other ids, vocabulary {learnt_tokens(tokenizer):,}, of {len(texts):,}"
    prove(f"{claim}; or not given back", unlike, "0", unlike == 0)
