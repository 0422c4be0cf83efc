"""Shingles, the exact likeness of two documents by them, and the MinHash bands by which like documents are found."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy

# 32 bands of 4 rows: a pair of similarity 0.8 is missed with probability (1 - 0.8**4)**32 = 5e-8.
BANDS, ROWS = 32, 4
PERMUTATIONS = BANDS * ROWS
# A longer text is hashed in pieces of so many characters, each 40 bytes of memory for the while.
CHARACTERS_AT_ONCE = 1 << 20
# Odd, so that no word's bits are lost; 2 divides it minus 1 once alone, so that words do not change places unseen.
_PLACE_FACTOR = numpy.uint64(0x9E3779B97F4A7C17)
_SPACES = numpy.array([chr(code).isspace() for code in range(0x3002)])
_SPACE = re.compile(r"\s")


def _permutations() -> tuple[numpy.ndarray, numpy.ndarray]:
    """Factors, odd, and summands of the maps of 32-bit numbers onto one another, in arithmetic modulo 2**32."""
    generator = numpy.random.RandomState(1)
    factors = generator.randint(0, 1 << 31, PERMUTATIONS, dtype=numpy.uint32) * numpy.uint32(2) + numpy.uint32(1)
    return factors, generator.randint(0, 1 << 32, PERMUTATIONS, dtype=numpy.uint32)


_FACTORS, _SUMMANDS = _permutations()
# What a character counts by its place in a word; words of more characters than these are rare.
_WEIGHTS = numpy.random.RandomState(2).randint(0, 1 << 64, 1 << 12, dtype=numpy.uint64) | numpy.uint64(1)


def shingle_runs(texts: Sequence[str], words: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(uint64 hashes of every run of `words` words of the texts, one after another; where each text's runs begin).

    A text of fewer words has one run, of all of them. The case of letters and the kind of white space do not count.
    """
    hashed, counts = _word_hashes(texts)
    if counts.min() < words:
        # Short texts are filled up with what no word has, so that those of different lengths differ.
        places = numpy.repeat(counts.cumsum(), numpy.maximum(words - counts, 0))
        hashed, counts = numpy.insert(hashed, places, 0), numpy.maximum(counts, words)
    runs = hashed[: hashed.size - words + 1].copy()
    for place in range(1, words):
        runs *= _PLACE_FACTOR
        runs += hashed[place : hashed.size - words + 1 + place]
    starts = numpy.zeros(counts.size, dtype=numpy.int64)
    starts[1:] = (counts[:-1] - words + 1).cumsum()
    if counts.size == 1:
        return runs, starts
    is_within = numpy.ones(runs.size, dtype=bool)
    is_within[(counts[:-1].cumsum()[:, None] - numpy.arange(1, words)).ravel()] = False
    return runs[is_within], starts


def _word_hashes(texts: Sequence[str]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(uint64 hash of each word of the texts, words of each text), the same on every machine."""
    folded = [text.casefold() for text in texts]
    joined = "\n".join(folded)
    hashed: list[numpy.ndarray] = []
    starts: list[numpy.ndarray] = []
    begin = 0
    while begin < len(joined) or not hashed:
        after = _SPACE.search(joined, begin + CHARACTERS_AT_ONCE)
        end = after.end() if after else len(joined)
        piece_hashes, piece_starts = _hash_words(joined[begin:end])
        hashed.append(piece_hashes)
        starts.append(piece_starts + begin)
        begin = end
    ends_of_texts = numpy.fromiter((len(text) + 1 for text in folded), dtype=numpy.int64, count=len(folded)).cumsum()
    words_before = numpy.searchsorted(numpy.concatenate(starts), ends_of_texts)
    return numpy.concatenate(hashed), numpy.diff(words_before, prepend=0)


def _hash_words(text: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(uint64 hash, first character's place) of each word of a text."""
    codes = numpy.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    is_letter = ~_SPACES.take(codes, mode="clip")
    edges = numpy.diff(is_letter.view(numpy.int8), prepend=numpy.int8(0), append=numpy.int8(0)).nonzero()[0]
    starts, lengths = edges[0::2], edges[1::2] - edges[0::2]
    if not starts.size:
        return numpy.zeros(0, dtype=numpy.uint64), starts
    firsts = lengths.cumsum() - lengths
    letters = codes[is_letter]
    places = numpy.arange(letters.size) - numpy.repeat(firsts, lengths)
    weighted = _WEIGHTS.take(places, mode="wrap") * letters
    return mixed64(numpy.add.reduceat(weighted, firsts)), starts


def shingles(text: str, words: int) -> numpy.ndarray:
    """Sorted distinct uint64 hashes of the text's runs of `words` words (of all its words, where it has fewer)."""
    return numpy.unique(shingle_runs([text], words)[0])


def jaccard(first: numpy.ndarray, second: numpy.ndarray) -> float:
    """Size of the intersection over size of the union of two sets given as sorted distinct arrays."""
    common = numpy.intersect1d(first, second, assume_unique=True).size
    return common / (first.size + second.size - common)


def band_keys(texts: Sequence[str], words: int) -> numpy.ndarray:
    """(texts, BANDS) uint64: two texts whose shingles have the Jaccard similarity s share a given key with s**ROWS."""
    runs, starts = shingle_runs(texts, words)
    values = mixed32(runs.astype(numpy.uint32))
    sketch = numpy.empty((PERMUTATIONS, len(starts)), dtype=numpy.uint32)
    permuted = numpy.empty_like(values)
    for row in range(PERMUTATIONS):
        numpy.multiply(values, _FACTORS[row], out=permuted)
        permuted += _SUMMANDS[row]
        numpy.minimum.reduceat(permuted, starts, out=sketch[row])
    keys = numpy.zeros((BANDS, len(starts)), dtype=numpy.uint64)
    for row in range(ROWS):
        keys = mixed64(keys ^ sketch[row::ROWS])
    return keys.T


def mixed32(values: numpy.ndarray) -> numpy.ndarray:
    """uint32 values mapped onto one another so that each bit depends on all (MurmurHash3's last step)."""
    values = (values ^ (values >> numpy.uint32(16))) * numpy.uint32(0x85EBCA6B)
    values = (values ^ (values >> numpy.uint32(13))) * numpy.uint32(0xC2B2AE35)
    return values ^ (values >> numpy.uint32(16))


def mixed64(values: numpy.ndarray) -> numpy.ndarray:
    """uint64 values mapped onto one another so that each bit depends on all (MurmurHash3's last step)."""
    values = (values ^ (values >> numpy.uint64(33))) * numpy.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> numpy.uint64(33))) * numpy.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> numpy.uint64(33))
