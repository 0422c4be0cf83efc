"""Which model a folder stands for: a model folder for itself, a run folder for what its FineTune step made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.execution_record import DONE_STATES, NOT_RUN, WAITING
from steps.contract import StepError

FINE_TUNE = "FineTune"
REMEDY = "Name a model folder, or the folder of a run such as runs/laptop."


def model_folder_of(given: Path) -> Path:
    """The model folder. Raises StepError for a folder that is none and no run's, or whose run made no model."""
    if not given.exists():
        raise StepError(str(given), "no such folder", remedy=REMEDY)
    if not given.is_dir():
        raise StepError(str(given), "a file, not a folder", remedy=REMEDY)
    if (given / "config.json").is_file():
        return given
    if not (given / "execution.json").is_file():
        raise StepError(str(given), "no model: neither config.json nor execution.json", remedy=REMEDY)
    return _of_run(given)


def _of_run(run_folder: Path) -> Path:
    """The output of FineTune in the newest execution that had it to do: a selective one may have left it out."""
    kept = sorted((run_folder / "executions").glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for record in [run_folder / "execution.json", *kept]:
        step = _step_of(record)
        if step.get("state", NOT_RUN) in (NOT_RUN, WAITING):
            continue
        if step["state"] not in DONE_STATES:
            break
        for output in step["outputs"].values():
            if (Path(output) / "config.json").is_file():
                return Path(output)
        value = f"the model of {FINE_TUNE} is not at {', '.join(step['outputs'].values())} any more"
        raise StepError(str(run_folder), value, remedy="Run it again, or name a model folder.")
    else:
        step = {"state": NOT_RUN}
    value = f"{FINE_TUNE} is {step['state']}"
    raise StepError(str(run_folder), value, limit="Succeeded", remedy="Run it to its end, or name a model folder.")


def _step_of(record: Path) -> dict[str, Any]:
    """What an execution's record has of FineTune; empty where it has none. Raises StepError for a damaged record."""
    try:
        return json.loads(record.read_bytes())["steps"].get(FINE_TUNE, {})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StepError(str(record), "no record of a run", remedy="Run it again, or name a model folder.") from error
