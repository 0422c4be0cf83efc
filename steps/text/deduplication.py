"""Near-duplicates: MinHash finds candidates (datasketch), the exact Jaccard similarity of their shingles decides."""

from __future__ import annotations

import hashlib

import numpy
from datasketch import MinHash, MinHashLSH

# 32 bands of 4 rows: a pair of similarity 0.8 is missed with probability (1 - 0.8**4)**32 = 5e-8.
PERMUTATIONS, BANDS, ROWS = 128, 32, 4


def shingles(text: str, words: int) -> numpy.ndarray:
    """Sorted distinct uint64 hashes of the text's runs of `words` words (of all its words, where it has fewer)."""
    tokens = text.casefold().split()
    runs = {" ".join(tokens[i : i + words]) for i in range(max(1, len(tokens) - words + 1))}
    hashes = [int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "little") for run in runs]
    return numpy.sort(numpy.array(hashes, dtype=numpy.uint64))


def jaccard(first: numpy.ndarray, second: numpy.ndarray) -> float:
    """Size of the intersection over size of the union of two sets given as sorted distinct arrays."""
    common = numpy.intersect1d(first, second, assume_unique=True).size
    return common / (first.size + second.size - common)


class NearDuplicateIndex:
    """Documents seen so far; `add` keeps a document only if none of them is near it.

    So no two kept documents are near-duplicates, wherever they are put afterwards.

    All of it is in memory: 8 bytes for each shingle of a kept document, of which it has about as many as words, and
    about 12 KB for its place in the 32 bands. A million documents of 500 words take about 16 GB.
    """

    def __init__(self, similarity: float, shingle_words: int) -> None:
        self._similarity = similarity
        self._shingle_words = shingle_words
        self._lsh = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS))
        self._kept: list[numpy.ndarray] = []

    def add(self, text: str) -> bool:
        """False, and nothing kept, where a document at least `similarity` near is there already."""
        return self.match_or_keep(shingles(text, self._shingle_words)) is None

    def match_or_keep(self, hashes: numpy.ndarray) -> int | None:
        """The place, in the order of keeping, of a kept document near the one of these shingles; else keeps it."""
        sketch = MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=_lower_half, scheme="affine32")
        sketch.update_batch(hashes.tolist())
        near = (p for p in self._lsh.query(sketch) if jaccard(hashes, self._kept[p]) >= self._similarity)
        # The least one: the order in which a set gives its members is no property of the corpus.
        if (place := min(near, default=None)) is not None:
            return place
        self._lsh.insert(len(self._kept), sketch)
        self._kept.append(hashes)
        return None


def _lower_half(value: int) -> int:
    """MinHash takes 32-bit hashes; the shingles are hashed already."""
    return value & 0xFFFFFFFF
