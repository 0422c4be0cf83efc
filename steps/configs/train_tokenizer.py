"""Settings of TrainTokenizer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from steps.contract import StepConfig


class TrainTokenizerConfig(StepConfig):
    """Which tokenizers are trained, and how one of them is chosen."""

    # 256 bytes and 256 special tokens come before the first merge; 64 is VOCABULARY_MULTIPLE of steps/text/bbpe.py.
    vocabulary_sizes: tuple[Annotated[int, Field(ge=576, multiple_of=64)], ...] = Field(
        (4_096,), min_length=1, description="sizes of the BBPE candidates, special tokens included; multiples of 64"
    )
    min_frequency: int = Field(2, ge=1, description="times a pair must occur in the training text to be merged")
    max_training_bytes: int = Field(
        2_000_000_000, ge=10_000, description="UTF-8 bytes of training text used; documents are sampled by hash beyond"
    )
    fertility_tolerance: float = Field(
        0.03, ge=0, lt=1, description="the smallest candidate within this share of the lowest fertility is chosen"
    )
    chosen: str = Field("", description="name of the candidate to take, such as bbpe-4096; empty: by the rule")
    base_model_digest: str = Field("", description="digest of the base model, for the cache key")

    @field_validator("vocabulary_sizes")
    @classmethod
    def _each_size_once(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(sizes)) < len(sizes):
            raise ValueError("each size once")
        return sizes
