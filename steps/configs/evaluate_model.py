"""Settings of Evaluate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steps.contract import LARGEST_SEED, StepConfig


class EvaluateModelConfig(StepConfig):
    """How models are measured on held-out documents."""

    context_bytes: int = Field(4_096, ge=64, description="context of the headline figure, in UTF-8 bytes")
    context_tokens: int = Field(1_024, ge=16, description="context of the figure at equal tokens")
    batch_tokens: int = Field(16_384, ge=16, description="tokens of one forward pass, padding included")
    max_documents: int = Field(2_000, ge=1, description="documents scored of each held-out set, first by hash")
    max_accuracy_items: int = Field(1_000, ge=1, description="questions of each accuracy file, first by hash")
    samples: int = Field(5, ge=0, le=100, description="held-out prompts continued greedily by each model")
    sample_prompt_words: int = Field(12, ge=1, description="words of a held-out document that make its prompt")
    sample_new_tokens: int = Field(40, ge=1, description="tokens of one continuation at most")
    bootstrap_resamples: int = Field(2_000, ge=100, description="resamples of the paired bootstrap")
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the bootstrap")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where present")
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
    matmul_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the models below their output layer; bfloat16 is faster on a GPU, and less exact"
    )
    champion_present: bool = Field(False, description="False: no version is approved and the base model stands in")
    base_model_digest: str = Field("", description="digest of the base model, for the cache key")
    accuracy_digest: str = Field("", description="digest of the accuracy files, for the cache key")
    champion_digest: str = Field("", description="digest of the champion, for the cache key")
