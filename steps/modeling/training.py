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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import EXIT_TERMINATED, warn
from steps.modeling.batches import BatchPlan, labelled_tokens, on_device
from steps.modeling.checkpoints import CheckpointStore, training_state
from steps.modeling.parallel import Processes, accumulating, compute_precision, local_value, replicate, whole_value
from steps.modeling.schedule import Schedule
from steps.modeling.step_profile import StepProfiler
from steps.modeling.stopping import noting_sigterm
from steps.modeling.telemetry import peak_device_memory_bytes
from steps.modeling.training_progress import Progress, check_finite, end_of_phase_1, note_step, note_validation
from steps.modeling.utilisation import Utilisation
from steps.schemas.training import TelemetryRecord

# PyTorch's fused AdamW: one pass over parameter and moments, on these kinds of device.
FUSED_DEVICES = ("cpu", "cuda")


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
    """Makes the phase's parameters trainable and gives a fresh AdamW for them.

    Only matrices of the backbone decay, unless decay_norms_and_embeddings is set: the embedding's rows of rare tokens
    get no gradient that would hold against it.
    """
    backbone = backbone_parameters(model)
    for parameter in backbone.values():
        parameter.requires_grad_(phase == 2)
        parameter.grad = None
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in backbone.values() if parameter.requires_grad and parameter.ndim >= 2]
    if config.decay_norms_and_embeddings:
        decayed = trained
    known = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in trained if id(parameter) not in known]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": decayed, "weight_decay": config.weight_decay}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,
        betas=(config.adam_beta_1, config.adam_beta_2),
        eps=config.adam_epsilon,
        fused=trained[0].device.type in FUSED_DEVICES,
    )


# --- the surroundings -------------------------------------------------------------------------------------------------


@contextmanager
def deterministic_on_cpu(processes: Processes) -> Iterator[None]:
    """Refuses operations without a fixed order of summation, on CPU; on CUDA they would cost speed and memory."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(processes.device.type == "cpu" or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def close_phase_1(
    progress: Progress, config: ContinuedPretrainingConfig, model: PreTrainedModel, untouched: str, processes: Processes
) -> None:
    """Notes and says why phase 1 has ended; it must have left the backbone alone."""
    if backbone_digest(model) != untouched:
        raise AssertionError("phase 1 changed the backbone that it keeps frozen")
    progress.phase_1_end = progress.phase_1_end or "all its steps are done"
    if processes.is_first:
        print(f"phase 1 ends after step {progress.step} of {config.phase_1_steps}: {progress.phase_1_end}; "
              f"the backbone is the same to the byte (sha256 {untouched[:12]})", flush=True)  # fmt: skip


# --- the loop ---------------------------------------------------------------------------------------------------------


def train(
    model: PreTrainedModel,
    plan: BatchPlan,
    config: ContinuedPretrainingConfig,
    processes: Processes,
    store: CheckpointStore,
    *,
    validate: Callable[[PreTrainedModel], float],
    validate_source: Callable[[PreTrainedModel], float | None] = lambda model: None,
    observe: Callable[[TelemetryRecord], None] = lambda record: None,
    begin: Callable[[Sequence[TelemetryRecord]], None] = lambda records: None,
    tell: Callable[[int, int, str], None] = lambda done, total, unit: None,
    profiler: StepProfiler | None = None,
) -> tuple[Progress, int]:
    """Trains a model in place, from its newest checkpoint where there is one.

    model: placed by `place_model`. validate: bits per byte on held-out blocks; validate_source: on such of the source
    corpus, only watched. observe: gets a record every log_every_steps, at validations and at the ends of phases; begin:
    once, those of the attempts before this one. tell: gets finished steps, all steps and the word `steps`, before the
    first step and after each.
    Returns the progress and the step that it went on from (0 for a fresh start). Raises StepError at a loss that is
    not finite, and SystemExit(143) after SIGTERM, with a checkpoint written where it fits the grace period.
    """
    progress, schedule = Progress(), Schedule(config, config.phase_1_steps)
    optimizer: torch.optim.AdamW | None = None
    called: torch.nn.Module = model
    # Of the model as it came: a resumed phase 1 must end with the same backbone, too.
    untouched = backbone_digest(model) if config.phase_1_steps > 0 else ""
    profiler = profiler or StepProfiler("off", processes.device)
    utilisation = Utilisation(model, processes.device, config.precision)

    resumed_from = store.latest() or 0
    if resumed_from:
        progress = Progress.model_validate(store.read_progress(resumed_from))
        schedule = progress.schedule(config)
        # A set at the end of a phase holds no optimizer: what follows starts with a fresh one, or is nothing at all.
        if not schedule.ends_phase(resumed_from):
            optimizer = start_phase(model, config, schedule.phase_of(resumed_from))
            called = replicate(model, processes)
        store.load(resumed_from, training_state(model, optimizer))
        if processes.is_first:
            print(f"going on from the checkpoint of step {resumed_from}", flush=True)
    else:
        note_validation(progress, validate(model), validate_source(model))

    begin(progress.telemetry)
    tell(resumed_from, schedule.last, "steps")
    model.train()
    begun = time.monotonic()
    with store, noting_sigterm() as stop, deterministic_on_cpu(processes):
        while (step := progress.step) < schedule.last:
            started = time.monotonic()
            phase = schedule.phase_of(step)
            if optimizer is None or step == schedule.phase_1_steps:
                optimizer = start_phase(model, config, phase)
                called = replicate(model, processes)

            # Forward and backward. The loss is the mean over the labelled tokens of the whole global batch, however
            # it is cut: each pass gives its share of that mean, and the mean over processes is turned into a sum.
            torch.manual_seed((config.seed * 1_000_003 + step) * processes.world_size + processes.rank)
            batches = plan.device_batches(step, processes.rank, processes.world_size)
            (labelled,) = processes.sum(sum(labelled_tokens(batch) for batch in batches))
            normaliser = torch.tensor(labelled, dtype=torch.float32, device=processes.device)
            shares = []
            with profiler.around(step) if step > resumed_from else nullcontext():
                for number, batch in enumerate(batches, start=1):
                    inputs = on_device(batch, processes.device)
                    with accumulating(called, is_last=number == len(batches)):
                        with compute_precision(processes, config.precision):
                            loss = called(**inputs, use_cache=False, num_items_in_batch=normaliser).loss
                        (loss * processes.world_size).backward()
                    shares.append(loss.detach())

                # Update.
                norm = float(whole_value(clip_grad_norm_(model.parameters(), config.gradient_clip_norm)))
                loss_shares = torch.stack(shares).float().tolist()
                loss_value, stop_votes = processes.sum(sum(loss_shares), float(bool(stop)))
                rate = schedule.learning_rate(step)
                check_finite(step, loss_value, norm, loss_shares, plan, processes, rate)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            # Figures.
            seconds = time.monotonic() - started
            note_step(progress, schedule, plan.tokens_per_step, loss_value, seconds)
            done = progress.step
            if measures := done % config.validate_every_steps == 0 or done == schedule.last:
                note_validation(progress, validate(model), validate_source(model))
                if phase == 1 and done < schedule.phase_1_steps:
                    schedule = end_of_phase_1(progress, config, schedule, processes)
            if done == schedule.phase_1_steps:
                close_phase_1(progress, config, model, untouched, processes)
            tell(done, schedule.last, "steps")
            if step == resumed_from or done % config.log_every_steps == 0 or measures or schedule.ends_phase(done):
                speed = plan.tokens_per_step / seconds / processes.world_size
                record = TelemetryRecord(
                    step=done, phase=phase, loss=loss_value, learning_rate=rate, gradient_norm=norm,
                    validation_bits_per_byte=progress.validation_history[-1][1], tokens_per_second_per_device=speed,
                    source_validation_bits_per_byte=progress.source_bits_per_byte,
                    model_flop_utilisation=utilisation.of(speed, phase), epoch=plan.epochs(done),
                    peak_memory_bytes=peak_device_memory_bytes(processes.device), blocks_read=plan.blocks_read(done),
                    seconds_left=(time.monotonic() - begun) / (done - resumed_from) * (schedule.last - done),
                )  # fmt: skip
                progress.telemetry.append(record)
                observe(record)

            # Checkpoint.
            stops = stop_votes > 0 and done < schedule.last
            if stops and not store.fits(stop, config.stop_grace_seconds):
                warn("checkpoint-left-out", f"step {done} would not be written within {config.stop_grace_seconds:g} s")
            elif stops or schedule.ends_phase(done) or done % config.checkpoint_every_steps == 0:
                state = training_state(model, None if schedule.ends_phase(done) else optimizer)
                in_background = not stops and done < schedule.last
                store.save(done, state, progress.model_dump(mode="json"), in_background=in_background)
            if stops:
                raise SystemExit(EXIT_TERMINATED)
            store.poll()
    return progress, resumed_from
