"""What the running steps of a run tell in their logs, read while they tell it."""

from __future__ import annotations

import time
from collections.abc import Callable

from pipeline import execution_record as states
from pipeline.execution_record import RunResult, StepRecord
from pipeline.local.job_log import LogFollower
from pipeline.time_left import Pace

TELLING_STATES = (states.EXECUTING, states.SUCCEEDED, states.FAILED, states.STOPPED)


class StepWatch:
    """Keeps metric, progress, time left and warnings of each step's record; one thread calls it.

    line: gets each warning once, as it appears. Those of a step that came from the cache were told when it ran; they
    stand in its record, for the summary.
    """

    def __init__(self, result: RunResult, line: Callable[[str], None]) -> None:
        self._result, self._line = result, line
        self._logs: dict[str, LogFollower] = {}
        self._paces: dict[str, Pace] = {}
        self._told: set[tuple[str, str]] = set()
        self._ended: set[str] = set()

    def look(self) -> None:
        """Reads what is new in every log, for the last time in those of steps that have ended since."""
        for name, record in self._result.steps.items():
            # Taken once: a step may end while its log is read.
            state = record.state
            if name in self._ended or record.log is None or state not in TELLING_STATES:
                continue
            self._read(record)
            if state != states.EXECUTING:
                self._ended.add(name)
                record.progress = record.seconds_left = None

    def _read(self, record: StepRecord) -> None:
        assert record.log is not None
        if record.name not in self._logs:
            # The log holds earlier runs' attempts, too.
            self._logs[record.name] = LogFollower(record.log, self._result.execution_id)
        log = self._logs[record.name]
        log.read()
        record.metric, record.progress = log.metric or record.metric, log.progress
        record.warnings = list(log.warnings)
        for warning in log.warnings:
            if (record.name, warning) not in self._told:
                self._told.add((record.name, warning))
                self._line(f"{record.name}: warning: {warning}")
        pace, now = self._paces.setdefault(record.name, Pace()), time.monotonic()
        if log.progress is not None:
            pace.tell(now, log.progress.done)
            record.seconds_left = pace.seconds_left(now, log.progress.total)
