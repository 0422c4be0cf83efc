"""Checkpoints of an adapter's training: what the trainer keeps, in a folder that counts only when it is whole.

A set is a folder `step-00000040` with the trainer's files (adapter, optimizer, schedule, random numbers), what was
validated, and the marker complete.json with size and sha256 of every other file. The trainer writes it into a folder
beside them; it is renamed when all of it is there. Whole sets are all that a start looks at.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from steps.contract import FileEntry, file_sha256, warn, write_json
from steps.modeling.adapter_validation import AdapterValidation
from steps.modeling.checkpoint_settings import MARKER_NAME
from steps.modeling.checkpoints import find_fault

UNFINISHED_NAME = "unfinished"
VALIDATION_NAME = "validation.json"
BEST_NAME = "best_adapter.safetensors"
# The trainer's own settings, a pickle that nothing reads.
PICKLED_SETTINGS_NAME = "training_args.bin"
KEPT_SETS = 2


class AdapterCheckpoints(TrainerCallback):
    """Makes whole sets of what the trainer saves in `unfinished`, and gives back the newest."""

    def __init__(self, folder: Path, validation: AdapterValidation) -> None:
        self._folder = folder
        self._validation = validation
        # What a killed attempt left there is no set.
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self.unfinished.mkdir(parents=True)

    @property
    def unfinished(self) -> Path:
        """Where the trainer writes."""
        return self._folder / UNFINISHED_NAME

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Completes what the trainer has just written."""
        written = self.unfinished / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        (written / PICKLED_SETTINGS_NAME).unlink(missing_ok=True)
        write_json(written / VALIDATION_NAME, {"history": self._validation.history})
        if self._validation.best is not None:
            save_file(self._validation.best, written / BEST_NAME)
        files = sorted(path for path in written.rglob("*") if path.is_file())
        entries = {
            path.relative_to(written).as_posix(): FileEntry(
                bytes=path.stat().st_size, sha256=file_sha256(path)
            ).model_dump()
            for path in files
        }
        write_json(written / MARKER_NAME, {"files": entries})
        complete = self._folder / f"step-{state.global_step:08d}"
        shutil.rmtree(complete, ignore_errors=True)
        os.rename(written, complete)
        for older in self._sets()[:-KEPT_SETS]:
            shutil.rmtree(older)

    def latest(self) -> Path | None:
        """The newest whole set, its validations read; None without one. What is not whole is passed over, told."""
        for folder in reversed(self._sets()):
            fault = find_fault(folder)
            if fault is not None:
                warn("checkpoint-passed-over", f"{folder.name}: {fault}")
                continue
            history = json.loads((folder / VALIDATION_NAME).read_text())["history"]
            self._validation.history = [(step, loss) for step, loss in history]
            if (folder / BEST_NAME).is_file():
                self._validation.best = load_file(folder / BEST_NAME)
            return folder
        return None

    def _sets(self) -> list[Path]:
        return sorted(self._folder.glob("step-*"))
