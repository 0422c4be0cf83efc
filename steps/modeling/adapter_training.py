"""Training the adapter with TRL's SFTTrainer, on examples whose tokens and labels are already settled."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import StepError, report, report_progress
from steps.modeling.adapter import lora_config, save_adapter
from steps.text.assistant_mask import Example


@dataclass(frozen=True)
class TrainingRun:
    """What the trainer did: the loss of each step in nats a trained token."""

    losses: list[float]
    trained_parameters: int


class MetricsCallback(TrainerCallback):
    """Keeps the loss of every step, prints it every `every` steps and at the last; stops at one that is not finite."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.losses: list[float] = []
        self.started = time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        report_progress(0, state.max_steps, "steps")

    def on_step_end(self, args, state, control, **kwargs) -> None:
        report_progress(state.global_step, state.max_steps, "steps")

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if not logs or "loss" not in logs:
            return
        loss = float(logs["loss"])
        self.losses.append(loss)
        if not math.isfinite(loss):
            remedy = "Lower fine_tune.learning_rate, or take precision float32."
            raise StepError(f"loss at step {state.global_step}", loss, limit="a finite number", remedy=remedy)
        if state.global_step % self.every == 0 or state.global_step in (1, state.max_steps):
            seconds = round(time.monotonic() - self.started, 1)
            report(step=state.global_step, steps=state.max_steps, loss=loss, seconds=seconds)


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[Example],
    config: FineTuneConfig,
    scratch: str,
) -> tuple[SFTTrainer, MetricsCallback]:
    """TRL's trainer on the tokens and labels as they are: it neither tokenises, masks nor cuts anything."""
    arguments = SFTConfig(
        output_dir=scratch,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_conversations,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        # Below 1 it is a share of the steps.
        warmup_steps=config.warmup_share,
        bf16=config.precision == "bfloat16",
        gradient_checkpointing=model.device.type == "cuda",
        use_cpu=model.device.type == "cpu",
        dataloader_pin_memory=model.device.type == "cuda",
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        completion_only_loss=False,
        seed=config.seed,
        data_seed=config.seed,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    rows = [{"input_ids": example.input_ids, "labels": example.labels} for example in training]
    metrics = MetricsCallback(config.log_every_steps)
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=lora_config(config.lora_rank, config.lora_alpha, config.lora_dropout, config.target_modules),
        callbacks=[metrics],
    )
    # It prints every step's values in a form of its own.
    trainer.remove_callback(PrinterCallback)
    return trainer, metrics


def train_adapter(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[Example],
    config: FineTuneConfig,
    adapter: Path,
) -> TrainingRun:
    """Trains the adapter and writes it to its folder; what the trainer leaves in its own folder is thrown away."""
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        # TRL 1.16 still sets gradient_checkpointing, which transformers 5.24 renames.
        warnings.simplefilter("ignore", FutureWarning)
        trainer, metrics = make_trainer(model, tokenizer, training, config, scratch)
        assert isinstance(trainer.model, PeftModel)
        trained = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
        report(
            lora_rank=config.lora_rank, lora_scaling=config.lora_alpha / config.lora_rank, trained_parameters=trained
        )
        trainer.train()
        save_adapter(trainer.model, adapter)
    return TrainingRun(metrics.losses, trained)
