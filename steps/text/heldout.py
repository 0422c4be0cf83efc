"""Held-out documents that also stand in the training text, as a whole or as a passage of a longer document.

PrepareCorpus warns of them while the corpus can still be mended, by the shingles that it compares documents by.
How much of a test text a finished model may have seen, sentence by sentence, Evaluate measures by contamination.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy

from steps.text.corpus_checks import Finding

EXTRA_HELDOUT, TEST, SOURCE_TEST = "extra_heldout", "test", "source_test"
TRAINING = ("train", "source_train")
NAME = "heldout-in-training"
# Texts quote one another: of a code of laws, 2.8% of the test paragraphs stand in longer ones.
WARNED_TEST_SHARE = 0.05
MIN_WARNED_TEST_DOCUMENTS = 3

# Of a held-out document the smallest hashes of its shingles are kept: a fair sample of them.
PASSAGE_SHINGLES = 64
# Shorter ones are set phrases and headings, which stand in other documents by right.
MIN_PASSAGE_SHINGLES = 8
PASSAGE_SHARE = 0.8


class HeldoutPassages:
    """Held-out documents, and which of them stand whole, as a passage, in training documents.

    In memory are 64 shingles of each held-out document at most, of 100 bytes or so.
    """

    def __init__(self) -> None:
        self._owners: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self.found: set[int] = set()

    @property
    def documents(self) -> int:
        """Held-out documents that are long enough to be looked for."""
        return len(self._sizes)

    def hold_out(self, document: int, shingles: numpy.ndarray) -> None:
        """document: the held-out document's number. shingles: its sorted distinct uint64 hashes."""
        if shingles.size < MIN_PASSAGE_SHINGLES:
            return
        kept = shingles[:PASSAGE_SHINGLES].tolist()
        for shingle in kept:
            self._owners.setdefault(shingle, []).append(document)
        self._sizes[document] = len(kept)

    def look_in(self, shingles: numpy.ndarray) -> None:
        """Notes the held-out documents that stand in a training document of these shingles."""
        owners = self._owners
        hits = Counter(owner for shingle in shingles.tolist() if shingle in owners for owner in owners[shingle])
        self.found.update(owner for owner, hit in hits.items() if hit >= PASSAGE_SHARE * self._sizes[owner])


class HeldoutCheck:
    """Follows the documents of extra_heldout, those of the corpus and those of the source corpus, as they are kept.

    What is held out is looked for in the training text that comes after it.
    """

    def __init__(self) -> None:
        self._passages = {name: HeldoutPassages() for name in (EXTRA_HELDOUT, TEST, SOURCE_TEST)}
        self._kept = self._extra_documents = 0
        self._copied: set[int] = set()
        self._copies = 0

    def see_kept(self, split: str, shingles: numpy.ndarray) -> None:
        """A document that was kept and put into a split."""
        if split in self._passages:
            self._passages[split].hold_out(self._kept, shingles)
        if split in TRAINING:
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
        """(input, finding) for extra_heldout and the source corpus, where given, and for the corpus' own test split."""
        if self._extra_documents:
            found = self._copied | self._passages[EXTRA_HELDOUT].found
            text = (
                f"also stand in the corpus: {len(self._copied):,} whole, whose {self._copies:,} copies were dropped "
                f"from it, {len(found - self._copied):,} as passages of longer documents, which stay in training. "
                "Take those out of the corpus: what is measured on them is too good."
            )
            yield EXTRA_HELDOUT, Finding(NAME, len(found), self._extra_documents, text, bool(found))
        text = (
            "of the test split are passages of longer training documents. Give documents whole, or each text once: "
            "what is measured on them is too good."
        )
        for source, name in (("corpus", TEST), ("source_corpus", SOURCE_TEST)):
            test = self._passages[name]
            limit = max(MIN_WARNED_TEST_DOCUMENTS, WARNED_TEST_SHARE * test.documents)
            if source == "corpus" or test.documents:
                yield source, Finding(NAME, len(test.found), test.documents, text, len(test.found) >= limit)
