"""Byte-pair encoding that goes on where a tokenizer's own merges end."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

Pair = tuple[str, str]


def learn_merges(
    words: Mapping[tuple[str, ...], int],
    new_tokens: int,
    min_frequency: int,
    known: Callable[[str], bool],
    allowed: Callable[[Pair], bool],
) -> list[Pair]:
    """Further merges, in order, until `new_tokens` spellings came of them that were not `known` before.

    words: occurrences by word, a word as the spellings of the tokens that it falls into. Each merge is of the pair that
    occurs most often (Sennrich et al., 2016), of equally frequent ones the first by spelling; pairs that are not
    allowed stay apart. Ends early where no allowed pair occurs `min_frequency` times.
    """
    pairs = _Pairs(words)
    merges: list[Pair] = []
    made: set[str] = set()
    while len(made) < new_tokens and (pair := pairs.pop(min_frequency)):
        if not allowed(pair):
            continue
        merges.append(pair)
        spelling = "".join(pair)
        if not known(spelling):
            made.add(spelling)
        pairs.merge(pair)
    return merges


class _Pairs:
    """Words, the pairs in them, and how often each pair occurs."""

    def __init__(self, words: Mapping[tuple[str, ...], int]) -> None:
        ordered = sorted(words.items())
        self._words = [list(word) for word, _ in ordered]
        self._counts = [count for _, count in ordered]
        self._occurrences: Counter[Pair] = Counter()
        self._done: set[Pair] = set()
        # A word stays listed where a merge took the pair out of it.
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for index, word in enumerate(self._words):
            for pair in itertools.pairwise(word):
                self._add(pair, index, self._counts[index])
        self._heap = [(-count, pair) for pair, count in self._occurrences.items()]
        heapq.heapify(self._heap)

    def pop(self, min_frequency: int) -> Pair | None:
        """The most frequent pair; None where it occurs less often than asked."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            now = self._occurrences[pair]
            if -negative == now:
                return pair if now >= max(1, min_frequency) else None
            # The count fell since; one that rose was put on the heap again.
            if 0 < now < -negative:
                heapq.heappush(self._heap, (-now, pair))
        return None

    def merge(self, pair: Pair) -> None:
        """Replaces each occurrence of the pair, from the left, by one token.

        The token may be one that was known, and stand beside another with which it was merged before: it is at once.
        """
        again = [pair]
        while again:
            now = again.pop(0)
            self._done.add(now)
            changed = self._merge_in_words(now)
            again += sorted(changed & self._done)
            for new in changed - self._done:
                heapq.heappush(self._heap, (-self._occurrences[new], new))

    def _merge_in_words(self, pair: Pair) -> set[Pair]:
        """The pairs that stand beside a token that came of this merge."""
        spelling = "".join(pair)
        changed: set[Pair] = set()
        for index in sorted(self._places.pop(pair)):
            word, count = self._words[index], self._counts[index]
            merged = _merged(word, pair, spelling)
            if len(merged) == len(word):
                continue
            self._words[index] = merged
            for old in itertools.pairwise(word):
                self._occurrences[old] -= count
            for new in itertools.pairwise(merged):
                self._add(new, index, count)
                if spelling in new:
                    changed.add(new)
        del self._occurrences[pair]
        return changed

    def _add(self, pair: Pair, index: int, count: int) -> None:
        self._occurrences[pair] += count
        self._places[pair].add(index)


def _merged(word: list[str], pair: Pair, spelling: str) -> list[str]:
    first, second = pair
    merged: list[str] = []
    place = 0
    while place < len(word):
        if word[place] == first and place + 1 < len(word) and word[place + 1] == second:
            merged.append(spelling)
            place += 2
        else:
            merged.append(word[place])
            place += 1
    return merged
