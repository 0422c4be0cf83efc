"""A corpus of gigabytes for proofs of memory and speed: real sentences shuffled, and ever new word forms among them.

    python tests/helpers/large_corpus.py FILE BYTES

The sentences are those of ../shared/data where it is there, else the sample's. Each takes in one made-up form, a real
stem with a chain of suffixes, so that the distinct words grow with the text as in real corpora (Heaps' law). Measured
on ../shared/data, seed 1: 0.09 million distinct white-space words in 10 MB, 0.48 in 100 MB, 0.72 in 200 MB, so that
the exponent goes from 0.71 to 0.59; about 3.3 million are to be expected in 2 GB. Documents have a lognormal number of
words, median 300 and mean 450; one in 1,000 has over 50 KB, one in 100,000 has megabytes.
One in 200 is the copy of an earlier one, one in 200 differs from an earlier one in a single sentence.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy

ROOT = Path(__file__).parents[2]
REAL_TEXT = ROOT.parent / "shared" / "data"
REAL_NAMES = ("az_laws.jsonl", "az_web.jsonl", "az_fiction.jsonl")
SAMPLE = ROOT / "steps" / "sample_data" / "corpus.jsonl"

WORDS_MEDIAN, WORDS_SIGMA = 300, 0.9
LONG_SHARE, LONG_WORDS = 1e-3, (7_000, 20_000)
HUGE_SHARE, HUGE_WORDS = 1e-5, (200_000, 600_000)
COPY_SHARE = NEAR_COPY_SHARE = 1 / 200
# Forms met after so many words of text.
FORMS_FACTOR, FORMS_EXPONENT = 12.0, 0.65
SUFFIXES = ("", "lar", "da", "dan", "ın", "ı", "a", "dır", "sız", "lı", "lıq", "çı", "mış", "acaq", "mır", "ıb")
DOCUMENTS_AT_ONCE = 2_000


class Sentences:
    """Real sentences in halves, escaped as they stand in JSON, and the stems of made-up forms."""

    def __init__(self, files: list[Path]) -> None:
        texts = [json.loads(line)["text"] for file in files for line in file.read_text("utf-8").splitlines()]
        sentences = [s.split() for text in texts for s in re.split(r"(?<=[.!?;])\s+", text)]
        sentences = [words for words in sentences if 6 <= len(words) <= 60]
        halves = [(words[: len(words) // 2], words[len(words) // 2 :]) for words in sentences]
        self.heads = [json.dumps(" ".join(head), ensure_ascii=False)[1:-1] + " " for head, _ in halves]
        self.tails = [" " + json.dumps(" ".join(tail), ensure_ascii=False)[1:-1] + " " for _, tail in halves]
        self.mean_words = 1 + sum(map(len, sentences)) / len(sentences)
        stems = {word.lower() for words in sentences for word in words if word.isalpha() and 3 <= len(word) <= 9}
        self.stems = sorted(stems)
        self.suffixes = ["".join(chain) for chain in itertools.product(SUFFIXES, repeat=3)]
        random.Random(0).shuffle(self.stems)
        random.Random(1).shuffle(self.suffixes)

    def forms(self, numbers: numpy.ndarray) -> Iterator[str]:
        """The made-up form of each number; up to 50 million numbers have forms of their own."""
        round_of_stems, stem = numpy.divmod(numbers, len(self.stems))
        suffix = (round_of_stems + 7 * stem) % len(self.suffixes)
        stems, suffixes = map(self.stems.__getitem__, stem.tolist()), map(self.suffixes.__getitem__, suffix.tolist())
        return map(str.__add__, stems, suffixes)


def large_corpus(file: Path, size: int, seed: int = 1) -> int:
    """Writes .jsonl of about `size` bytes; returns how many documents. The same bytes for the same arguments."""
    found = [REAL_TEXT / name for name in REAL_NAMES if (REAL_TEXT / name).is_file()]
    written = documents = 0
    with file.open("wb") as stream:
        for lines in _batches(Sentences(found or [SAMPLE]), numpy.random.default_rng(seed)):
            written += stream.write("".join(lines).encode())
            documents += len(lines)
            if written >= size:
                return documents
    raise AssertionError("the batches never end")


def _batches(sentences: Sentences, generator: numpy.random.Generator) -> Iterator[list[str]]:
    words = forms = 0
    while True:
        counts = _sentence_counts(generator, sentences.mean_words)
        chosen = generator.integers(len(sentences.heads), size=counts.sum())
        numbers, forms = _form_numbers(generator, words, forms, len(chosen), sentences.mean_words)
        words += int(len(chosen) * sentences.mean_words)
        parts = [""] * (3 * len(chosen))
        parts[0::3] = map(sentences.heads.__getitem__, chosen.tolist())
        parts[1::3] = sentences.forms(numbers)
        parts[2::3] = map(sentences.tails.__getitem__, chosen.tolist())
        ends = (3 * counts.cumsum()).tolist()
        documents = [parts[start:end] for start, end in itertools.pairwise([0, *ends])]
        yield [f'{{"text": "{"".join(document)}"}}\n' for document in _with_copies(documents, generator)]


def _sentence_counts(generator: numpy.random.Generator, mean_words: float) -> numpy.ndarray:
    words = generator.lognormal(numpy.log(WORDS_MEDIAN), WORDS_SIGMA, DOCUMENTS_AT_ONCE)
    kind = generator.random(DOCUMENTS_AT_ONCE)
    words = numpy.where(kind < LONG_SHARE, generator.uniform(*LONG_WORDS, DOCUMENTS_AT_ONCE), words)
    words = numpy.where(kind < HUGE_SHARE, generator.uniform(*HUGE_WORDS, DOCUMENTS_AT_ONCE), words)
    return numpy.maximum(1, words / mean_words).astype(numpy.int64)


def _form_numbers(
    generator: numpy.random.Generator, words: int, forms: int, count: int, mean_words: float
) -> tuple[numpy.ndarray, int]:
    """The numbers of the forms of `count` sentences after `words` words, and the forms met by then.

    A sentence's form is a new one where Heaps' law is behind, else one met before, more often an early one.
    """
    wanted = FORMS_FACTOR * (words + mean_words * numpy.arange(1, count + 1)) ** FORMS_EXPONENT
    # At most one new form a sentence.
    behind = numpy.minimum.accumulate(numpy.floor(wanted) - numpy.arange(1, count + 1))
    met = numpy.maximum.accumulate(
        numpy.minimum(behind + numpy.arange(1, count + 1), forms + numpy.arange(1, count + 1))
    )
    met = numpy.maximum(met, max(forms, 1)).astype(numpy.int64)
    is_new = numpy.diff(met, prepend=forms) > 0
    earlier = (met * generator.random(count) ** 4).astype(numpy.int64)
    return numpy.where(is_new, met - 1, earlier), int(met[-1])


def _with_copies(documents: list[list[str]], generator: numpy.random.Generator) -> list[list[str]]:
    """Some documents replaced by others of the batch, whole or but for their last sentence."""
    kind = generator.random(len(documents))
    others = generator.integers(len(documents), size=len(documents))
    for place in numpy.flatnonzero(kind < COPY_SHARE + NEAR_COPY_SHARE).tolist():
        other = documents[others[place]]
        # A megabyte twice would weigh too much.
        if len(other) < 3_000:
            documents[place] = other if kind[place] < COPY_SHARE else [*other[:-3], *documents[place][-3:]]
    return documents


if __name__ == "__main__":
    print(large_corpus(Path(sys.argv[1]), int(float(sys.argv[2]))), "documents")
