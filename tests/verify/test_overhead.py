"""What the executor costs: wall time in which no job runs, of `langadapt run` on the sample and of a no-op.

Its own hashing, linking and sealing of what jobs read and wrote count as its cost.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from workplace import Workplace, copy_of_source, prove

from steps.contract import EXIT_DONE

pytestmark = pytest.mark.verify


class SampleRuns(Workplace):
    """A folder in which the laptop preset runs on the sample."""

    def timed(self) -> tuple[float, dict[str, Any]]:
        """Wall seconds of `langadapt run`, as a user waits for it, and its record."""
        began = time.monotonic()
        done = self.langadapt("run")
        seconds = time.monotonic() - began
        assert done.returncode == EXIT_DONE, done.stderr
        return seconds, json.loads((self.folder / "runs" / "laptop" / "execution.json").read_text())


def seconds_of_jobs(record: dict[str, Any]) -> float:
    """Wall seconds in which the processes of at least one job run."""
    total, until = 0.0, 0.0
    for began, ended in sorted(span for step in record["steps"].values() for span in step["job_seconds"]):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def test_overlapping_jobs_count_once() -> None:
    spans = [[[0.0, 2.0], [6.0, 7.0]], [[1.0, 4.0]], [[1.5, 2.0]], []]
    assert seconds_of_jobs({"steps": {str(number): {"job_seconds": ran} for number, ran in enumerate(spans)}}) == 5.0


def test_overhead(tmp_path: Path) -> None:
    place = SampleRuns(tmp_path, copy_of_source(tmp_path / "source"))
    # Once, and kept for later runs: no part of what is measured.
    assert place.langadapt("sample", str(tmp_path / "sample")).returncode == EXIT_DONE
    seconds, record = place.timed()
    outside = seconds - seconds_of_jobs(record)
    claim = f"wall time outside jobs of a run of {seconds:.0f} s: {outside:.1f} s, percent"
    prove(claim, round(100 * outside / seconds, 1), "5", outside < 0.05 * seconds)
    states = {step["state"] for step in record["steps"].values() if step["type"] in ("Processing", "Training")}
    assert states == {"Succeeded"}

    seconds = min(place.timed()[0] for _ in range(3))
    prove("seconds of a no-op run, best of 3", round(seconds, 1), "5", seconds < 5)
