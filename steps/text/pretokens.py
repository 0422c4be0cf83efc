"""How often each pre-token, what a tokenizer's pattern splits text into, occurs in a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import regex

# Distinct pre-tokens held at once, about 250 MB. Beyond, those seen once are let go: what is seen once among so many
# makes no token.
MOST_PRETOKENS = 2_000_000


def count_pretokens(texts: Iterable[str], pattern: str, most: int = MOST_PRETOKENS) -> Counter[str]:
    """Occurrences by pre-token; what stands between two matches of the pattern is none.

    Of more than `most` distinct ones the rarest are let go while counting (Manku and Motwani's lossy counting), so a
    rare one may be counted too low. The order of the texts decides which.
    """
    find_all = regex.compile(pattern).findall
    counts: Counter[str] = Counter()
    least = 1
    for text in texts:
        counts.update(find_all(text))
        while len(counts) > most:
            counts = Counter({pretoken: count for pretoken, count in counts.items() if count > least})
            least += 1
    return counts
