"""langadapt report of an execution: rows by the service's stub, files from its S3."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_run import MadeRun, definition, telemetry
from sagemaker_stub import SageMakerStub
from stub_executions import PACKAGE, add_execution, ending, serve_run

from pipeline.report.execution_cost import execution_cost

BEGAN = datetime(2026, 11, 30, tzinfo=UTC)


def test_an_execution_has_the_report_of_a_run(
    stub: SageMakerStub, langadapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeRun(tmp_path / "run", candidate=1.5)
    made.result.steps["RegisterModel"].values = {"ModelPackageArn": PACKAGE}
    folder = made.write()
    execution = serve_run(stub, folder, definition())
    for step in folder.glob("outputs/*"):
        (output,) = step.glob("key/*")
        files = {path.name: path.read_bytes() for path in output.iterdir() if path.name != "manifest.json"}
        seal = json.loads((output / "manifest.json").read_bytes())
        seal["files"] = {name: {"bytes": len(content), "sha256": ""} for name, content in files.items()}
        stub.objects |= {f"own/{step.name}/{name}": content for name, content in files.items()}
        stub.objects[f"own/{step.name}/manifest.json"] = json.dumps(seal).encode()
    monkeypatch.chdir(tmp_path)
    code, output, errors = langadapt("report", execution.arn, "--markdown")
    assert code == 0, errors
    assert output.splitlines() == ["Registered: version 4, PendingManualApproval", "report.md"]
    text = (tmp_path / "report.md").read_text("utf-8")
    bits = made.evaluation["bits_per_byte"]
    assert f"{bits['base']:.4f} → {bits['pretrained']:.4f} → {bits['candidate']:.4f}" in text
    assert "6.48 → 2.27" in text
    assert f"{telemetry(40)[-1].loss:.3f} at step 40" in text
    assert "duplicate" in text
    assert f"`{execution.arn}`" in text
    assert "/langadapt-report-" not in text


def test_a_failed_execution_without_files(
    stub: SageMakerStub, langadapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    execution = add_execution(stub, ending(stub, train="Failed")[-1:])
    code, output, errors = langadapt("report", execution.arn, "--json")
    assert code == 0, errors
    told = json.loads(output)
    assert told["verdict"] == "Failed at Train"
    assert told["figures"]["Bits per byte"] == "not measured"
    assert "AlgorithmError" in (tmp_path / "report.html").read_text("utf-8")


def job(kind: str, instance: str, seconds: int, count: int = 1) -> dict:
    cluster = {"InstanceType": instance, "InstanceCount": count}
    if kind == "Training":
        return {"TrainingJobName": "t", "ResourceConfig": cluster, "BillableTimeInSeconds": seconds}
    return {"ProcessingJobName": "p", "ProcessingResources": {"ClusterConfig": cluster}, "ProcessingStartTime": BEGAN,
            "ProcessingEndTime": BEGAN + timedelta(seconds=seconds)}  # fmt: skip


def test_jobs_are_priced_by_the_dated_table() -> None:
    described = {"T": job("Training", "ml.p4d.24xlarge", 7200, 2), "P": job("Processing", "ml.p4d.24xlarge", 1800)}
    cost, note = execution_cost({**described, "Resolve": {"OutputParameters": {}}}, "us-west-2")
    # Two instances for two hours and one for half an hour, at 25.251 an hour.
    assert cost == f"${4.5 * 25.251:,.2f}"
    assert "2026-09-12" in note
    assert execution_cost(described, "eu-west-1")[0] == "not priced"
    assert execution_cost({"T": job("Training", "ml.unknown.large", 60)}, "us-west-2") == (
        "not priced", "no price of ml.unknown.large in us-west-2"
    )  # fmt: skip
    assert execution_cost({}, "us-west-2") == ("no cost", "no job has ended")
