"""Settings of FineTune."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steps.contract import LARGEST_SEED, StepConfig

# Settings that change speed, reports and safety, but not what is learned: with another value the step goes on from the
# same checkpoints, so they count neither in a checkpoint's key nor in the place where checkpoints lie.
NOT_LEARNED = (
    "activation_checkpointing",
    "device",
    "log_every_steps",
    "checkpoint_every_steps",
    "max_dropped_share",
    "max_merge_difference",
    # For the step cache; a checkpoint's key has the digest of the conversations themselves.
    "conversations_digest",
)


class FineTuneConfig(StepConfig):
    """LoRA fine-tuning on conversations, loss on the assistant's tokens alone."""

    lora_rank: int = Field(64, ge=1, description="rank of the adapter")
    lora_alpha: float = Field(128, gt=0, description="the adapter is scaled by alpha / rank")
    lora_dropout: float = Field(0.05, ge=0, lt=1, description="dropout before the adapter")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="linear layers that get an adapter",
    )
    train_chat_tokens: bool = Field(
        True,
        description="train the rows of the control tokens of a chat along: pretraining never sees these tokens",
    )
    max_tokens: int = Field(1_024, ge=16, description="longest conversation, in tokens")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate, linear decay to 0")
    warmup_share: float = Field(0.03, ge=0, lt=1, description="share of the steps with linear warm-up")
    epochs: float = Field(1, gt=0, description="passes over the conversations")
    batch_conversations: int = Field(8, ge=1, description="conversations of one optimizer step on one device")
    gradient_accumulation_steps: int = Field(1, ge=1, description="passes that make one optimizer step")
    validation_share: float = Field(0.1, gt=0, lt=0.5, description="share of conversations held out by hash")
    validate_every_steps: int = Field(
        0, ge=0, description="steps between two losses of the held-out conversations; 0: one pass over the others"
    )
    early_stopping_validations: int = Field(
        0,
        ge=0,
        description="the training ends after this many validations without a lower loss, and the adapter of the lowest "
        "is taken; 0: it never ends early, and the last adapter is taken",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the base's weights and of the computation; the adapter is float32 always"
    )
    base_quantisation: Literal["none", "nf4"] = Field(
        "none", description="nf4: linear layers of the base in 4 bits while training (needs bitsandbytes)"
    )
    activation_checkpointing: Literal["auto", "on", "off"] = Field(
        "auto", description="recompute the activations of each layer when going back; auto: on where CUDA is"
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="seed of the adapter and of the order")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where present")
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
    log_every_steps: int = Field(5, ge=1, description="steps between two lines of metrics")
    checkpoint_every_steps: int = Field(100, ge=1, description="steps between two checkpoints; two are kept")
    max_dropped_share: float = Field(
        0.1,
        ge=0,
        le=1,
        description="share of conversations that cannot be used (no answer, roles out of order, too long, no JSON) "
        "beyond which the step stops",
    )
    mask_personal_data: bool = Field(
        False, description="put placeholders for e-mail addresses, telephone, card, account and document numbers"
    )
    max_merge_difference: float = Field(
        1e-3,
        gt=0,
        description="largest logit difference allowed between adapter model and merged model, both in float32, as a "
        "share of the largest absolute logit",
    )
    conversations_digest: str = Field("", description="digest of the conversations, for the cache key")


def not_learned(config: FineTuneConfig) -> tuple[str, ...]:
    """The settings with another value of which the step goes on from the same checkpoints."""
    # Validations decide what is learned where they may end the training.
    return NOT_LEARNED if config.early_stopping_validations > 0 else (*NOT_LEARNED, "validate_every_steps")
