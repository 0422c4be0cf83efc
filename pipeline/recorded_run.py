"""A run of this machine as its execution.json tells it: the same object that the run itself was shown from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.conditions import ConditionResult
from pipeline.execution_record import GateResult, RunResult, StepRecord, read_records
from pipeline.registry import ModelVersion
from steps.contract import StepError

# Members of a step's record that are told as they are.
TOLD = ("name", "type", "state", "seconds", "attempts", "reason", "cache_key", "metric", "warnings", "error", "values")


def recorded_run(run_folder: Path) -> RunResult:
    """The newest execution of a run folder. Raises StepError for a record that cannot be read."""
    return result_of(run_folder, next(read_records(run_folder)))


def result_of(run_folder: Path, record: Mapping[str, Any]) -> RunResult:
    """The run that a record tells of. Raises StepError for one in another form.

    Places are the run folder's own: it may have been moved since.
    """
    try:
        return _result(run_folder, record)
    except (KeyError, TypeError) as error:
        remedy = "It is of another version of langadapt: run it again."
        raise StepError(str(run_folder), f"its record lacks {error}", remedy=remedy) from error


def _result(run_folder: Path, record: Mapping[str, Any]) -> RunResult:
    moved = (Path(record["run_folder"]).absolute(), run_folder.absolute())
    steps = {name: _step(values, *moved) for name, values in record["steps"].items()}
    gates = {
        name: GateResult(gate["open"], tuple(map(ConditionResult.from_json, gate["conditions"])))
        for name, gate in record["gates"].items()
    }
    registered = record["registered"]
    return RunResult(
        run_folder, record["execution_id"], record["pipeline"], record["parameters"], steps, record["selection"],
        exit_code=record["exit_code"], seconds=record["seconds"], gates=gates,
        registered=None if registered is None else ModelVersion.model_validate(registered),
        registered_is_new=record["registered_is_new"], failure=(record["failure"] or {}).get("line", ""),
        # Runs of earlier versions kept none.
        definition=record.get("definition", ""),
    )  # fmt: skip


def _step(values: Mapping[str, Any], was: Path, now: Path) -> StepRecord:
    told = {name: values[name] for name in TOLD}
    outputs = {name: _moved(Path(path), was, now) for name, path in values["outputs"].items()}
    return StepRecord(**told, outputs=outputs, log=_moved(Path(values["log"]), was, now) if values["log"] else None)


def _moved(path: Path, was: Path, now: Path) -> Path:
    """A place of the run folder where that is now, if it is there."""
    if path.exists() or not path.is_relative_to(was):
        return path
    there = now / path.relative_to(was)
    return there if there.exists() else path
