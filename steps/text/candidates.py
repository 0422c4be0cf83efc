"""The tokenizers that a configuration asks for, by name, each beside the base."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from tokenizers import Tokenizer

from steps.configs.train_tokenizer import Kind, TrainTokenizerConfig
from steps.text.bbpe import (
    APOSTROPHE_PATTERN,
    LLAMA_3_PATTERN,
    SMALLEST_VOCABULARY,
    learnt_tokens,
    shrink,
    train_bbpe,
)
from steps.text.chat_template import CHAT_TOKENS
from steps.text.extension import Base, count_base_pretokens, extend, replace
from steps.text.pretokens import count_pretokens
from steps.text.suffixes import AZERBAIJANI_SUFFIXES, TURKISH_SUFFIXES, split_counts, suffix_pattern
from steps.text.unigram import train_unigram
from steps.vocabulary_size import VOCABULARY_MULTIPLE

SUFFIX_LISTS = {"azerbaijani": AZERBAIJANI_SUFFIXES, "turkish": TURKISH_SUFFIXES}


@dataclass(frozen=True)
class Candidate:
    """A tokenizer, and the seconds of the training that it came of, alone or with others."""

    name: str
    kind: Literal["base", "extended", "replaced", "bbpe", "unigram"]
    tokenizer: Tokenizer
    train_seconds: float


@dataclass
class CandidateTraining:
    """Trains the kinds that are asked for, one after another.

    texts: begins the training documents anew. protected: begins documents of the base's language anew, whose ids the
    kinds extended and replaced leave as they are. left_out: fills with what came to nothing, and why.
    """

    config: TrainTokenizerConfig
    base: Tokenizer
    texts: Callable[[], Iterable[str]]
    protected: Callable[[], Iterable[str]]
    left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises StepError for what is known to be wrong before hours of training."""
        if {"extended", "replaced"} & {*self.config.kinds}:
            self._base = Base(self.base)

    def candidates(self) -> Iterator[Candidate]:
        """Every candidate, in the order of the kinds and sizes."""
        for kind in self.config.kinds:
            if kind == "bbpe":
                yield from self._bbpe("bbpe", LLAMA_3_PATTERN)
            elif kind == "bbpe-apostrophe":
                yield from self._bbpe("bbpe-apostrophe", APOSTROPHE_PATTERN)
            elif kind in ("unigram", "unigram-suffix"):
                yield from self._unigram(kind)
            elif kind == "extended":
                yield from self._extended()
            else:
                yield from self._replaced()

    def expected(self) -> int:
        """How many there are if nothing comes to nothing."""
        sizes, more = len(self.config.vocabulary_sizes), len(self.config.extended_tokens)
        numbers = {"extended": more, "replaced": 1}
        return sum(numbers.get(kind, sizes) for kind in self.config.kinds)

    def _bbpe(self, name: str, pattern: str) -> Iterator[Candidate]:
        # BPE makes its merges one after another, so the largest vocabulary contains the smaller ones.
        started = time.monotonic()
        trained = train_bbpe(self.texts, max(self.config.vocabulary_sizes), self.config.min_frequency, pattern)
        seconds = time.monotonic() - started
        for size in self._sizes(name, learnt_tokens(trained)):
            yield Candidate(f"{name}-{size}", "bbpe", shrink(trained, size), seconds)

    def _unigram(self, name: Kind) -> Iterator[Candidate]:
        started = time.monotonic()
        if name == "unigram-suffix":
            pattern = self._suffix_pattern()
            counts = split_counts(count_pretokens(self.texts(), APOSTROPHE_PATTERN), pattern)
        else:
            pattern = LLAMA_3_PATTERN
            counts = count_pretokens(self.texts(), pattern)
        trained = train_unigram(counts, self.config.vocabulary_sizes, pattern)
        seconds = time.monotonic() - started
        for size in self._sizes(name, trained.learnable):
            # Where the text gives less than a size, its tokenizer has what the text gives.
            asked = min(asked for asked in self.config.vocabulary_sizes if asked >= size)
            yield Candidate(f"{name}-{size}", "unigram", trained.tokenizers[asked], seconds)

    def _extended(self) -> Iterator[Candidate]:
        for asked in sorted(self.config.extended_tokens):
            started = time.monotonic()
            tokenizer = extend(self._base, self._counts, self._kept, asked, self.config.min_frequency)
            learnt = len(tokenizer.get_vocab().keys() - self.base.get_vocab().keys() - {*CHAT_TOKENS})
            name = f"extended-{asked}"
            if learnt < asked:
                self.left_out[name] = f"the training text gives {learnt:,} new tokens"
                name = f"extended-{learnt}"
            if learnt > 0:
                yield Candidate(name, "extended", tokenizer, time.monotonic() - started)
            if learnt < asked:
                return

    def _replaced(self) -> Iterator[Candidate]:
        started = time.monotonic()
        tokenizer = replace(self._base, self._counts, self._kept, self.config.min_frequency)
        if tokenizer.get_vocab() == self.base.get_vocab():
            self.left_out["replaced"] = "no token of another script in the base, or nothing to learn"
            return
        yield Candidate("replaced", "replaced", tokenizer, time.monotonic() - started)

    def _sizes(self, name: str, learnt: int) -> list[int]:
        """The sizes that come of a training that learnt so many tokens: those asked for up to there, and in place of
        larger ones what was learnt, in a multiple of 64."""
        asked = sorted(self.config.vocabulary_sizes)
        sizes = [size for size in asked if size <= learnt]
        for size in asked[len(sizes) :]:
            self.left_out[f"{name}-{size}"] = f"the training text gives {learnt:,} tokens"
        most = learnt // VOCABULARY_MULTIPLE * VOCABULARY_MULTIPLE
        if len(sizes) < len(asked) and most > max([SMALLEST_VOCABULARY, *sizes]):
            sizes.append(most)
        return sizes

    def _suffix_pattern(self) -> str:
        return suffix_pattern([suffix for name in self.config.suffixes for suffix in SUFFIX_LISTS.get(name, (name,))])

    @cached_property
    def _counts(self) -> Counter[str]:
        return count_base_pretokens(self.base, self.texts())

    @cached_property
    def _kept(self) -> list[str]:
        return sorted(count_base_pretokens(self.base, self.protected()))
