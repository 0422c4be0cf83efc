"""Settings of ContinuedPretraining."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steps.contract import LARGEST_SEED, StepConfig

# More is a slip: a thousand times what the largest trainings take.
MOST_STEPS, MOST_TOKENS = 10**9, 10**10
# Settings that change speed, reports and safety, but not what is learned: with another value the step goes on from the
# same checkpoints, so they count neither in a checkpoint's key nor in the place where checkpoints lie.
NOT_LEARNED = (
    "device_batch_blocks",
    "parallelism",
    "activation_checkpointing",
    "compile_layers",
    "liger",
    "profile",
    "attention",
    "device",
    "log_every_steps",
    "validate_every_steps",
    "max_validation_blocks",
    "checkpoint_every_steps",
    "kept_checkpoints",
    "stop_grace_seconds",
    # For the step cache; a checkpoint's key has the digests of the inputs themselves.
    "base_model_digest",
)
# What phase 1's early end is decided by, where it may end early.
DECIDING = ("validate_every_steps", "max_validation_blocks")
# Settings that count only where they ask for something: checkpoints from before there were any are still good.
UNASKED = {"passes": 0.0, "block_order": "shuffled"}


class ContinuedPretrainingConfig(StepConfig):
    """Two phases of continued pretraining: embeddings only, then all weights."""

    phase_1_steps: int = Field(ge=0, le=MOST_STEPS, description="optimizer steps with the backbone frozen")
    phase_1_learning_rate: float = Field(gt=0, description="peak learning rate of phase 1")
    phase_1_warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up at the start of phase 1")
    phase_2_steps: int = Field(ge=0, le=MOST_STEPS, description="optimizer steps with all weights trainable")
    phase_2_learning_rate: float = Field(gt=0, description="peak learning rate of phase 2")
    phase_2_warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up at the start of phase 2")
    passes: float = Field(
        0.0,
        ge=0,
        le=1_000,
        description="0: the steps as given; above 0: the steps of both phases and their warm-ups are stretched in "
        "proportion so that together they read the corpus this many times, rounded up to a whole step",
    )
    block_order: Literal["shuffled", "sequential"] = Field(
        "shuffled",
        description="sequential: as the documents lie, in the order of their sha256, which no tokenizer changes",
    )
    phase_1_flat_evaluations: int = Field(
        0, ge=0, description="phase 1 ends early after this many validations without a gain; 0: never"
    )
    phase_1_flat_gain: float = Field(
        0.001, ge=0, description="validation bits per byte below the best so far that count as a gain"
    )
    schedule: Literal["cosine", "warmup_stable_decay"] = Field(
        "cosine", description="of the learning rate in each phase, after the warm-up"
    )
    decay_share: float = Field(
        0.2, gt=0, le=1, description="share of a phase's steps at its end in which warmup_stable_decay falls linearly"
    )
    final_learning_rate_share: float = Field(
        0.1, ge=0, le=1, description="share of the peak at which the learning rate of a phase ends"
    )
    global_batch_tokens: int = Field(ge=16, le=MOST_TOKENS, description="tokens of one optimizer step over all devices")
    device_batch_blocks: int = Field(ge=1, description="blocks of one forward and backward pass on one device")
    adam_beta_1: float = Field(0.9, ge=0, lt=1, description="AdamW's first decay")
    adam_beta_2: float = Field(0.95, ge=0, lt=1, description="AdamW's second decay")
    adam_epsilon: float = Field(1e-8, gt=0, description="AdamW's epsilon")
    weight_decay: float = Field(0.1, ge=0, description="AdamW's decoupled weight decay, for matrices of the backbone")
    decay_norms_and_embeddings: bool = Field(False, description="weight decay for norms, embedding and head as well")
    gradient_clip_norm: float = Field(1.0, gt=0, description="largest global norm of the gradient")
    precision: Literal["float32", "bfloat16_mixed", "bfloat16"] = Field(
        "bfloat16_mixed",
        description="bfloat16_mixed: float32 masters, bfloat16 compute; bfloat16: all of it, as published",
    )
    parallelism: Literal["auto", "none", "ddp", "fsdp"] = Field(
        "auto", description="none: one process; ddp: whole copies; fsdp: shards; auto: none or, with several, fsdp"
    )
    activation_checkpointing: bool = Field(False, description="recompute the activations of each layer when going back")
    compile_layers: bool = Field(False, description="torch.compile for each layer")
    liger: Literal["auto", "on", "off"] = Field("auto", description="Liger kernels; auto: on where CUDA is")
    profile: Literal["auto", "on", "off"] = Field(
        "auto", description="profile one step and keep its kernels in training.json; auto: on where CUDA is"
    )
    attention: Literal["auto", "sdpa", "flex", "flash"] = Field(
        "auto", description="attention over packed blocks; auto: flash where it can be, else sdpa, flex for long blocks"
    )
    source_replay_share: float = Field(
        # Takes 44% of the retention loss away for 0.02 bits per byte of the corpus (tests/verify/test_retention.py).
        0.1,
        ge=0,
        le=0.9,
        description="share of the training blocks that come from the source corpus, where one was given",
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the shuffled order of the blocks and of dropout")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where present")
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
    log_every_steps: int = Field(10, ge=1, description="steps between two lines of metrics")
    validate_every_steps: int = Field(500, ge=1, description="steps between two measurements on the validation blocks")
    max_validation_blocks: int = Field(64, ge=1, description="validation blocks used")
    checkpoint_every_steps: int = Field(500, ge=1, description="steps between two checkpoints")
    kept_checkpoints: int = Field(2, ge=1, description="newest checkpoints kept")
    stop_grace_seconds: float = Field(
        110, gt=0, description="between SIGTERM and the end: a checkpoint is written where it fits; SageMaker gives 120"
    )
    base_model_digest: str = Field("", description="digest of the base model where it is trained, for the cache key")


def not_learned(config: ContinuedPretrainingConfig) -> tuple[str, ...]:
    """The settings with another value of which the step goes on from the same checkpoints, and those not asked for."""
    deciding = DECIDING if config.phase_1_flat_evaluations > 0 else ()
    unasked = [name for name, default in UNASKED.items() if getattr(config, name) == default]
    return (*(name for name in NOT_LEARNED if name not in deciding), *unasked)
