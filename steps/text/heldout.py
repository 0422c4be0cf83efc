"""Held-out documents that also stand in the training text, as a whole or as a passage of a longer document."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from steps.text.corpus_checks import Finding
from steps.text.repetition import HeldoutPassages

EXTRA_HELDOUT, TEST, TRAIN = "extra_heldout", "test", "train"
NAME = "heldout-in-training"
# Texts quote one another: of a code of laws, 2.8% of the test paragraphs stand in longer ones.
WARNED_TEST_SHARE = 0.05
MIN_WARNED_TEST_DOCUMENTS = 3


class HeldoutCheck:
    """Follows the documents of extra_heldout, then those of the corpus, test before train, as they are kept."""

    def __init__(self) -> None:
        self._passages = {EXTRA_HELDOUT: HeldoutPassages(), TEST: HeldoutPassages()}
        self._kept = self._extra_documents = 0
        self._copied: set[int] = set()
        self._copies = 0

    def see_kept(self, split: str, shingles: numpy.ndarray) -> None:
        """A document that was kept and put into a split."""
        if split in self._passages:
            self._passages[split].hold_out(self._kept, shingles)
        if split == TRAIN:
            for passages in self._passages.values():
                passages.look_in(shingles)
        self._extra_documents += split == EXTRA_HELDOUT
        self._kept += 1

    def see_copy(self, source: str, place: int) -> None:
        """A document of an input that was dropped as a near-duplicate of the one kept at `place`."""
        if source == "corpus" and place < self._extra_documents:
            self._copied.add(place)
            self._copies += 1

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """(input, finding) for extra_heldout, where it was given, and for the corpus' own test split."""
        if self._extra_documents:
            found = self._copied | self._passages[EXTRA_HELDOUT].found
            text = (
                f"also stand in the corpus: {len(self._copied):,} whole, whose {self._copies:,} copies were dropped "
                f"from it, {len(found - self._copied):,} as passages of longer documents, which stay in training. "
                "Take those out of the corpus: what is measured on them is too good."
            )
            yield EXTRA_HELDOUT, Finding(NAME, len(found), self._extra_documents, text, bool(found))
        test = self._passages[TEST]
        text = (
            "of the test split are passages of longer training documents. Give documents whole, or each text once: "
            "what is measured on them is too good."
        )
        limit = max(MIN_WARNED_TEST_DOCUMENTS, WARNED_TEST_SHARE * test.documents)
        yield "corpus", Finding(NAME, len(test.found), test.documents, text, len(test.found) >= limit)
