"""The folders of a step: named ones in, one out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steps.contract.errors import ConfigError

MANIFEST_NAME = "manifest.json"
UNFINISHED_NAME = ".unfinished"


@dataclass(frozen=True)
class Folder:
    """A named folder that a step reads.

    sealed: made by an earlier step, so it must carry a seal that matches; False for what a user gives.
    required: False for a folder that may be absent.
    """

    name: str
    sealed: bool = True
    required: bool = True


@dataclass(frozen=True)
class StepFolders:
    """The folders of one run of a step: `inputs` by name (absent optional ones left out), one `output`.

    checkpoints: where unfinished work is kept for the next attempt, None for a step without any.
    input_digests: sha256 of each input's content (see `content_digest`).
    """

    output: Path
    inputs: Mapping[str, Path] = field(default_factory=dict)
    checkpoints: Path | None = None
    input_digests: Mapping[str, str] = field(default_factory=dict)
    # This instance among those that share a processing step's work.
    instance_index: int = 0
    instance_count: int = 1

    def __getitem__(self, name: str) -> Path:
        return self.inputs[name]

    def get(self, name: str) -> Path | None:
        return self.inputs.get(name)


def prepare_output(output: Path) -> None:
    """An empty output folder marked unfinished. Clears what a killed attempt left; never a folder that is not ours."""
    output.mkdir(parents=True, exist_ok=True)
    leftovers = sorted(output.iterdir())
    if leftovers and not (output / UNFINISHED_NAME).is_file():
        raise ConfigError("output", f"{output} is not empty", remedy="Name an empty or new folder.")
    for leftover in leftovers:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        elif leftover.name != UNFINISHED_NAME:
            leftover.unlink()
    (output / UNFINISHED_NAME).touch()
