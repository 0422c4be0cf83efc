"""The last lines of a run say what happened, whichever way it ended."""

from pathlib import Path

from pipeline.conditions import ConditionResult
from pipeline.execution_record import CACHED, NOT_RUN, GateResult, RunResult, StepRecord
from pipeline.registry import LocalRegistry
from pipeline.summary import summary_lines


def result(folder: Path, *, value: float, limit: float) -> RunResult:
    holds = value <= limit
    condition = ConditionResult("bits_per_byte.candidate", "<=", value, limit, holds, "MaxBitsPerByte")
    run = RunResult(folder / "run", "0" * 12, "langadapt", {}, {})
    run.gates["QualityGate"] = GateResult(holds, (condition,))
    return run


def test_a_closed_gate_marks_the_condition_that_failed(tmp_path: Path) -> None:
    lines = summary_lines(result(tmp_path, value=2.0, limit=1.0), tmp_path)
    assert "bits_per_byte.candidate 2.0000 <= 1.0000 FAILED" in lines[0]
    assert lines[1] == "model version:  none registered, the gate is closed"


def test_an_open_gate_without_a_version_is_not_called_closed(tmp_path: Path) -> None:
    lines = summary_lines(result(tmp_path, value=1.0, limit=2.0), tmp_path)
    assert lines[0].startswith("gate open:")
    assert lines[1] == "model version:  none registered, the run ended before"
    assert "the same command again goes on from here" in lines[2]


def test_only_a_pending_version_is_recommended_for_approval(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    registry = LocalRegistry(tmp_path / "registry")
    version, is_new = registry.register(group="g", model=tmp_path / "model", metadata={}, metrics={}, request={})
    run = result(tmp_path, value=1.0, limit=2.0)
    run.registered, run.registered_is_new = version, is_new
    assert "approve it: langadapt models approve 1" in summary_lines(run, tmp_path)[1]
    run.registered, run.registered_is_new = registry.reject(1, "repeats itself"), False
    assert summary_lines(run, tmp_path)[1] == "model version:  1, Rejected, registered before"


def test_a_selective_run_is_called_so(tmp_path: Path) -> None:
    steps = {name: StepRecord(name, "Processing", state) for name, state in (("A", CACHED), ("B", NOT_RUN))}
    run = RunResult(tmp_path, "0" * 12, "langadapt", {}, steps, selection="--only A", exit_code=0)
    assert summary_lines(run, tmp_path) == [
        "selected:       --only A; 1 of 2 steps not run",
        f"run folder:     {tmp_path}; next: the same command without the selection brings the rest up to date",
    ]
