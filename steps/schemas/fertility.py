"""fertility.json: every tokenizer candidate side by side."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TextFertility(BaseModel):
    """One candidate on one held-out text. A word is what stands between white space."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    tokens_per_word: float = Field(gt=0)
    ci95: tuple[float, float] = Field(description="bootstrap interval of tokens_per_word over documents")
    bytes_per_token: float = Field(gt=0)
    one_token_words: float = Field(ge=0, le=1, description="share of words that are one token")
    round_trip_errors: int = Field(ge=0, description="documents that decoding does not give back")


class FertilityCandidate(BaseModel):
    """One tokenizer: texts are `heldout`, and `extra` and `source` where the corpus has them."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str
    kind: Literal["base", "extended", "replaced", "bbpe", "unigram"]
    vocab_size: int
    texts: dict[Literal["heldout", "extra", "source"], TextFertility]
    train_seconds: float = Field(ge=0)
    peak_memory_bytes: int = Field(ge=0, description="peak resident memory of the process after this candidate")


class FertilityChange(BaseModel):
    """Tokens a word on the held-out text, at a path that does not depend on which candidate was chosen."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    base: float = Field(gt=0)
    chosen: float = Field(gt=0)


class FertilityReport(BaseModel):
    """The whole file; the base tokenizer is the first candidate."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    candidates: list[FertilityCandidate]
    chosen: str
    reason: str
    tokens_per_word: FertilityChange
    words_counted: Literal["whitespace"] = "whitespace"
