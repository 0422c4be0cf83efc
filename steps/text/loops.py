"""How much a generated text repeats itself."""

from __future__ import annotations


def repeated_share(text: str, words: int = 3) -> float:
    """Share of a text's n-grams of words that stood in it before; 0 for a text of fewer words.

    Three words, as in "the cat the cat the cat": of its four 3-grams two are new, so 0.5.
    """
    found = ngrams(text, words)
    return 1 - len(set(found)) / len(found) if found else 0.0


def distinct_share(text: str, words: int = 2) -> float:
    """Different n-grams of words over all of them (distinct-n; Li et al., 2016); 1 for a text of fewer words."""
    return 1 - repeated_share(text, words)


def ngrams(text: str, words: int) -> list[tuple[str, ...]]:
    """All runs of so many white-space words."""
    parts = text.split()
    return [tuple(parts[index : index + words]) for index in range(len(parts) - words + 1)]
