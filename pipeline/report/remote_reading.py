"""The facts of an execution on SageMaker: its rows by the service, its small files from S3."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pipeline.execution_record import CACHED
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.execution_view import ExecutionView
from pipeline.remote.step_outputs import MANIFEST, MAX_READ_BYTES, read_object
from pipeline.report.execution_cost import execution_cost
from pipeline.report.facts import Facts
from pipeline.report.reading import TELEMETRY_NAME, read_files
from pipeline.report.token_cuts import BASE, NEW
from steps.contract import StepError

# What a report shows, by path below a step's output; documents and tokenizers are for the text that is cut.
WANTED = ("corpus.json", "findings.json", "fertility.json", "adaptation.json", "training.json", TELEMETRY_NAME,
          "evaluation.json", BASE.as_posix(), NEW.as_posix(), "validation/part-00000.jsonl")  # fmt: skip


def read_execution(arn: str) -> Facts:
    """The facts of an execution as it stands now. Raises AwsError, StepError."""
    account = Account(arn.split(":")[3])
    with tempfile.TemporaryDirectory(prefix="langadapt-report-") as name:
        folder = Path(name)
        view = ExecutionView(account, arn, folder)
        view.look()
        notes = list(view.notes)
        for step, uris in view.output_uris.items():
            for output, uri in uris.items():
                target = folder / step / output
                try:
                    _fetch(account, uri, target)
                except StepError as error:
                    notes.append(f"{step}: {error}")
                if target.is_dir():
                    view.result.steps[step].outputs[output] = target
        ran = {step: told for step, told in view.scope.steps.items() if view.result.steps[step].state != CACHED}
        cost, cost_note = execution_cost(ran, account.region)
        facts = Facts(view.result, arn, graph=view.graph, cost=cost, cost_note=cost_note, notes=notes)
        facts.recorded_at = _seconds(account.call("sagemaker", "DescribePipelineExecution", PipelineExecutionArn=arn))
        read_files(facts)
        # Of this machine's folder for a moment: the files' own names are enough.
        facts.missing = [text.replace(f"{folder}/", "") for text in facts.missing]
    return facts


def _fetch(account: Account, uri: str, target: Path) -> None:
    """Writes the files of one output that a report reads, as its seal lists them. Nothing of an output without one."""
    try:
        content = read_object(account, f"{uri}/{MANIFEST}")
    except AwsError as error:
        if error.kind == "not_found":
            return
        raise
    try:
        files = json.loads(content)["files"]
        sizes = {name: int(files[name]["bytes"]) for name in WANTED if name in files}
    except (ValueError, KeyError, TypeError):
        # Somebody else's file of that name.
        return
    _write(target / MANIFEST, content)
    for name, size in sizes.items():
        if size <= MAX_READ_BYTES:
            _write(target / name, read_object(account, f"{uri}/{name}"))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _seconds(described: Mapping[str, object]) -> float | None:
    changed = described.get("LastModifiedTime")
    return changed.timestamp() if isinstance(changed, datetime) else None
