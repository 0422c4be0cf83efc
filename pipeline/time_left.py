"""How long work still takes: a step by its own pace so far, a run by that and by what earlier runs took."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.execution_record import StepRecord

# The pace of this last stretch decides: phases of a step differ, and one slow unit shall not count for ever.
WINDOW_SECONDS = 60.0
# Before both are there, chance decides: the first unit waits for memory, files and compilers.
LEAST_SECONDS = 3.0
LEAST_TOLD = 3
# Executions to look for a step's seconds in, newest first.
MOST_EARLIER = 20
# Types of step whose work takes a moment; what a job takes must be known.
JOB_TYPES = ("Processing", "Training")


class Pace:
    """How fast one piece of work goes on. Seconds are of a clock that only goes forward.

    The first count that is told is where the measurement begins: what stands before it (imports, a checkpoint's steps)
    says nothing about the pace.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()

    def tell(self, seconds: float, done: int) -> None:
        """`done` units are finished. Fewer than before: the work has begun again."""
        if self._told and done < self._told[-1][1]:
            self._told.clear()
        if self._told and done == self._told[-1][1]:
            return
        self._told.append((seconds, done))
        while len(self._told) > LEAST_TOLD and self._told[1][0] < seconds - WINDOW_SECONDS:
            self._told.popleft()

    def seconds_left(self, seconds: float, total: int) -> float | None:
        """Until all `total` units are done; None while that would be a guess."""
        if len(self._told) < LEAST_TOLD or self._told[-1][0] - self._told[0][0] < LEAST_SECONDS:
            return None
        (first_seconds, first), (last_seconds, last) = self._told[0], self._told[-1]
        spent, since = last_seconds - first_seconds, seconds - last_seconds
        usual = spent / (len(self._told) - 1)
        # Work that has told nothing for longer than usual is slower than it was.
        seconds_per_unit = (spent + max(0.0, since - usual)) / (last - first)
        return max(0.0, (total - last) * seconds_per_unit - min(since, usual))


def earlier_seconds(run_folder: Path) -> dict[str, float]:
    """What each step took when it last ran to its end in this run folder, by name."""
    found: dict[str, float] = {}
    paths = [path for path in (run_folder / "executions").glob("*.json") if path.is_file()]
    for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)[:MOST_EARLIER]:
        try:
            steps = json.loads(path.read_bytes())["steps"]
        except (ValueError, KeyError, TypeError):
            # An estimate alone depends on it: a damaged record is no reason to stop a run.
            continue
        for name, step in steps.items():
            if step.get("state") == "Succeeded" and step.get("seconds"):
                found.setdefault(name, float(step["seconds"]))
    return found


def run_seconds_left(steps: Mapping[str, StepRecord], earlier: Mapping[str, float]) -> float | None:
    """Until the last step ends: the longest way through what waits and what runs; None where a job's time is unknown.

    steps: each after all that it needs.
    """
    ends: dict[str, float] = {}
    for name, step in steps.items():
        own = step_seconds_left(step, earlier.get(name))
        if own is None:
            return None
        ends[name] = own + max((ends.get(needed, 0.0) for needed in step.needs), default=0.0)
    return max(ends.values(), default=0.0)


def step_seconds_left(step: StepRecord, earlier: float | None) -> float | None:
    """What one step still takes: by its pace, else by what it took before; nothing where it is over."""
    if step.state not in ("Waiting", "Executing"):
        return 0.0
    if step.state == "Executing" and step.seconds_left is not None:
        return step.seconds_left
    if earlier is None:
        return None if step.type in JOB_TYPES else 0.0
    left = earlier - step.elapsed()
    # Longer than ever before, and it does not tell how far it is.
    return left if left > 0 or step.type not in JOB_TYPES else None


def seconds_text(seconds: float) -> str:
    """A time to wait as people say it, no finer than an estimate is: `8 s`, `45 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        step = 1 if seconds < 10 else 5
        return f"{max(1, round(seconds / step) * step)} s"
    if seconds < 600:
        tens = round(seconds / 10)
        return f"{tens // 6} min {tens % 6 * 10:02d} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60)} d {minutes // 60 % 24} h"


def elapsed_text(seconds: float) -> str:
    """A time that has gone by: `12 s`, `3 min 05 s`, `2 h 05 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600} h {whole // 60 % 60:02d} min"
