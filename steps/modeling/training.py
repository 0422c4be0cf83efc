"""Continued pretraining in two phases: one plain loop for one process and for many.

Phase 1 trains the input embedding and the output head, the backbone frozen: new rows find their place before they can
disturb what the backbone knows. Phase 2 trains everything. Each phase has an AdamW and a learning rate schedule of its
own: phase 1's moments speak of a model whose backbone stood still, so phase 2 starts without them.

The state after n steps is a pure function of model, blocks and settings. Batches, learning rates and random numbers
follow from the step's number, and a checkpoint holds the rest, so a run that was killed and started again ends in the
same bytes as one that was not (for the same machine and number of processes and threads).
"""

from __future__ import annotations

import hashlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from pydantic import BaseModel
from transformers import PreTrainedModel

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import EXIT_TERMINATED, ConfigError, StepError, report
from steps.modeling.batches import BatchPlan, labelled_tokens
from steps.modeling.checkpoints import CheckpointStore, training_state
from steps.modeling.parallel import Processes, compute_precision, local_value, whole_value
from steps.schemas.training import PhaseSummary


class Progress(BaseModel):
    """What a checkpoint keeps beside the tensors: finished steps, the phases so far by name, the validation figures."""

    step: int = 0
    phases: dict[str, PhaseSummary] = {}
    validation_history: list[tuple[int, float]] = []


# --- the schedule -----------------------------------------------------------------------------------------------------


def phase_of(step: int, config: ContinuedPretrainingConfig) -> int:
    """1 or 2: the phase of the step of that number, counted from 0."""
    return 1 if step < config.phase_1_steps else 2


def learning_rate(step: int, config: ContinuedPretrainingConfig) -> float:
    """Linear warm-up to the phase's peak, then a cosine down to the final share of it at the phase's last step."""
    if phase_of(step, config) == 1:
        place, steps, peak = step, config.phase_1_steps, config.phase_1_learning_rate
        warmup = config.phase_1_warmup_steps
    else:
        place, steps, peak = step - config.phase_1_steps, config.phase_2_steps, config.phase_2_learning_rate
        warmup = config.phase_2_warmup_steps
    if place < warmup:
        return peak * (place + 1) / warmup
    share = (place - warmup) / max(1, steps - warmup - 1)
    floor = config.final_learning_rate_share
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share)))


def check_schedule(config: ContinuedPretrainingConfig) -> None:
    """Raises ConfigError for a warm-up that outlasts its phase."""
    for name in ("phase_1", "phase_2"):
        steps, warmup = getattr(config, f"{name}_steps"), getattr(config, f"{name}_warmup_steps")
        if warmup > steps:
            remedy = "Shorten the warm-up or lengthen the phase."
            raise ConfigError(f"continued_pretraining.{name}_warmup_steps", warmup, limit=steps, remedy=remedy)


# --- what is trained --------------------------------------------------------------------------------------------------


def backbone_parameters(model: PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """All parameters but the input embedding and the output head, by name."""
    ends = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    return {name: parameter for name, parameter in model.named_parameters() if id(parameter) not in ends}


def backbone_digest(model: PreTrainedModel) -> str:
    """sha256 over the bytes of this process's share of the backbone."""
    digest = hashlib.sha256()
    for parameter in backbone_parameters(model).values():
        digest.update(local_value(parameter.detach()).cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def start_phase(model: PreTrainedModel, config: ContinuedPretrainingConfig, phase: int) -> torch.optim.AdamW:
    """Makes the phase's parameters trainable and gives a fresh AdamW for them. Only matrices of the backbone decay: the
    embedding's rows of rare tokens get no gradient that would hold against it."""
    backbone = backbone_parameters(model)
    for parameter in backbone.values():
        parameter.requires_grad_(phase == 2)
        parameter.grad = None
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in backbone.values() if parameter.requires_grad and parameter.ndim == 2]
    known = {id(parameter) for parameter in decayed}
    groups = [{"params": [parameter for parameter in trained if id(parameter) not in known], "weight_decay": 0.0}]
    if decayed:
        groups.append({"params": decayed, "weight_decay": config.weight_decay})
    betas = (config.adam_beta_1, config.adam_beta_2)
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.adam_epsilon)


# --- the surroundings -------------------------------------------------------------------------------------------------


class StopRequest:
    """True once SIGTERM has come, for the end of the step that is running."""

    def __init__(self) -> None:
        self.came = False

    def __bool__(self) -> bool:
        return self.came

    def note(self, number: int, frame: object) -> None:
        self.came = True


@contextmanager
def noting_sigterm() -> Iterator[StopRequest]:
    """Within it SIGTERM is noted instead of ending the process at once."""
    stop = StopRequest()
    previous = signal.signal(signal.SIGTERM, stop.note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def deterministic_on_cpu(processes: Processes) -> Iterator[None]:
    """Refuses operations without a fixed order of summation, on CPU; on CUDA they would cost speed and memory."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(processes.device.type == "cpu" or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def note_step(
    progress: Progress, config: ContinuedPretrainingConfig, phase: int, tokens: int, loss: float, seconds: float
) -> PhaseSummary:
    """Counts a finished step in its phase's summary, which it returns."""
    peak = config.phase_1_learning_rate if phase == 1 else config.phase_2_learning_rate
    empty = PhaseSummary(steps=0, learning_rate=peak, tokens=0, first_loss=loss, last_loss=None, seconds=0.0)
    summary = progress.phases.setdefault(f"phase_{phase}", empty)
    summary.steps += 1
    summary.tokens += tokens
    summary.last_loss = loss
    summary.seconds += seconds
    progress.step += 1
    return summary


def check_finite(step: int, loss: float, gradient_norm: float) -> None:
    """Raises StepError that names the step where loss or gradient is NaN or infinite."""
    for name, value in (("loss", loss), ("gradient norm", gradient_norm)):
        if not math.isfinite(value):
            remedy = "Lower the learning rate or lengthen the warm-up; the last checkpoint is before this step."
            raise StepError(f"{name} at step {step}", value, limit="a finite number", remedy=remedy)


# --- the loop ---------------------------------------------------------------------------------------------------------


def train(
    model: PreTrainedModel,
    plan: BatchPlan,
    config: ContinuedPretrainingConfig,
    processes: Processes,
    store: CheckpointStore,
    *,
    validate: Callable[[PreTrainedModel], float],
    observe: Callable[..., None] = report,
    tell: Callable[[int, int, str], None] | None = None,
) -> tuple[Progress, int]:
    """Trains a model in place, from its newest checkpoint where there is one.

    model: placed by `place_model`. validate: bits per byte on held-out blocks. observe: gets `step` and named figures.
    tell: gets finished steps, all steps and the word `steps`, before the first step and after each.
    Returns the progress and the step that it went on from (0 for a fresh start). Raises StepError at a loss that is
    not finite, and SystemExit(143) after SIGTERM, with a checkpoint written.
    """
    phase_1_end, last = config.phase_1_steps, config.phase_1_steps + config.phase_2_steps
    # Sets at these steps hold no optimizer: what follows starts with a fresh one, or is nothing at all.
    without_optimizer = (phase_1_end, last)
    progress = Progress()
    optimizer: torch.optim.AdamW | None = None
    # Of the model as it came: a resumed phase 1 must end with the same backbone, too.
    untouched = backbone_digest(model) if phase_1_end > 0 else ""

    resumed_from = store.latest() or 0
    if resumed_from:
        progress = Progress.model_validate(store.read_progress(resumed_from))
        if resumed_from not in without_optimizer:
            optimizer = start_phase(model, config, phase_of(resumed_from, config))
        store.load(resumed_from, training_state(model, optimizer))
        if processes.is_first:
            print(f"going on from the checkpoint of step {resumed_from}", flush=True)
    else:
        progress.validation_history.append((0, validate(model)))

    if tell is not None:
        tell(resumed_from, last, "steps")
    model.train()
    with noting_sigterm() as stop, deterministic_on_cpu(processes):
        for step in range(resumed_from, last):
            started = time.monotonic()
            phase = phase_of(step, config)
            if optimizer is None or step == phase_1_end:
                optimizer = start_phase(model, config, phase)

            # Forward and backward. The loss is the mean over the labelled tokens of the whole global batch, however
            # it is cut: each pass gives its share of that mean, and FSDP's mean over processes is turned into a sum.
            torch.manual_seed((config.seed * 1_000_003 + step) * processes.world_size + processes.rank)
            batches = plan.device_batches(step, processes.rank, processes.world_size)
            (labelled,) = processes.sum(sum(labelled_tokens(batch) for batch in batches))
            normaliser = torch.tensor(labelled, dtype=torch.float32, device=processes.device)
            loss_share = torch.zeros((), device=processes.device)
            for batch in batches:
                inputs = {name: tensor.to(processes.device) for name, tensor in batch.items()}
                with compute_precision(processes, config.precision):
                    loss = model(**inputs, use_cache=False, num_items_in_batch=normaliser).loss
                (loss * processes.world_size).backward()
                loss_share += loss.detach()

            # Update.
            trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            norm = float(whole_value(torch.nn.utils.clip_grad_norm_(trained, config.gradient_clip_norm)))
            loss_value, stop_votes = processes.sum(float(loss_share), float(bool(stop)))
            check_finite(step, loss_value, norm)
            rate = learning_rate(step, config)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            # Figures.
            seconds = time.monotonic() - started
            note_step(progress, config, phase, plan.tokens_per_step, loss_value, seconds)
            done = step + 1
            if tell is not None:
                tell(done, last, "steps")
            if done == phase_1_end and backbone_digest(model) != untouched:
                raise AssertionError("phase 1 changed the backbone that it keeps frozen")
            at_end_of_phase = done in (phase_1_end, last)
            if step == resumed_from or done % config.log_every_steps == 0 or at_end_of_phase:
                speed = plan.tokens_per_step / seconds
                observe(step=done, phase=phase, loss=loss_value, learning_rate=rate, gradient_norm=norm,
                        tokens_per_second=round(speed))  # fmt: skip
            if done % config.validate_every_steps == 0 or done == last:
                progress.validation_history.append((done, validate(model)))
                observe(step=done, validation_bits_per_byte=progress.validation_history[-1][1])

            # Checkpoint.
            if stop_votes or at_end_of_phase or done % config.checkpoint_every_steps == 0:
                kept_optimizer = None if done in without_optimizer else optimizer
                store.save(done, training_state(model, kept_optimizer), progress.model_dump(mode="json"))
            if stop_votes and done < last:
                raise SystemExit(EXIT_TERMINATED)
    return progress, resumed_from
