"""Definitions of jobs that run a few lines of python, and runs of them, in this process or in one of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.execution_record import RunResult
from pipeline.local.executor import run_definition
from pipeline.local.jobs import LocalImage
from pipeline.local.processes import job_processes
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry

ROOT = Path(__file__).parents[2]
# Runs the code that it is given, with the job's folders at hand.
WORKER = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
root = Path(os.environ["OPT_ML"])
given = root / "input/config/hyperparameters.json"
code = json.loads(given.read_text())["code"] if given.exists() else sys.argv[1]
output = root / ("model" if given.exists() else "processing/output")
checkpoints = root / "checkpoints"
exec(code)
"""
# A run in a process of its own: definition and options come as JSON.
RUN = """
import json, sys
from pathlib import Path
from pipeline.local.executor import run_definition
from pipeline.local.jobs import LocalImage
from pipeline.local.stopping import leave_at_once
from pipeline.registry import LocalRegistry
definition, folder, functions, options = json.loads(sys.stdin.read())
functions = {name: lambda event, context, code=code: exec(code) or {} for name, code in functions.items()}
result = run_definition(definition, run_folder=Path(folder, "run"), registry=LocalRegistry(Path(folder, "registry")),
                        default_image=LocalImage([sys.executable, "-S", folder + "/worker.py"]), functions=functions,
                        **options)
if result.left_working:
    leave_at_once(result.exit_code)
sys.exit(result.exit_code)
"""


def processing(name: str, code: str, *needs: str, limit: float | None = None, **more: Any) -> dict[str, Any]:
    """A Processing step that runs the code. needs: steps whose outputs it reads.  limit: of its time, in seconds."""
    arguments: dict[str, Any] = {
        "AppSpecification": {"ImageUri": "image", "ContainerArguments": [code]},
        "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"}},
        "ProcessingInputs": [_input(step) for step in needs],
        "ProcessingOutputConfig": {
            "Outputs": [
                {"OutputName": "out", "S3Output": {"S3Uri": f"s3://b/{name}", "LocalPath": "/opt/ml/processing/output"}}
            ]
        },
    }
    return _step(name, "Processing", arguments, limit, more)


def training(name: str, code: str, *, limit: float | None = None, **more: Any) -> dict[str, Any]:
    """A Training step that runs the code and keeps checkpoints."""
    arguments: dict[str, Any] = {
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/models", "CompressionType": "NONE"},
        "CheckpointConfig": {"S3Uri": f"s3://b/checkpoints/{name}"},
        "HyperParameters": {"code": code},
    }
    return _step(name, "Training", arguments, limit, more)


def _input(step: str) -> dict[str, Any]:
    uri = {"Get": f"Steps.{step}.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}
    place = f"/opt/ml/processing/input/{step}"
    return {"InputName": step, "S3Input": {"S3Uri": uri, "LocalPath": place, "S3DataType": "S3Prefix"}}


def _step(name: str, kind: str, arguments: dict[str, Any], limit: float | None, more: dict[str, Any]) -> dict[str, Any]:
    if limit is not None:
        arguments["StoppingCondition"] = {"MaxRuntimeInSeconds": limit}
    return {"Name": name, "Type": kind, "Arguments": arguments, "CacheConfig": {"Enabled": True}, **more}


def policy(*classes: str, **more: Any) -> dict[str, Any]:
    """A retry policy that waits a tenth of a second."""
    return {"ExceptionType": list(classes), "IntervalSeconds": 0.1, "BackoffRate": 1.0, "MaxAttempts": 3, **more}


class SmallRuns:
    """A folder with a run folder and a registry; `lines`: what the last run in this process said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_folder = folder, folder / "run"
        (folder / "worker.py").write_text(WORKER)
        self.lines: list[str] = []

    def run(self, *steps: dict[str, Any], **options: Any) -> RunResult:
        progress = Quiet()
        self.lines = progress.lines
        image = LocalImage([sys.executable, "-S", str(self.folder / "worker.py")])
        given = {"default_image": image, "progress": progress, **options}
        registry = LocalRegistry(self.folder / "registry")
        return run_definition({"Steps": list(steps)}, run_folder=self.run_folder, registry=registry, **given)

    def start(
        self, *steps: dict[str, Any], functions: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """A run in a process and a session of its own; its standard error goes to a file. functions: as code."""
        with (self.folder / "stderr.txt").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", RUN], stdin=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(json.dumps([{"Steps": list(steps)}, str(self.folder), functions or {}, options]))
        process.stdin.close()
        return process

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr.txt").read_text()

    def wait_for(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.02)

    def record(self) -> dict[str, Any]:
        return json.loads((self.run_folder / "execution.json").read_text())

    def processes(self, step: str) -> dict[int, str]:
        """What still runs of a step's jobs."""
        return job_processes([], [str(path) for path in self.run_folder.glob(f"jobs/{step}/*/opt/ml")])

    def files(self) -> dict[str, bytes]:
        """Every file of the sealed outputs and of the registry, with its content."""
        paths = [*self.folder.glob("run/outputs/**/*"), *self.folder.glob("registry/**/*")]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths if path.is_file()}


def states(result: RunResult) -> dict[str, str]:
    return {name: record.state for name, record in result.steps.items()}
