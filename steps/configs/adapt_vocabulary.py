"""Settings of AdaptVocabulary."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steps.contract import LARGEST_SEED, StepConfig

Initialiser = Literal["copy+subtoken_mean", "copy+mean", "focus", "extend", "normal"]


class AdaptVocabularyConfig(StepConfig):
    """How the rows of the new vocabulary get their first values."""

    initialiser: Literal[Initialiser, "best"] = Field(
        "copy+subtoken_mean",
        description="the one whose model is kept; best: that of compared_initialisers with the fewest bits per byte",
    )
    compared_initialisers: tuple[Initialiser, ...] = Field(
        (), description="further ones whose bits per byte at step 0 are measured beside it"
    )
    measured_documents: int = Field(64, ge=1, description="validation documents on which step 0 is measured")
    context_bytes: int = Field(2_048, ge=64, description="context of that measurement, in UTF-8 bytes")
    focus_training_bytes: int = Field(
        32 * 2**20, ge=1, description="training text for the static embedding of focus; 32 MiB take 2 GB of memory"
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of what is drawn: normal, focus")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where present")
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
    base_model_digest: str = Field("", description="digest of the base model, for the cache key")
