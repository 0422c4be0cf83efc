"""What a job's log.txt tells while the job works and when it is done: metrics, progress, warnings.

The lines are those that `report`, `report_progress` and `warn` of steps.contract print; what any other program prints
is passed over. A log holds every attempt; only the newest one is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from steps.contract import METRICS_LINE_PREFIX, PROGRESS_LINE_PREFIX, WARNING_LINE_PREFIX

# Begins the first line of each attempt in a log.
ATTEMPT_PREFIX = "--- "
# A program that draws a bar may never end its line.
LONGEST_LINE_BYTES = 65_536
_PROGRESS = re.compile(re.escape(PROGRESS_LINE_PREFIX) + r"(\d+)/(\d+) (\S.*)")


@dataclass(frozen=True)
class Done:
    """How much of a step's work is done: `done` of `total` units, such as `steps`."""

    done: int
    total: int
    unit: str


class LogFollower:
    """Reads a growing log bit by bit: metric, progress and warnings of the newest attempt of one execution.

    A log holds the attempts of every execution: lines count from the first attempt on that names this one's id.
    """

    def __init__(self, path: Path, execution_id: str) -> None:
        self._path, self._execution_id = path, execution_id
        self._offset, self._rest, self._is_ours = 0, b"", False
        self.metric = ""
        self.progress: Done | None = None
        self.warnings: list[str] = []

    def read(self) -> None:
        """Takes in what was written since the last time; a line that is not ended yet waits for its end."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            new = stream.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE_BYTES:]
        for line in lines:
            self._take(line.decode("utf-8", errors="replace").rstrip("\r"))

    def _take(self, line: str) -> None:
        if line.startswith(ATTEMPT_PREFIX):
            self._is_ours = self._execution_id in line
            self.metric, self.progress, self.warnings = "", None, []
        elif not self._is_ours:
            return
        elif line.startswith(METRICS_LINE_PREFIX):
            self.metric = line.removeprefix(METRICS_LINE_PREFIX)
        elif match := _PROGRESS.fullmatch(line):
            self.progress = Done(int(match[1]), int(match[2]), match[3])
        elif line.startswith(WARNING_LINE_PREFIX):
            warning = line.removeprefix(WARNING_LINE_PREFIX)
            if warning not in self.warnings:
                self.warnings.append(warning)


def told_figures(lines: Iterable[str]) -> tuple[str, Done | None]:
    """The last metrics line among lines of one attempt, and the last that tells progress; empty and None without."""
    metric, progress = "", None
    for line in lines:
        if line.startswith(METRICS_LINE_PREFIX):
            metric = line.removeprefix(METRICS_LINE_PREFIX)
        elif match := _PROGRESS.fullmatch(line):
            progress = Done(int(match[1]), int(match[2]), match[3])
    return metric, progress


def log_tail(path: Path, tail_bytes: int = 8_192) -> list[str]:
    """The last lines of a log."""
    if not path.is_file():
        return []
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - tail_bytes))
        return stream.read().decode("utf-8", errors="replace").splitlines()


def newest_attempt(lines: list[str]) -> list[str]:
    """The lines after the one that the newest attempt begins with."""
    starts = [number for number, line in enumerate(lines) if line.startswith(ATTEMPT_PREFIX)]
    return lines[starts[-1] + 1 :] if starts else lines


def latest_metric(path: Path) -> str:
    """The values of the last `metrics: ` line near the end of a log, empty where there is none."""
    lines = [line for line in newest_attempt(log_tail(path)) if line.startswith(METRICS_LINE_PREFIX)]
    return lines[-1].removeprefix(METRICS_LINE_PREFIX) if lines else ""


def logged_warnings(path: Path) -> list[str]:
    """Each `<name>: <message>` that the newest attempt warned about, in order and once. Reads the whole log."""
    if not path.is_file():
        return []
    lines = newest_attempt(path.read_text(encoding="utf-8", errors="replace").splitlines())
    warned = [line.removeprefix(WARNING_LINE_PREFIX) for line in lines if line.startswith(WARNING_LINE_PREFIX)]
    return list(dict.fromkeys(warned))
