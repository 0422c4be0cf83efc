"""Executions for the SageMaker stub: a small pipeline with a gate, in the ways that it can end; and a local run's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sagemaker_stub import ACCOUNT, BEGAN, REGION, SageMakerStub, StubExecution

from steps.contract import find_seals

CANDIDATE = {
    "Std:JsonGet": {"PropertyFile": {"Get": "Steps.Evaluate.PropertyFiles.Evaluation"}, "Path": "bits.candidate"}
}
MODEL = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
LIMIT = {"Get": "Parameters.MaxBitsPerByte"}
GATED: dict[str, Any] = {
    "Version": "2020-12-01",
    "Parameters": [
        {"Name": "CorpusUri", "Type": "String", "DefaultValue": "s3://own/corpus/"},
        {"Name": "MaxBitsPerByte", "Type": "Float", "DefaultValue": 1.0},
        {"Name": "AllowConcurrent", "Type": "Boolean", "DefaultValue": False},
    ],
    "Steps": [
        {"Name": "Resolve", "Type": "Lambda", "Arguments": {}, "FunctionArn": "arn",
         "OutputParameters": [{"OutputName": "champion_present", "OutputType": "String"}]},
        {"Name": "Train", "Type": "Training",
         "Arguments": {"HyperParameters": {"champion": {"Get": "Steps.Resolve.OutputParameters['champion_present']"}}}},
        {"Name": "Evaluate", "Type": "Processing",
         "Arguments": {"ProcessingInputs": [{"S3Input": {"S3Uri": MODEL}}]},
         "PropertyFiles": [{"PropertyFileName": "Evaluation", "OutputName": "output", "FilePath": "figures.json"}]},
        {"Name": "QualityGate", "Type": "Condition", "Arguments": {
            "Conditions": [
                {"Type": "LessThanOrEqualTo", "LeftValue": CANDIDATE, "RightValue": LIMIT},
                {"Type": "Equals", "LeftValue": {"Get": "Steps.Resolve.OutputParameters['champion_present']"},
                 "RightValue": "false"},
            ],
            "IfSteps": [{"Name": "Register", "Type": "RegisterModel", "Arguments": {}}],
            "ElseSteps": [{"Name": "GateClosed", "Type": "Fail", "Arguments": {"ErrorMessage": "closed"}}]}},
    ],
}  # fmt: skip
PACKAGE = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:model-package/langadapt/4"
CLOSED_MESSAGE = "Quality gate closed. All of these must hold: bits"


def row(name: str, status: str = "Succeeded", seconds: float = 2.0, **more: Any) -> dict[str, Any]:
    """A step as ListPipelineExecutionSteps tells it."""
    ended = {} if status in ("Starting", "Executing", "Stopping") else {"EndTime": BEGAN + seconds}
    return {"StepName": name, "StepStatus": status, "StartTime": BEGAN, "AttemptCount": 1, **ended, **more}


def job_row(
    stub: SageMakerStub,
    name: str,
    kind: str,
    status: str = "Succeeded",
    seconds: float = 2.0,
    output: str = "output",
    **more: Any,
) -> dict[str, Any]:
    """A row of a step with a job, which the stub then describes; its output is s3://own/STEP/."""
    job, uri = f"job-{name}", f"s3://own/{name}"
    if kind == "Processing":
        place = {"OutputName": output, "S3Output": {"S3Uri": uri, "LocalPath": "/x", "S3UploadMode": "EndOfJob"}}
        stub.jobs[job] = {"ProcessingJobName": job, "ProcessingOutputConfig": {"Outputs": [place]}}
    else:
        stub.jobs[job] = {"TrainingJobName": job, "ModelArtifacts": {"S3ModelArtifacts": uri}}
    arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{kind.lower()}-job/{job}"
    return row(name, status, seconds, Metadata={f"{kind}Job": {"Arn": arn}}, **more)


def ending(stub: SageMakerStub, *, candidate: float = 0.5, train: str = "Succeeded") -> list[tuple[str, list[dict]]]:
    """Frames of the gated pipeline: at its first job, at its second, at its end, as the numbers decide."""
    resolve = row("Resolve", Metadata={"Lambda": {"Arn": "arn", "OutputParameters": [
        {"Name": "champion_present", "Value": "false"}]}})  # fmt: skip
    training = job_row(stub, "Train", "Training", "Executing")
    if train == "Failed":
        failed = job_row(stub, "Train", "Training", "Failed", FailureReason="AlgorithmError: error: loss: nan.\nLook")
        return [("Executing", [resolve, training]), ("Failed", [resolve, failed])]
    trained = job_row(stub, "Train", "Training", seconds=3.0)
    evaluated = job_row(stub, "Evaluate", "Processing")
    stub.objects["own/Train/manifest.json"] = json.dumps(
        {"metrics": {"loss": 2.123456789, "steps": 7}, "warnings": [{"name": "short", "message": "few steps"}]}
    ).encode()
    stub.objects["own/Evaluate/figures.json"] = json.dumps({"bits": {"candidate": candidate}}).encode()
    is_open = candidate <= 1.0
    gate = row("QualityGate", seconds=0, Metadata={"Condition": {"Outcome": str(is_open)}})
    if is_open:
        last = row("Register", Metadata={"RegisterModel": {"Arn": PACKAGE}})
    else:
        last = row("GateClosed", "Failed", 0, FailureReason="The step failed", Metadata={
            "Fail": {"ErrorMessage": CLOSED_MESSAGE}})  # fmt: skip
    end = "Succeeded" if is_open else "Failed"
    return [
        ("Executing", [resolve, training]),
        ("Executing", [resolve, trained, job_row(stub, "Evaluate", "Processing", "Executing")]),
        (end, [resolve, trained, evaluated, gate, last]),
    ]


def add_execution(stub: SageMakerStub, frames: list[tuple[str, list[dict]]], name: str = "abcdefabcdef", **more: Any
                  ) -> StubExecution:  # fmt: skip
    """The newest execution of the gated pipeline."""
    stub.deploy(GATED)
    execution = StubExecution(name, GATED, frames, **more)
    stub.executions.insert(0, execution)
    return execution


def serve_run(stub: SageMakerStub, run_folder: Path, definition: dict[str, Any]) -> StubExecution:
    """A finished run of this machine as the service would tell of it: definition, states, seconds and small files."""
    record = json.loads((run_folder / "execution.json").read_bytes())
    types = {step["name"]: step["type"] for step in record["steps"].values()}
    rows = []
    for name, step in record["steps"].items():
        if step["state"] in ("Skipped", "NotRun"):
            continue
        cached = {"CacheHitResult": {"SourcePipelineExecutionArn": "arn"}} if step["state"] == "Cached" else {}
        status = "Succeeded" if cached else step["state"]
        if types[name] in ("Processing", "Training"):
            output = next(iter(step["outputs"]), "output")
            told = {"FailureReason": step["error"], **cached}
            rows.append(job_row(stub, name, types[name], status, step["seconds"], output, **told))
            for folder in map(Path, step["outputs"].values()):
                _put_small_files(stub, name, folder)
        else:
            rows.append(row(name, status, step["seconds"], Metadata=_metadata(types[name], step, record)))
    execution = StubExecution(
        record["execution_id"], definition, [("Failed" if record["exit_code"] else "Succeeded", rows)],
        parameters={name: _text(value) for name, value in record["parameters"].items()}, seconds=record["seconds"],
    )  # fmt: skip
    stub.executions.insert(0, execution)
    return execution


def _put_small_files(stub: SageMakerStub, step: str, folder: Path) -> None:
    for path in [*find_seals(folder), folder / "figures.json", folder / "evaluation.json", folder / "fertility.json"]:
        if path.is_file():
            stub.objects[f"own/{step}/{path.name}"] = path.read_bytes()


def _metadata(kind: str, step: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "Lambda":
            told = [{"Name": name, "Value": _text(value)} for name, value in step["values"].items()]
            return {"Lambda": {"Arn": "arn", "OutputParameters": told}}
        case "Condition":
            return {"Condition": {"Outcome": str(record["gates"][step["name"]]["open"])}}
        case "Fail":
            return {"Fail": {"ErrorMessage": step["error"]}}
    return {"RegisterModel": {"Arn": step["values"]["ModelPackageArn"]}}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
