"""How much of a test text stands in the training text: shared n-grams of 13 words (Brown et al., 2020).

Evaluate measures by it how far the figures of a finished model can be believed, and changes nothing. What PrepareCorpus
warns of before anything is trained, whole documents and passages of them, is found in heldout.py.

Words are those between white space, in small letters, without punctuation at either end. A text of 8 to 12 words is
looked for as a whole, one of fewer words is not looked for and counted: single phrases stand everywhere.

Memory holds the n-grams of the test texts, 64 bits each; the training text streams by. Two different n-grams have the
same 64 bits once in 10^19 pairs.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

NGRAM_WORDS = 13
LEAST_WORDS = 8
# Odd, so that it has an inverse modulo 2^64; otherwise of no meaning.
FACTOR = 0x9E3779B97F4A7C15
CACHED_WORDS = 1_000_000


@dataclass(frozen=True)
class Contamination:
    """Of some texts: how many were looked for, how many of them have an n-gram in the training text, how many were too
    short."""

    texts: int
    found: int
    too_short: int

    @property
    def share(self) -> float:
        """Of the texts that were looked for; 0 where none was."""
        return self.found / self.texts if self.texts else 0.0


@dataclass
class WordHashes:
    """64-bit hashes of words by their letters alone, the same in every run."""

    known: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> np.ndarray:
        """One uint64 a word of the text, [words]."""
        found = [self._hash(word) for word in text.casefold().split()]
        return np.array([value for value in found if value is not None], dtype=np.uint64)

    def _hash(self, word: str) -> int | None:
        value = self.known.get(word)
        if value is None:
            letters = strip_punctuation(word)
            if not letters:
                return None
            value = int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")
            if len(self.known) >= CACHED_WORDS:
                self.known.clear()
            self.known[word] = value
        return value


def strip_punctuation(word: str) -> str:
    """The word without punctuation and symbols at either end."""
    kept = [index for index, letter in enumerate(word) if unicodedata.category(letter)[0] not in "PS"]
    return word[kept[0] : kept[-1] + 1] if kept else ""


def ngram_hashes(words: np.ndarray, length: int) -> np.ndarray:
    """Hashes of all runs of `length` words, [words - length + 1]: sum of word x FACTOR^place modulo 2^64."""
    if len(words) < length:
        return np.empty(0, dtype=np.uint64)
    powers = [pow(FACTOR, place, 2**64) for place in range(length)]
    runs = np.zeros(len(words) - length + 1, dtype=np.uint64)
    for place, power in enumerate(powers):
        runs += words[place : place + len(runs)] * np.uint64(power)
    return runs


def measure_contamination(
    groups: dict[str, Sequence[str]], training: Iterable[str], ngram_words: int = NGRAM_WORDS
) -> dict[str, Contamination]:
    """For each named group of texts how many share an n-gram with the training documents."""
    hashes = WordHashes()
    wanted: dict[int, list[np.ndarray]] = {}
    places: dict[str, list[tuple[int, np.ndarray] | None]] = {}
    for name, texts in groups.items():
        places[name] = []
        for text in texts:
            words = hashes(text)
            length = min(ngram_words, len(words))
            if length < min(LEAST_WORDS, ngram_words):
                places[name].append(None)
                continue
            own = ngram_hashes(words, length)
            wanted.setdefault(length, []).append(own)
            places[name].append((length, own))
    looked_for = {length: np.unique(np.concatenate(parts)) for length, parts in wanted.items()}
    seen = {length: np.zeros(len(values), dtype=bool) for length, values in looked_for.items()}
    for document in training if looked_for else ():
        words = hashes(document)
        for length, values in looked_for.items():
            own = ngram_hashes(words, length)
            index = np.minimum(np.searchsorted(values, own), len(values) - 1)
            seen[length][index[values[index] == own]] = True
    found_hashes = {length: looked_for[length][seen[length]] for length in looked_for}
    return {name: _count(of_group, found_hashes) for name, of_group in places.items()}


def _count(texts: list[tuple[int, np.ndarray] | None], found: dict[int, np.ndarray]) -> Contamination:
    long_enough = [text for text in texts if text is not None]
    hits = sum(bool(np.isin(own, found[length]).any()) for length, own in long_enough)
    return Contamination(texts=len(long_enough), found=hits, too_short=len(texts) - len(long_enough))
