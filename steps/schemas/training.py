"""training.json: what a training step did."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PhaseSummary(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    steps: int
    learning_rate: float = Field(description="the phase's peak")
    tokens: int
    first_loss: float | None = Field(description="nats a token, of the phase's first step; None for a phase of none")
    last_loss: float | None
    seconds: float = Field(description="spent on these steps, over all attempts whose checkpoints were used")


class PretrainingSummary(BaseModel):
    """training.json of ContinuedPretraining."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    phases: dict[str, PhaseSummary]
    resumed_from_step: int
    processes: int
    parallelism: str = Field(description="none, or fsdp2 where every parameter was a DTensor")
    device: str
    precision: str
    liger: bool
    parameters: int
    tokens_per_second_per_device: float = Field(description="over all steps of both phases, validation left out")
    peak_memory_bytes: int = Field(description="of the first process: on the GPU with CUDA, else resident")
    validation_bits_per_byte: float
    validation_history: list[tuple[int, float]]


class FineTuningSummary(BaseModel):
    """training.json of FineTune."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    conversation_form: str
    conversations: int
    conversations_heldout: int
    conversations_dropped: dict[str, int] = Field(description="by reason; unreadable lines included")
    first_dropped: dict[str, str] = Field(description="file, line and fault of the first dropped for each reason")
    personal_data: dict[str, int] = Field(description="pieces found by kind, masked where mask_personal_data is set")
    steps: int
    lora_scaling: float
    trained_parameters: int
    first_loss: float
    last_loss: float
    validation_loss_before: float
    validation_loss: float
    merge_relative_difference: float = Field(
        description="largest logit difference between merged model and adapter over the largest absolute logit, float32"
    )
    stop_rate: float | None = Field(description="share of held-out prompts whose greedy reply ends by itself")
