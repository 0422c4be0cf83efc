"""Steps that write over each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep


def writer_findings(steps: Sequence[ListedStep]) -> Iterator[Finding]:
    """Outputs of two steps under one URI: whichever ends last would have the other's files among its own. The same of
    checkpoints: either would go on from the other's.
    """
    first: dict[str, ListedStep] = {}
    for step in steps:
        for path, uri in _outputs(step):
            # As it is compiled: two references alike lead to one place. A training job's output gets the job's name.
            other = first.setdefault(json.dumps(uri, sort_keys=True), step)
            if other is step:
                continue
            value = f"also written by {other.name}"
            yield Finding(path, value, "one writer a URI", "Give each step a URI of its own.", step.name)


def _outputs(step: ListedStep) -> Iterator[tuple[str, Any]]:
    arguments, base = step.own_arguments, f"{step.path}.Arguments"
    if step.type == "Processing":
        config = arguments.get("ProcessingOutputConfig")
        for index, output in enumerate((config.get("Outputs") or []) if isinstance(config, dict) else []):
            uri = (output.get("S3Output") or {}).get("S3Uri") if isinstance(output, dict) else None
            if uri is not None:
                yield f"{base}.ProcessingOutputConfig.Outputs[{index}].S3Output.S3Uri", uri
    checkpoints = arguments.get("CheckpointConfig")
    if isinstance(checkpoints, dict) and "S3Uri" in checkpoints:
        yield f"{base}.CheckpointConfig.S3Uri", checkpoints["S3Uri"]
