"""Which model a folder stands for: a model folder for itself, a run folder for what its FineTune step made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.execution_record import DONE_STATES, NOT_RUN, WAITING, is_run, read_records
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
    if not is_run(given):
        raise StepError(str(given), "no model: neither config.json nor execution.json", remedy=REMEDY)
    return _of_run(given)


def _of_run(run_folder: Path) -> Path:
    """The output of FineTune in the newest execution that had it to do: a selective one may have left it out."""
    steps = (record["steps"].get(FINE_TUNE, {}) for record in read_records(run_folder))
    undone: dict[str, Any] = {"state": NOT_RUN}
    step = next((step for step in steps if step.get("state", NOT_RUN) not in (NOT_RUN, WAITING)), undone)
    if step["state"] not in DONE_STATES:
        value = f"{FINE_TUNE} is {step['state']}"
        raise StepError(str(run_folder), value, limit="Succeeded", remedy="Run it to its end, or name a model folder.")
    for output in step["outputs"].values():
        if (Path(output) / "config.json").is_file():
            return Path(output)
    value = f"the model of {FINE_TUNE} is not at {', '.join(step['outputs'].values())} any more"
    raise StepError(str(run_folder), value, remedy="Run it again, or name a model folder.")
