"""What a run tells about itself: the state of each step, the gate's conditions, the registered version.

Written to RUN/execution.json, and under its own name to RUN/executions/<execution id>.json, at every change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline.conditions import ConditionResult
from pipeline.error_lines import line_parts
from pipeline.local.job_log import Done
from pipeline.registry import ModelVersion
from steps.contract import StepError, write_atomically, write_json

# In a run's folder: of the newest execution, and a folder of all that were kept.
RECORD_NAME, RECORDS_NAME = "execution.json", "executions"
DEFINITIONS_NAME = "definitions"
WAITING, EXECUTING, SUCCEEDED, CACHED = "Waiting", "Executing", "Succeeded", "Cached"
FAILED, SKIPPED, STOPPED, NOT_RUN = "Failed", "Skipped", "Stopped", "NotRun"
DONE_STATES = (SUCCEEDED, CACHED)
# What a step's record tells while it runs alone, or in a form of its own.
UNRECORDED = ("started", "outputs", "log", "progress", "seconds_left", "needs", "jobs_ran")


@dataclass
class StepRecord:
    """One step of one run.

    reason: why the step ran and was not taken from the cache.  metric: the last metrics line of its log.
    progress: how much of its work is done, while it tells.  seconds_left: until it is done, where that can be said.
    needs: names of the steps that end before it begins.  warnings: `<name>: <message>` each, from the cache as well.
    key_members: what the cache key is made of (see pipeline/local/cache.py).
    jobs_ran: of each attempt when its processes began and had ended, by the monotonic clock in seconds.
    """

    name: str
    type: str
    state: str = WAITING
    seconds: float = 0.0
    started: float | None = None
    attempts: int = 0
    reason: str = ""
    cache_key: str = ""
    key_members: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Path] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    log: Path | None = None
    metric: str = ""
    progress: Done | None = None
    seconds_left: float | None = None
    needs: frozenset[str] = frozenset()
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    jobs_ran: list[tuple[float, float]] = field(default_factory=list)

    def begin(self) -> None:
        self.started, self.state = time.monotonic(), EXECUTING

    def end(self, state: str) -> None:
        self.seconds, self.state = self.elapsed(), state

    def elapsed(self) -> float:
        """Seconds since the step began, or that it took."""
        running = self.started is not None and self.state == EXECUTING
        return time.monotonic() - self.started if running and self.started is not None else self.seconds

    def as_json(self) -> dict[str, Any]:
        value = {name: item for name, item in vars(self).items() if name not in UNRECORDED}
        return value | {
            "seconds": round(self.seconds, 3),
            "outputs": {name: str(path) for name, path in self.outputs.items()},
            "log": str(self.log) if self.log else None,
        }


@dataclass(frozen=True)
class GateResult:
    """Outcome of a Condition step: open where all of its conditions hold."""

    open: bool
    conditions: tuple[ConditionResult, ...]


@dataclass
class RunResult:
    """The outcome of a run. exit_code: as in steps/contract/errors.py. failure: the one line of what stopped it.

    outputs: folder of each finished step's outputs, by step and output name.
    selection: `--from X` or `--only X` of a selective execution, empty otherwise.  began: monotonic clock, in seconds.
    definition: the file below the run folder that holds the definition.
    registered: the model version, with registered_is_new False where an equal one was there already.
    left_working: a thread still works after the second signal; the program is to end by `stopping.leave_at_once`.
    """

    run_folder: Path
    execution_id: str
    pipeline: str
    parameters: dict[str, Any]
    steps: dict[str, StepRecord]
    selection: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    gates: dict[str, GateResult] = field(default_factory=dict)
    registered: ModelVersion | None = None
    registered_is_new: bool = False
    failure: str = ""
    began: float = 0.0
    left_working: bool = False
    definition: str = ""

    @property
    def outputs(self) -> dict[str, dict[str, Path]]:
        return {name: dict(record.outputs) for name, record in self.steps.items() if record.outputs}

    @property
    def state(self) -> str:
        """Executing, Succeeded, GateClosed, Failed or Stopped."""
        names = {None: EXECUTING, 0: SUCCEEDED, 2: "GateClosed", 130: STOPPED, 143: STOPPED}
        return names.get(self.exit_code, FAILED)

    def as_json(self) -> dict[str, Any]:
        registered = self.registered.model_dump(mode="json") if self.registered else None
        gates = {
            name: {"open": gate.open, "conditions": [condition.as_json() for condition in gate.conditions]}
            for name, gate in list(self.gates.items())
        }
        return {
            "execution_id": self.execution_id, "pipeline": self.pipeline, "state": self.state,
            "exit_code": self.exit_code, "seconds": round(self.seconds, 3), "run_folder": str(self.run_folder),
            "parameters": self.parameters, "selection": self.selection, "definition": self.definition,
            "steps": {name: step.as_json() | self._times(step) for name, step in self.steps.items()},
            "gates": gates, "registered": registered, "registered_is_new": self.registered_is_new,
            "warnings": [
                {"step": name, **dict(zip(("name", "message"), warning.split(": ", 1), strict=False))}
                for name, step in self.steps.items() for warning in step.warnings
            ],
            "failure": self._failure_as_json(),
        }  # fmt: skip

    def _failure_as_json(self) -> dict[str, Any] | None:
        """The failure with the keys of every error, the step's name and its log; None where nothing failed."""
        if not self.failure:
            return None
        failed = next((step for step in self.steps.values() if step.state == FAILED and step.error), None)
        parts = line_parts(failed.error if failed else self.failure)
        log = str(failed.log) if failed and failed.log else None
        return {**parts, "line": self.failure, "exit_code": self.exit_code, "step": failed and failed.name, "log": log}

    def _times(self, step: StepRecord) -> dict[str, Any]:
        """When a step began to execute, None for one that did not; begin and end of each attempt's processes, which the
        executor's own work on the step is not part of. In seconds after the run began."""
        started = step.started
        return {
            "started_after_seconds": None if started is None else round(started - self.began, 3),
            "job_seconds": [[round(at - self.began, 3) for at in ran] for ran in list(step.jobs_ran)],
        }

    def write(self) -> None:
        """Writes both files, each atomically."""
        content = self.as_json()
        write_json(self.run_folder / RECORDS_NAME / f"{self.execution_id}.json", content)
        write_json(self.run_folder / RECORD_NAME, content)


def keep_definition(run_folder: Path, definition: Mapping[str, Any]) -> str:
    """Writes what is run below a run's folder, once for each content, and returns where."""
    text = json.dumps(definition, indent=2, ensure_ascii=False) + "\n"
    name = f"{DEFINITIONS_NAME}/run-{sha256(text.encode()).hexdigest()[:16]}.json"
    if not (run_folder / name).is_file():
        write_atomically(run_folder / name, text)
    return name


def is_run(folder: Path) -> bool:
    """True for a run's folder."""
    return (folder / RECORD_NAME).is_file()


def read_records(run_folder: Path) -> Iterator[dict[str, Any]]:
    """What the executions of a run tell, the newest first. Raises StepError for a file that is no record."""
    kept = sorted((run_folder / RECORDS_NAME).glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in (run_folder / RECORD_NAME, *kept):
        try:
            record = json.loads(path.read_bytes())
        except ValueError as error:
            raise StepError(str(path), "no JSON", remedy="Run it again, or name another folder.") from error
        if not isinstance(record, dict) or not isinstance(record.get("steps"), dict):
            raise StepError(str(path), "no record of a run", remedy="Run it again, or name another folder.")
        yield record
