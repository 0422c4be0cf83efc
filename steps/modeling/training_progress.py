"""Where a training stands: what is counted, decided and refused between two steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import BaseModel

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import StepError
from steps.modeling.batches import BatchPlan
from steps.modeling.parallel import Processes
from steps.modeling.schedule import Schedule, flat_reason
from steps.schemas.training import PhaseSummary, TelemetryRecord

# Blocks that the error of a loss that is not finite names.
NAMED_BLOCKS = 16


class Progress(BaseModel):
    """What a checkpoint keeps beside the tensors.

    step: finished ones. phases: so far, by name. phase_1_steps: where phase 1 has ended early, else None. phase_1_end:
    why it ended, None before its end. telemetry: what was told so far. source_bits_per_byte: as measured last, None
    without a source corpus.
    """

    step: int = 0
    phases: dict[str, PhaseSummary] = {}
    phase_1_steps: int | None = None
    phase_1_end: str | None = None
    validation_history: list[tuple[int, float]] = []
    source_bits_per_byte: float | None = None
    telemetry: list[TelemetryRecord] = []

    def schedule(self, config: ContinuedPretrainingConfig) -> Schedule:
        """The phases as these measurements have left them."""
        return Schedule(config, config.phase_1_steps if self.phase_1_steps is None else self.phase_1_steps)


def note_step(progress: Progress, schedule: Schedule, tokens: int, loss: float, seconds: float) -> PhaseSummary:
    """Counts a finished step in its phase's summary, which it returns."""
    phase = schedule.phase_of(progress.step)
    empty = PhaseSummary(
        steps=0, learning_rate=schedule.peak(phase), tokens=0, first_loss=loss, last_loss=None, seconds=0.0
    )
    summary = progress.phases.setdefault(f"phase_{phase}", empty)
    summary.steps += 1
    summary.tokens += tokens
    summary.last_loss = loss
    summary.seconds += seconds
    progress.step += 1
    return summary


def note_validation(progress: Progress, bits_per_byte: float, source_bits_per_byte: float | None) -> None:
    """Keeps what was measured after the steps that are done."""
    progress.validation_history.append((progress.step, bits_per_byte))
    progress.source_bits_per_byte = source_bits_per_byte


def check_finite(
    step: int,
    loss: float,
    gradient_norm: float,
    shares: Sequence[float],
    plan: BatchPlan,
    processes: Processes,
    learning_rate: float,
) -> None:
    """Raises StepError that names step and blocks where loss or gradient is NaN or infinite.

    shares: the loss of each pass of this process. Of the passes whose loss is not finite the first is named, else all.
    """
    if math.isfinite(loss) and math.isfinite(gradient_norm):
        return
    faulty = [number for number, share in enumerate(shares) if not math.isfinite(share)]
    found = [(rank, passes[0]) for rank, passes in enumerate(processes.gather(faulty)) if passes]
    ranks = [found[0][0]] if found else range(processes.world_size)
    blocks = [block for rank in ranks for block in plan.indices(step, rank, processes.world_size).tolist()]
    if found:
        first = found[0][1] * plan.device_batch_blocks
        blocks = blocks[first : first + plan.device_batch_blocks]
    named = ", ".join(map(str, blocks[:NAMED_BLOCKS])) + (" and more" if len(blocks) > NAMED_BLOCKS else "")
    name, value = ("loss", loss) if not math.isfinite(loss) else ("gradient norm", gradient_norm)
    remedy = (
        f"Lower the learning rate ({learning_rate:.3g} at this step) or lengthen the warm-up; a checkpoint, where "
        "there is one, is of before this step."
    )
    raise StepError(f"{name} at step {step}, blocks {named}", value, limit="a finite number", remedy=remedy)


def end_of_phase_1(
    progress: Progress, config: ContinuedPretrainingConfig, schedule: Schedule, processes: Processes
) -> Schedule:
    """The schedule, phase 1 cut to the steps that are done where its validation figures are flat.

    Called in phase 1 after a validation. The first process decides for all.
    """
    reason = processes.gather(flat_reason(progress.validation_history, config))[0]
    if reason is None:
        return schedule
    progress.phase_1_steps, progress.phase_1_end = progress.step, reason
    return Schedule(config, progress.step)
