"""Settings of TrainTokenizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from steps.contract import LARGEST_SEED, ConfigError, StepConfig
from steps.vocabulary_size import VOCABULARY_MULTIPLE

Kind = Literal["bbpe", "bbpe-apostrophe", "unigram", "unigram-suffix", "extended", "replaced"]
# 256 bytes and 256 special tokens come before the first merge.
Size = Annotated[int, Field(ge=512 + VOCABULARY_MULTIPLE, multiple_of=VOCABULARY_MULTIPLE)]
NewTokens = Annotated[int, Field(ge=VOCABULARY_MULTIPLE, multiple_of=VOCABULARY_MULTIPLE)]


class TrainTokenizerConfig(StepConfig):
    """Which tokenizers are trained, and how one of them is chosen."""

    kinds: tuple[Kind, ...] = Field(
        ("bbpe",),
        min_length=1,
        description="candidates beside the base: bbpe, in Llama 3.2's configuration; bbpe-apostrophe, whose pattern "
        "keeps suffixes behind an apostrophe whole; unigram; unigram-suffix, with words cut at `suffixes`; extended, "
        "the base with new tokens; replaced, the base with new tokens in place of those of other scripts",
    )
    vocabulary_sizes: tuple[Size, ...] = Field(
        (4_096,),
        min_length=1,
        description="sizes of the bbpe and unigram kinds, special tokens included; multiples of 64",
    )
    extended_tokens: tuple[NewTokens, ...] = Field(
        (16_384,), min_length=1, description="numbers of new tokens of the kind extended; multiples of 64"
    )
    suffixes: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="suffixes that unigram-suffix cuts words at; azerbaijani and turkish stand for our lists"
    )
    min_frequency: int = Field(2, ge=1, description="times a pair must occur to be merged; all kinds but unigram")
    max_training_bytes: int = Field(
        300_000_000,
        ge=10_000,
        le=2_000_000_000,
        description="UTF-8 bytes of training text used; beyond, documents are sampled",
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the sample of documents")
    max_measured_bytes: int = Field(
        5_000_000, ge=10_000, description="UTF-8 bytes of each held-out text that candidates are measured on"
    )
    max_vocabulary_parameters_share: float = Field(
        0.5, gt=0, le=1, description="candidates whose embedding and head are a larger share of the model stay out"
    )
    min_gain: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="share of tokens a word that a larger vocabulary must save over the next smaller one to be chosen",
    )
    chosen: str = Field("", description="name of the candidate to take, such as bbpe-4096; empty: by the rule")
    base_model_digest: str = Field("", description="digest of the base model, for the cache key")

    @field_validator("kinds", "vocabulary_sizes", "extended_tokens")
    @classmethod
    def _each_once(cls, values: tuple[int | str, ...]) -> tuple[int | str, ...]:
        if len(set(values)) < len(values):
            raise ValueError("each of them once")
        return values

    @model_validator(mode="after")
    def _fields_agree(self) -> TrainTokenizerConfig:
        kind = self.chosen.rstrip("0123456789").rstrip("-")
        if self.chosen and kind not in self.kinds:
            limit = f"a candidate of the kinds {', '.join(self.kinds)}"
            remedy = f"Name one, such as {self.kinds[0]}-4096, or add its kind to train_tokenizer.kinds."
            raise ConfigError("train_tokenizer.chosen", self.chosen, limit=limit, remedy=remedy)
        if "unigram-suffix" in self.kinds:
            self._check_suffixes()
        return self

    def _check_suffixes(self) -> None:
        if not self.suffixes:
            limit = "at least one for the kind unigram-suffix"
            remedy = "Name suffixes, or azerbaijani or turkish for our lists."
            raise ConfigError("train_tokenizer.suffixes", "[]", limit=limit, remedy=remedy)
        for suffix in self.suffixes:
            if not suffix.isalpha():
                remedy = "Write it without hyphens, spaces and marks."
                raise ConfigError("train_tokenizer.suffixes", repr(suffix), limit="letters alone", remedy=remedy)
