"""The search for near-duplicates: MinHash bands find candidates on disk, the exact Jaccard similarity decides.

Two passes over the documents, in one order. The first writes each document's 32 band keys to files; between the passes
the documents that share a key are found, file by file. The second pass compares a document with the kept ones that it
shares a key with. The others, nearly all of a usual corpus, are compared with nothing.

On disk: 256 bytes a document, and the shingles of the kept documents that share keys, 8 bytes each. In memory: 35 MB of
keys on their way, one file of keys (three bytes a document for the while), and of the kept documents that share keys
some 100 bytes for each of their sharings.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy

from steps.contract import StepError
from steps.text.deduplication import BANDS, band_keys, jaccard, mixed64

# A key's first 3 bits choose one of its band's files. In the file 36 further bits stand before the document's number:
# of a million documents ten share such a key by chance, each of which costs one comparison.
FILES_OF_A_BAND, FILE_BITS = 8, 3
NUMBER_BITS = 28
_NUMBER_MASK = numpy.uint64((1 << NUMBER_BITS) - 1)
BLOCK_DOCUMENTS = 1 << 16
_NONE = -1


class NearDuplicateSearch:
    """Finds, for documents numbered from 0 in the order of `see`, the kept ones that they are near.

    So no two kept documents are near-duplicates, wherever they are put afterwards.

    folder: an empty one for the files, the caller's to remove. similarity: Jaccard of shingles from which two are near.
    block_documents: how many documents' keys are written at once, and their sharings read at once.
    """

    def __init__(
        self, folder: Path, similarity: float, shingle_words: int, block_documents: int = BLOCK_DOCUMENTS
    ) -> None:
        self._folder = folder
        self._block_documents = block_documents
        self._shingle_words = shingle_words
        self._held: list[numpy.ndarray] = []
        self._seen = self._held_documents = 0
        self._sharings = _Sharings(folder, block_documents)
        self._kept = _KeptDocuments(folder / "shingles", similarity)

    def see(self, texts: Sequence[str]) -> None:
        """First pass: the next documents."""
        self._held.append(band_keys(texts, self._shingle_words))
        self._seen += len(texts)
        self._held_documents += len(texts)
        if self._seen > 1 << NUMBER_BITS:
            limit = f"{1 << NUMBER_BITS:,}"
            raise StepError("corpus", f"{self._seen:,} documents", limit=limit, remedy="Join short ones.")
        if self._held_documents >= self._block_documents:
            self._write_keys()

    def _write_keys(self) -> None:
        keys = numpy.concatenate(self._held)
        numbers = numpy.arange(self._seen - len(keys), self._seen, dtype=numpy.uint64)
        self._held, self._held_documents = [], 0
        files = (keys >> numpy.uint64(64 - FILE_BITS)).astype(numpy.uint8)
        files += numpy.arange(BANDS, dtype=numpy.uint8) * numpy.uint8(FILES_OF_A_BAND)
        entries = keys << numpy.uint64(NUMBER_BITS) | numbers[:, None]
        _append_by_file(self._folder, "keys", files.ravel(), entries.ravel())

    def find(self) -> None:
        """Between the passes: finds the documents that share keys."""
        if self._held:
            self._write_keys()
        for path in sorted(self._folder.glob("keys-*")):
            self._sharings.add(numpy.sort(numpy.fromfile(path, dtype=numpy.uint64)))
            path.unlink()

    def match_or_keep(self, number: int, runs: numpy.ndarray) -> int | None:
        """Second pass, in the same order: the least number of a kept document near this one; else keeps it.

        runs: as shingle_runs gives them.
        """
        groups = self._sharings.groups_of(number)
        return self._kept.match_or_keep(number, numpy.unique(runs), groups) if len(groups) else None

    def close(self) -> None:
        """After the second pass."""
        self._kept.close()


class _Sharings:
    """Which documents share keys with which: groups, in files of so many documents each.

    A group is known by a hash of its members: of the many keys that two near-duplicates share, one group remains.
    """

    def __init__(self, folder: Path, block_documents: int) -> None:
        self._folder, self._block_documents = folder, block_documents
        self._block = _NONE
        self._rows = numpy.zeros((0, 2), dtype=numpy.uint64)
        self._bounds = numpy.zeros(0, dtype=numpy.int64)

    def add(self, entries: numpy.ndarray) -> None:
        """entries: sorted uint64, the bits of a key before a document's number."""
        is_first = numpy.diff(entries >> numpy.uint64(NUMBER_BITS), prepend=~entries[:1]) != 0
        firsts = is_first.nonzero()[0]
        sizes = numpy.diff(firsts, append=len(entries))
        is_shared = sizes > 1
        if not is_shared.any():
            return
        numbers = entries & _NUMBER_MASK
        groups = numpy.add.reduceat(mixed64(numbers + numpy.uint64(1)), firsts)
        is_last = numpy.append(is_first[1:], True)
        rows = numpy.c_[numbers << numpy.uint64(1) | is_last, numpy.repeat(groups, sizes)]
        rows = rows[numpy.repeat(is_shared, sizes)]
        _append_by_file(self._folder, "groups", rows[:, 0] // numpy.uint64(2 * self._block_documents), rows)

    def groups_of(self, number: int) -> numpy.ndarray:
        """(groups, 2) uint64: for each group of a document, twice its number, 1 more if it is the last; the group."""
        block, place = divmod(number, self._block_documents)
        if block != self._block:
            self._load(block)
        return self._rows[self._bounds[place] : self._bounds[place + 1]]

    def _load(self, block: int) -> None:
        path = self._folder / f"groups-{block:05d}"
        content = numpy.fromfile(path, dtype=numpy.uint64) if path.exists() else numpy.zeros(0, dtype=numpy.uint64)
        rows = content.reshape(-1, 2)
        rows = rows[numpy.lexsort((rows[:, 1], rows[:, 0]))]
        is_new = numpy.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]
        self._block, self._rows = block, rows[is_new]
        numbers = self._rows[:, 0] >> numpy.uint64(1)
        first, after = block * self._block_documents, (block + 1) * self._block_documents
        self._bounds = numpy.searchsorted(numbers, numpy.arange(first, after + 1, dtype=numpy.uint64))


class _KeptDocuments:
    """The kept documents that share keys with others: their shingles in a file, and which groups they are in."""

    def __init__(self, path: Path, similarity: float) -> None:
        self._similarity = similarity
        self._file = path.open("w+b")
        self._numbers, self._ends = array("q"), array("q", [0])
        # Of each group the newest sharing; of each sharing the document and the sharing before it.
        self._newest: dict[int, int] = {}
        self._documents, self._before = array("q"), array("q")

    def match_or_keep(self, number: int, shingles: numpy.ndarray, groups: numpy.ndarray) -> int | None:
        """As NearDuplicateSearch.match_or_keep; groups: as _Sharings.groups_of gives them."""
        places = {place for group in groups[:, 1].tolist() for place in self._places(group)}
        near = next((place for place in sorted(places) if self._is_near(place, shingles)), None)
        if near is None:
            self._keep(number, shingles, groups)
        for group in groups[groups[:, 0] % numpy.uint64(2) == 1, 1].tolist():
            self._newest.pop(group, None)
        return None if near is None else self._numbers[near]

    def close(self) -> None:
        self._file.close()

    def _places(self, group: int) -> list[int]:
        sharing, places = self._newest.get(group, _NONE), []
        while sharing != _NONE:
            places.append(self._documents[sharing])
            sharing = self._before[sharing]
        return places

    def _is_near(self, place: int, shingles: numpy.ndarray) -> bool:
        start, end = self._ends[place], self._ends[place + 1]
        smaller, larger = sorted((end - start, shingles.size))
        if smaller / larger < self._similarity:
            return False
        others = numpy.frombuffer(os.pread(self._file.fileno(), 8 * (end - start), 8 * start), dtype=numpy.uint64)
        return jaccard(shingles, others) >= self._similarity

    def _keep(self, number: int, shingles: numpy.ndarray, groups: numpy.ndarray) -> None:
        place = len(self._numbers)
        self._numbers.append(number)
        self._ends.append(self._ends[-1] + shingles.size)
        self._file.write(shingles.tobytes())
        self._file.flush()
        for number_and_last, group in groups.tolist():
            if number_and_last % 2:
                continue
            self._before.append(self._newest.get(group, _NONE))
            self._newest[group] = len(self._documents)
            self._documents.append(place)


def _append_by_file(folder: Path, name: str, files: numpy.ndarray, rows: numpy.ndarray) -> None:
    """Appends each row to the file folder/name-NUMBER that `files` has for it; rows keep their order."""
    order = numpy.argsort(files, kind="stable")
    numbers, begins = numpy.unique(files[order], return_index=True)
    for number, own in zip(numbers.tolist(), numpy.split(rows[order], begins[1:]), strict=True):
        with (folder / f"{name}-{number:05d}").open("ab") as stream:
            stream.write(own.tobytes())
