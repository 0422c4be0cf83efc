"""Fertility: how many tokens a word costs. A word is what stands between white space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from tokenizers import Tokenizer

from steps.schemas.fertility import TextFertility
from steps.text.bbpe import encode_as_text

BOOTSTRAP_RESAMPLES = 1_000


def measure_fertility(tokenizer: Tokenizer, documents: Sequence[str]) -> TextFertility:
    """One tokenizer on documents, special tokens left out.

    tokens_per_word: all tokens over all words. bytes_per_token: UTF-8 bytes over tokens, comparable across scripts
    without spaces. one_token_words: share of the words, in running text with a space before them, that are one token.
    """
    encodings = encode_as_text(tokenizer, documents)
    tokens = numpy.array([len(encoding.ids) for encoding in encodings], dtype=numpy.float64)
    words = numpy.array([len(document.split()) for document in documents], dtype=numpy.float64)
    size = sum(len(document.encode()) for document in documents)
    decoded = tokenizer.decode_batch([encoding.ids for encoding in encodings], skip_special_tokens=False)
    return TextFertility(
        tokens_per_word=float(tokens.sum() / words.sum()),
        ci95=bootstrap_ratio(tokens, words),
        bytes_per_token=float(size / tokens.sum()),
        one_token_words=one_token_share(tokenizer, documents),
        round_trip_errors=sum(text != document for text, document in zip(decoded, documents, strict=True)),
    )


def one_token_share(tokenizer: Tokenizer, documents: Sequence[str]) -> float:
    """Share of all word occurrences that are one token when a space stands before them."""
    occurrences: dict[str, int] = {}
    for document in documents:
        for word in document.split():
            occurrences[word] = occurrences.get(word, 0) + 1
    words = sorted(occurrences)
    encodings = encode_as_text(tokenizer, [f" {word}" for word in words])
    single = sum(occurrences[word] for word, encoding in zip(words, encodings, strict=True) if len(encoding.ids) == 1)
    return single / sum(occurrences.values())


def bootstrap_ratio(numerators: numpy.ndarray, denominators: numpy.ndarray, seed: int = 0) -> tuple[float, float]:
    """95% percentile interval of sum(numerators) / sum(denominators), documents resampled together."""
    generator = numpy.random.default_rng(seed)
    ratios = numpy.empty(BOOTSTRAP_RESAMPLES)
    for resample in range(BOOTSTRAP_RESAMPLES):
        chosen = generator.integers(0, len(numerators), len(numerators))
        ratios[resample] = numerators[chosen].sum() / denominators[chosen].sum()
    low, high = numpy.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
