"""When the phases end and what the learning rate is: pure functions of a step's number and of measurements kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import ConfigError


@dataclass(frozen=True)
class Schedule:
    """The phases of a training. phase_1_steps: as set, or fewer where phase 1 has ended early.

    Where passes over the corpus are asked for, phase 2 takes the steps that phase 1 leaves.
    """

    config: ContinuedPretrainingConfig
    phase_1_steps: int

    @property
    def phase_2_steps(self) -> int:
        """Steps of phase 2."""
        left = self.config.phase_1_steps - self.phase_1_steps if self.config.passes else 0
        return self.config.phase_2_steps + left

    @property
    def last(self) -> int:
        """All steps of both phases."""
        return self.phase_1_steps + self.phase_2_steps

    def phase_of(self, step: int) -> int:
        """1 or 2: the phase of the step of that number, counted from 0."""
        return 1 if step < self.phase_1_steps else 2

    def ends_phase(self, finished_steps: int) -> bool:
        """True after the last step of a phase."""
        return finished_steps in (self.phase_1_steps, self.last)

    def peak(self, phase: int) -> float:
        """The highest learning rate of a phase."""
        return self.config.phase_1_learning_rate if phase == 1 else self.config.phase_2_learning_rate

    def learning_rate(self, step: int) -> float:
        """Linear warm-up to the phase's peak, then down to the final share of it at the phase's last step.

        cosine: half a period of it. warmup_stable_decay: the peak, then a straight line over the decay share of the
        phase's steps. A phase 1 that ends early follows the curve of the steps that were set for it.
        """
        config = self.config
        if self.phase_of(step) == 1:
            place, steps, warmup = step, config.phase_1_steps, config.phase_1_warmup_steps
        else:
            place, steps, warmup = step - self.phase_1_steps, self.phase_2_steps, config.phase_2_warmup_steps
        peak, floor = self.peak(self.phase_of(step)), config.final_learning_rate_share
        if place < warmup:
            return peak * (place + 1) / warmup
        if config.schedule == "cosine":
            share = (place - warmup) / max(1, steps - warmup - 1)
            return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share)))
        decay_steps = min(max(1, round(config.decay_share * steps)), steps - warmup)
        fallen = max(0, place - (steps - decay_steps) + 1) / decay_steps
        return peak * (1 - (1 - floor) * fallen)


def check_schedule(config: ContinuedPretrainingConfig) -> None:
    """Raises ConfigError for a warm-up that outlasts its phase, and for passes without a step to stretch."""
    for name in ("phase_1", "phase_2"):
        steps, warmup = getattr(config, f"{name}_steps"), getattr(config, f"{name}_warmup_steps")
        if warmup > steps:
            remedy = "Shorten the warm-up or lengthen the phase."
            raise ConfigError(f"continued_pretraining.{name}_warmup_steps", warmup, limit=steps, remedy=remedy)
    if config.passes and not config.phase_1_steps + config.phase_2_steps:
        remedy = "Give phase_1_steps and phase_2_steps in the proportion that they shall have."
        raise ConfigError("continued_pretraining.passes", config.passes, limit="0 without a step", remedy=remedy)


def stretched(config: ContinuedPretrainingConfig, steps: int) -> ContinuedPretrainingConfig:
    """The settings with both phases, and their warm-ups, in the same proportion and of that many steps together.

    A phase that has a step keeps one, where there are two.
    """
    first = round(steps * config.phase_1_steps / (config.phase_1_steps + config.phase_2_steps))
    first = min(max(first, min(1, config.phase_1_steps)), steps - min(1, config.phase_2_steps))
    changed = {"phase_1_steps": first, "phase_2_steps": steps - first}
    for name in ("phase_1", "phase_2"):
        given, warmup = getattr(config, f"{name}_steps"), getattr(config, f"{name}_warmup_steps")
        changed[f"{name}_warmup_steps"] = round(warmup * changed[f"{name}_steps"] / given) if given else 0
    return config.model_copy(update=changed)


def flat_reason(history: Sequence[tuple[int, float]], config: ContinuedPretrainingConfig) -> str | None:
    """Why phase 1 may end now, None where it may not: the last evaluations brought no gain over the best before them.

    history: (finished steps, validation bits per byte) in order, the measurement before the first step included.
    """
    count = config.phase_1_flat_evaluations
    if count == 0 or len(history) <= count:
        return None
    best_step, best = min(history[:-count], key=lambda measured: measured[1])
    best_since = min(bits for _, bits in history[-count:])
    if best - best_since >= config.phase_1_flat_gain > 0 or (config.phase_1_flat_gain == 0 and best_since < best):
        return None
    return (
        f"validation bits per byte flat for {count} evaluations: {best_since:.4f} at best, "
        f"{best:.4f} at step {best_step}; a gain is {config.phase_1_flat_gain:g}"
    )
