"""A corpus too small for a block is one line; the one too small for its splits or vocabulary: test_prepare_corpus.py,
test_bbpe.py."""

from __future__ import annotations

import pytest

from steps.contract import StepError
from steps.tokenize_corpus import check_fills_a_block


def test_a_corpus_smaller_than_a_block() -> None:
    check_fills_a_block(2_048, 2_048)
    with pytest.raises(StepError) as caught:
        check_fills_a_block(2_047, 2_048)
    assert str(caught.value) == (
        "corpus: 2,047 tokens in train; limit at least 2,048, one block. "
        "Give more text or lower tokenize_corpus.block_tokens."
    )
