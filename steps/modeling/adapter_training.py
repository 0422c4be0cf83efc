"""Training the adapter with TRL's SFTTrainer, on examples whose tokens and labels are already settled.

The base stays as it is, in the precision of the computation or quantised to 4 bits; the adapter and its optimizer are
float32. A stopped training goes on from its newest checkpoint to the same adapter, byte for byte (on one kind of
machine with one number of threads, which decides the order of sums).
"""

from __future__ import annotations

import functools
import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
)
from trl import SFTConfig, SFTTrainer

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import EXIT_TERMINATED, StepError, report, report_progress
from steps.modeling.adapter import chat_token_rows, lora_config, save_adapter
from steps.modeling.adapter_checkpoints import AdapterCheckpoints
from steps.modeling.adapter_validation import AdapterValidation
from steps.modeling.stopping import StopRequest, noting_sigterm
from steps.modeling.token_losses import has_plain_head, output_layer, summed_nats
from steps.text.assistant_mask import IGNORED_LABEL, Example


@dataclass(frozen=True)
class TrainingRun:
    """What the trainer did. losses: of each step, nats a trained token; validation_history: (step, the same on held-out
    conversations); adapter_step: after which the adapter that was taken stood; ended_early: by early stopping."""

    losses: list[float]
    trained_parameters: int
    validation_history: list[tuple[int, float]]
    adapter_step: int
    ended_early: bool
    resumed_from_step: int


class MetricsCallback(TrainerCallback):
    """Prints the loss every `every` steps and at the last; stops at one that is not finite."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.started = time.monotonic()

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        report_progress(state.global_step, state.max_steps, "steps")

    def on_step_end(self, args, state, control, **kwargs) -> None:
        report_progress(state.global_step, state.max_steps, "steps")

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        if not logs or "loss" not in logs:
            return
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            remedy = "Lower fine_tune.learning_rate, or take precision float32."
            raise StepError(f"loss at step {state.global_step}", loss, limit="a finite number", remedy=remedy)
        if state.global_step % self.every == 0 or state.global_step in (1, state.max_steps):
            seconds = round(time.monotonic() - self.started, 1)
            report(step=state.global_step, steps=state.max_steps, loss=loss, seconds=seconds)


class StopCallback(TrainerCallback):
    """After SIGTERM the step under way is the last one, and is kept where checkpoints are."""

    def __init__(self, stop: StopRequest, *, saves: bool) -> None:
        self.stop, self.saves = stop, saves

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if self.stop:
            control.should_save = self.saves
            control.should_training_stop = True


class AdapterTrainer(SFTTrainer):
    """TRL's trainer with a schedule whose first step learns, and a loss that sees every part of the adapter.

    The library's schedule begins at 0, so that a training of one step would leave the model as it was; its loss reads
    the matrix of the output head, where rows that are trained along do not lie.
    """

    def __init__(self, *, warmup_share: float, **arguments: Any) -> None:
        self._warmup_share = warmup_share
        with torch.no_grad():
            self._has_plain_head = has_plain_head(arguments["model"])
        super().__init__(**arguments)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Nats a trained token: of all passes that make one optimizer step together, where their number is given."""
        assert not return_outputs, "nobody asks for outputs"
        base = self.accelerator.unwrap_model(model).get_base_model()
        targets = inputs["labels"][:, 1:]
        is_trained = targets != IGNORED_LABEL
        is_plain = self._has_plain_head
        reader = base.get_decoder() if is_plain else base
        found = reader(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False)
        states = (found.last_hidden_state if is_plain else found.logits)[:, :-1][is_trained]
        logits_of = output_layer(base) if is_plain else torch.nn.Identity()
        nats = summed_nats(logits_of, states, targets[is_trained], base.config.get_text_config().vocab_size)
        return nats / (is_trained.sum() if num_items_in_batch is None else num_items_in_batch)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Linear warm-up and decay; raises as LambdaLR does."""
        share = functools.partial(learning_rate_share, steps=num_training_steps, warmup_share=self._warmup_share)
        optimizer = optimizer or self.optimizer
        assert optimizer is not None
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        return self.lr_scheduler


def learning_rate_share(step: int, *, steps: int, warmup_share: float) -> float:
    """Share of the peak at a step, counted from 0: up in a straight line over warmup_share of the steps, then down to
    0, which the step after the last would have."""
    warmup = math.ceil(warmup_share * steps)
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (steps - step) / (steps - warmup)) if warmup < steps else 1.0


def steps_of_one_pass(conversations: int, config: FineTuneConfig) -> int:
    """Optimizer steps in which each conversation is read once."""
    batches = math.ceil(conversations / config.batch_conversations)
    return math.ceil(batches / config.gradient_accumulation_steps)


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[Example],
    config: FineTuneConfig,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
    *,
    saves: bool = False,
) -> AdapterTrainer:
    """TRL's trainer on the tokens and labels as they are: it neither tokenises, masks nor cuts anything.

    folder: where it writes while it works. saves: checkpoints, every checkpoint_every_steps.
    """
    recomputes = config.activation_checkpointing == "on" or (
        config.activation_checkpointing == "auto" and model.device.type == "cuda"
    )
    arguments = SFTConfig(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_conversations,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,
        bf16=config.precision == "bfloat16",
        gradient_checkpointing=recomputes,
        gradient_checkpointing_kwargs={"use_reentrant": False} if recomputes else None,
        use_cpu=model.device.type == "cpu",
        dataloader_pin_memory=model.device.type == "cuda",
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        completion_only_loss=False,
        seed=config.seed,
        data_seed=config.seed,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps" if saves else "no",
        save_steps=config.checkpoint_every_steps,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    rows = [{"input_ids": example.input_ids, "labels": example.labels} for example in training]
    trainer = AdapterTrainer(
        warmup_share=config.warmup_share,
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=lora_config(
            config.lora_rank,
            config.lora_alpha,
            config.lora_dropout,
            config.target_modules,
            chat_token_rows(model, tokenizer) if config.train_chat_tokens else None,
        ),
        callbacks=[MetricsCallback(config.log_every_steps), *callbacks],
    )
    # It prints every step's values in a form of its own.
    trainer.remove_callback(PrinterCallback)
    return trainer


@contextmanager
def checkpoints_in(
    folder: Path | None, validation: AdapterValidation
) -> Iterator[tuple[AdapterCheckpoints | None, Path]]:
    """(checkpoints, None where they are not kept; the folder that the trainer writes to)."""
    if folder is not None:
        checkpoints = AdapterCheckpoints(folder, validation)
        yield checkpoints, checkpoints.unfinished
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield None, Path(scratch)


def train_adapter(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[Example],
    heldout: Sequence[Example],
    config: FineTuneConfig,
    adapter: Path,
    checkpoints_folder: Path | None = None,
) -> TrainingRun:
    """Trains the adapter and writes it to its folder, from the newest checkpoint on where there is one.

    After SIGTERM it keeps a checkpoint and raises SystemExit.
    """
    validation = AdapterValidation(heldout, config, steps_of_one_pass(len(training), config))
    with (
        noting_sigterm() as stop,
        checkpoints_in(checkpoints_folder, validation) as (checkpoints, folder),
        warnings.catch_warnings(),
    ):
        # TRL 1.16 still sets gradient_checkpointing, which transformers 5.24 renames.
        warnings.simplefilter("ignore", FutureWarning)
        saves = checkpoints is not None
        callbacks = [validation, StopCallback(stop, saves=saves), *([checkpoints] if checkpoints else [])]
        trainer = make_trainer(model, tokenizer, training, config, folder, callbacks, saves=saves)
        trained: Any = trainer.model
        assert isinstance(trained, PeftModel)
        parameters = sum(parameter.numel() for parameter in trained.parameters() if parameter.requires_grad)
        scaling = config.lora_alpha / config.lora_rank
        report(lora_rank=config.lora_rank, lora_scaling=scaling, trained_parameters=parameters)
        newest = checkpoints.latest() if checkpoints else None
        resumed_from = int(newest.name.rpartition("-")[2]) if newest else 0
        if newest:
            print(f"going on from {newest.name}", flush=True)
        trainer.train(resume_from_checkpoint=str(newest) if newest else None)
        if stop:
            raise SystemExit(EXIT_TERMINATED)
        adapter_step = validation.take_best(trained)
        save_adapter(trained, adapter)
        state = trainer.state
    return TrainingRun(
        losses=[entry["loss"] for entry in state.log_history if "loss" in entry],
        trained_parameters=parameters,
        validation_history=validation.history,
        adapter_step=adapter_step,
        ended_early=state.global_step < state.max_steps,
        resumed_from_step=resumed_from,
    )
