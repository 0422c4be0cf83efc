"""Fertility: how many tokens a word costs. A word is what stands between white space."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy
from tokenizers import Tokenizer

from steps.schemas.fertility import Measure, TextFertility
from steps.text.bbpe import encode_as_text

BOOTSTRAP_RESAMPLES = 1_000
# Encodings hold some 200 bytes a token.
BATCH_DOCUMENTS = 1_000
RENYI_ORDER = 2.5
# Mean characters of a word from which on white space does not part words: 5 to 9 where it does, Finnish and Georgian
# included; 30 and more in Khmer, Thai, Chinese.
LONGEST_MEAN_WORD = 15.0


class FertilityText:
    """Documents to measure on, and what of them does not depend on a tokenizer."""

    def __init__(self, documents: Sequence[str]) -> None:
        self.documents = documents
        self.words = numpy.array([len(document.split()) for document in documents], dtype=numpy.float64)
        self.bytes = numpy.array([len(document.encode()) for document in documents], dtype=numpy.float64)
        # The same documents are drawn for every tokenizer.
        generator = numpy.random.default_rng(0)
        share = numpy.full(len(documents), 1 / max(1, len(documents)))
        self.resamples = generator.multinomial(len(documents), share, BOOTSTRAP_RESAMPLES).astype(numpy.float32)

    @property
    def characters_per_word(self) -> float:
        """Mean length of a word."""
        letters = sum(len(word) for document in self.documents for word in document.split())
        return letters / max(1.0, float(self.words.sum()))


def measure_fertility(tokenizer: Tokenizer, text: FertilityText, base: Tokenizer | None = None) -> TextFertility:
    """One tokenizer on documents, special tokens left out.

    tokens_per_word: all tokens over all words. bytes_per_token: UTF-8 bytes over tokens, comparable across scripts
    without spaces. one_token_words: share of the words, in running text with a space before them, that are one token.
    base: a tokenizer whose ids those of this one are compared with.
    """
    counts, errors, unlike = [], 0, 0
    frequencies = numpy.zeros(tokenizer.get_vocab_size(with_added_tokens=True), dtype=numpy.int64)
    for documents in in_batches(text.documents):
        ids = [encoding.ids for encoding in encode_as_text(tokenizer, documents)]
        counts += [len(document_ids) for document_ids in ids]
        frequencies += numpy.bincount(
            numpy.fromiter(itertools.chain.from_iterable(ids), dtype=numpy.int64), minlength=len(frequencies)
        )
        decoded = tokenizer.decode_batch(ids, skip_special_tokens=False)
        errors += sum(back != document for back, document in zip(decoded, documents, strict=True))
        if base is not None:
            of_base = (encoding.ids for encoding in encode_as_text(base, documents))
            unlike += sum(own != other for own, other in zip(ids, of_base, strict=True))
    tokens = numpy.array(counts, dtype=numpy.float64)
    return TextFertility(
        tokens_per_word=float(tokens.sum() / text.words.sum()),
        ci95=bootstrap_ratio(tokens, text.words, text.resamples),
        bytes_per_token=float(text.bytes.sum() / tokens.sum()),
        bytes_per_token_ci95=bootstrap_ratio(text.bytes, tokens, text.resamples),
        one_token_words=one_token_share(tokenizer, text.documents),
        renyi_efficiency=renyi_efficiency(frequencies),
        round_trip_errors=errors,
        documents_unlike_base=None if base is None else unlike,
    )


def in_batches(documents: Iterable[str]) -> Iterable[list[str]]:
    """The documents in lists of at most BATCH_DOCUMENTS."""
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, BATCH_DOCUMENTS)):
        yield batch


def one_token_share(tokenizer: Tokenizer, documents: Sequence[str]) -> float:
    """Share of all word occurrences that are one token when a space stands before them."""
    occurrences: dict[str, int] = {}
    for document in documents:
        for word in document.split():
            occurrences[word] = occurrences.get(word, 0) + 1
    single = 0
    for words in in_batches(sorted(occurrences)):
        encodings = encode_as_text(tokenizer, [f" {word}" for word in words])
        single += sum(occurrences[w] for w, encoding in zip(words, encodings, strict=True) if len(encoding.ids) == 1)
    return single / sum(occurrences.values())


def renyi_efficiency(frequencies: numpy.ndarray, order: float = RENYI_ORDER) -> float:
    """Rényi entropy of the tokens' shares over the most that the vocabulary allows (Zouhar et al., 2023).

    H = ln(sum of share^order) / (1 - order); efficiency = H / ln(tokens in the vocabulary). Near 1 all tokens occur
    alike; the order of 2.5 weighs the most frequent ones. frequencies: occurrences of each token, zeros included.
    """
    shares = frequencies[frequencies > 0] / frequencies.sum()
    entropy = float(numpy.log((shares**order).sum()) / (1 - order))
    return min(1.0, max(0.0, entropy / float(numpy.log(len(frequencies)))))


def leading_measure(text: FertilityText) -> tuple[Measure, str]:
    """(the measure to read first, why where it is not tokens a word)."""
    length = text.characters_per_word
    if length <= LONGEST_MEAN_WORD:
        return "tokens_per_word", ""
    why = (
        f"what stands between white space is {length:.0f} characters long on average, so it is no word: "
        "compare bytes a token"
    )
    return "bytes_per_token", why


def bootstrap_ratio(
    numerators: numpy.ndarray, denominators: numpy.ndarray, resamples: numpy.ndarray
) -> tuple[float, float]:
    """95% percentile interval of sum(numerators) / sum(denominators), documents resampled together.

    resamples: how often each document is drawn, [resamples, documents].
    """
    ratios = (resamples @ numerators) / (resamples @ denominators)
    low, high = numpy.percentile(ratios, [2.5, 97.5])
    return float(low), float(high)
