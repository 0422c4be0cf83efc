"""Held-out documents that also stand in the training text, as a whole or as a passage of a longer document.

PrepareCorpus warns of them while the corpus can still be mended, by the shingles that it compares documents by.
How much of a test text a finished model may have seen, sentence by sentence, Evaluate measures by contamination.py.
"""

from __future__ import annotations

from array import array
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
# Enough to know a share by; more would take more memory. They are the first by their digests, so a sample by chance.
MAX_HELDOUT_DOCUMENTS = 100_000

# Of a held-out document the smallest hashes of its shingles are kept: a fair sample of them.
PASSAGE_SHINGLES = 64
# Shorter ones are set phrases and headings, which stand in other documents by right.
MIN_PASSAGE_SHINGLES = 8
PASSAGE_SHARE = 0.8


class HeldoutPassages:
    """Held-out documents, and which of them stand whole, as a passage, in training documents.

    Of 100,000 documents at most, the first ones, 64 shingles each at most are kept: 16 bytes each, and as much again as
    a table of where to look.
    """

    def __init__(self) -> None:
        self._sizes = array("q")
        self._numbers = array("q")
        self._held: list[numpy.ndarray] = []
        self._shingles = numpy.zeros(0, dtype=numpy.uint64)
        self._owners = numpy.zeros(0, dtype=numpy.int64)
        self._may_be_held = numpy.zeros(1, dtype=bool)
        self.found: set[int] = set()

    @property
    def documents(self) -> int:
        """Held-out documents that are looked for: long enough, and among the first."""
        return len(self._sizes)

    def hold_out(self, document: int, runs: numpy.ndarray) -> None:
        """document: the held-out document's number. runs: the uint64 hashes of its runs of words, in any order."""
        shingles = numpy.unique(runs)
        if shingles.size < MIN_PASSAGE_SHINGLES or len(self._sizes) >= MAX_HELDOUT_DOCUMENTS:
            return
        self._held.append(shingles[:PASSAGE_SHINGLES].copy())
        self._sizes.append(self._held[-1].size)
        self._numbers.append(document)

    def look_in(self, runs: numpy.ndarray) -> None:
        """Notes the held-out documents that stand in a training document of these runs of words."""
        if self._held:
            self._make_table()
        if not self._sizes:
            return
        candidates = runs[self._may_be_held[runs & numpy.uint64(self._may_be_held.size - 1)]]
        if not candidates.size:
            return
        candidates = numpy.unique(candidates)
        first = numpy.searchsorted(self._shingles, candidates, "left").tolist()
        last = numpy.searchsorted(self._shingles, candidates, "right").tolist()
        hits = Counter(
            owner for start, end in zip(first, last, strict=True) for owner in self._owners[start:end].tolist()
        )
        found = (owner for owner, hit in hits.items() if hit >= PASSAGE_SHARE * self._sizes[owner])
        self.found.update(self._numbers[owner] for owner in found)

    def _make_table(self) -> None:
        """Sorts in what was held out since; a byte for one in sixteen of all hashes says where none needs to look."""
        owners = numpy.arange(len(self._sizes) - len(self._held), len(self._sizes))
        own = numpy.repeat(owners, [held.size for held in self._held])
        shingles = numpy.concatenate([self._shingles, *self._held])
        order = numpy.argsort(shingles, kind="stable")
        self._shingles, self._owners = shingles[order], numpy.concatenate([self._owners, own])[order]
        self._held = []
        self._may_be_held = numpy.zeros(1 << (16 * shingles.size).bit_length(), dtype=bool)
        self._may_be_held[shingles & numpy.uint64(self._may_be_held.size - 1)] = True


class HeldoutCheck:
    """Follows the documents of extra_heldout, those of the corpus and those of the source corpus, as they are kept.

    What is held out is looked for in the training text that comes after it.
    """

    def __init__(self) -> None:
        self._passages = {name: HeldoutPassages() for name in (EXTRA_HELDOUT, TEST, SOURCE_TEST)}
        self._extra_documents = 0
        self._last_extra = -1
        self._copied: set[int] = set()
        self._copies = 0

    def see_kept(self, split: str, number: int, runs: numpy.ndarray) -> None:
        """A document that was kept and put into a split.

        number: among the documents of extra_heldout and the corpus, or among those of the source corpus.
        runs: the uint64 hashes of its runs of words.
        """
        if split in self._passages:
            self._passages[split].hold_out(number, runs)
        if split in TRAINING:
            for passages in self._passages.values():
                passages.look_in(runs)
        if split == EXTRA_HELDOUT:
            self._extra_documents += 1
            self._last_extra = number

    def see_copy(self, source: str, near: int) -> None:
        """A document of an input that was dropped as a near-duplicate of the kept one of the number `near`."""
        if source == "corpus" and near <= self._last_extra:
            self._copied.add(near)
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
