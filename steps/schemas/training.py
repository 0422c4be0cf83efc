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


class TelemetryRecord(BaseModel):
    """A line of telemetry.jsonl, and of the log: the training after a step. None stands for what was not measured."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int = Field(description="finished steps")
    phase: int
    loss: float = Field(description="nats a token, of this step")
    validation_bits_per_byte: float | None = Field(description="as measured last")
    source_validation_bits_per_byte: float | None = Field(
        None, description="the same on held-out documents of the source corpus, where one was given"
    )
    learning_rate: float
    gradient_norm: float = Field(description="before clipping")
    tokens_per_second_per_device: float = Field(description="of this step, padding included")
    model_flop_utilisation: float | None = Field(
        description="see steps/modeling/utilisation.py; None without a known peak"
    )
    peak_memory_bytes: int = Field(description="of the first process: on the GPU with CUDA, else resident")
    blocks_read: int = Field(description="position in the data, since step 0")
    epoch: float = Field(description="the same, in passes over all blocks")
    seconds_left: float = Field(description="at the speed of this attempt, validation and checkpoints included")


class KernelTime(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str
    calls: int
    microseconds: float = Field(description="of all calls, what they started left out")


class StepProfile(BaseModel):
    """The kernels of one step on a GPU, or torch's operators on CPU."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    step: int = Field(description="the step's number, counted from 1")
    total_microseconds: float
    fused_kernels: list[KernelTime] = Field(description="all of Liger's; none on CPU")
    kernels: list[KernelTime] = Field(description="those that took longest")


class PretrainingSummary(BaseModel):
    """training.json of ContinuedPretraining."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    phases: dict[str, PhaseSummary]
    corpus_passes: float = Field(description="how often the corpus was read, replayed text left out")
    corpus_bytes: int = Field(description="UTF-8 bytes of the corpus, once")
    phase_1_end: str | None = Field(description="why phase 1 ended; None without one")
    resumed_from_step: int
    processes: int
    parallelism: str = Field(description="none, ddp, or fsdp2 where every parameter was a DTensor")
    device: str
    precision: str
    liger: bool
    parameters: int
    flops_per_token: dict[str, float] = Field(description="by phase; see steps/modeling/utilisation.py")
    flops: float = Field(description="of all steps: flops_per_token x tokens, by phase; validation left out")
    peak_flops_per_second: float | None = Field(description="of the device in this precision; None where unknown")
    tokens_per_second_per_device: float = Field(description="over all steps of both phases, validation left out")
    peak_memory_bytes: int = Field(description="of the first process: on the GPU with CUDA, else resident")
    validation_bits_per_byte: float
    source_validation_bits_per_byte: float | None = Field(None, description="None without a source corpus")
    validation_history: list[tuple[int, float]]
    profile: StepProfile | None = Field(description="of one step, where the setting `profile` asks for it")


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
    first_loss: float = Field(description="nats a trained token, of the first step")
    last_loss: float
    validation_loss_before: float = Field(description="nats a trained token of the held-out conversations, before")
    validation_loss: float = Field(description="the same of the merged model as saved")
    validation_history: list[tuple[int, float]] = Field(description="(step, the same of the adapter model)")
    adapter_step: int = Field(description="after this step the adapter that was taken stood")
    ended_early: bool = Field(description="by early stopping")
    resumed_from_step: int
    merge_relative_difference: float = Field(
        description="largest logit difference between merged model and adapter over the largest absolute logit, float32"
    )
    stop_rate_training: float | None = Field(
        description="share of prompts trained on whose greedy reply ends by itself, at the end of turn; None: no room"
    )
    stop_rate_heldout: float | None = Field(description="the same of held-out prompts")
