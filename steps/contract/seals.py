"""Seals: manifest.json says what made a folder and vouches for every file in it."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic

from steps.contract.errors import StepError
from steps.contract.files import (
    all_files,
    file_sha256,
    give_rights_of,
    refusing_vanished,
    replace_durably,
    table_digest,
    write_json,
)
from steps.contract.folders import MANIFEST_NAME, UNFINISHED_NAME, StepFolders
from steps.contract.settings import StepConfig

# launch.py sets it to the digest of the code archive that it unpacked.
CODE_DIGEST_VARIABLE = "LANGADAPT_CODE_SHA256"
# The libraries whose versions a manifest records, where they are installed.
RECORDED_LIBRARIES = (
    "accelerate", "datasets", "gigatoken", "numpy", "peft", "rustbpe", "sentencepiece", "tokenizers", "torch",
    "transformers", "trl",
)  # fmt: skip


class FileEntry(pydantic.BaseModel):
    """One sealed file: its size in bytes and the sha256 of its content."""

    bytes: int
    sha256: str


class Warned(pydantic.BaseModel):
    """Something that a step found plausible but likely wrong. name: lower case with hyphens."""

    name: str
    message: str


class Manifest(pydantic.BaseModel):
    """manifest.json: what made a folder, and every file in it.

    reports: those of the files that tell about the run (times, memory) and that no later step computes with. They are
    sealed as all others, but no part of the content.
    """

    step: str
    config: dict[str, Any]
    inputs: dict[str, str]
    code_sha256: str | None
    files: dict[str, FileEntry]
    reports: list[str] = []
    metrics: dict[str, float | int | str]
    warnings: list[Warned] = []
    seconds: float
    peak_memory_bytes: int
    versions: dict[str, str]

    @property
    def content_digest(self) -> str:
        """sha256 over path and content of every file but reports: no time, host or path outside goes in."""
        return table_digest({path: entry.sha256 for path, entry in self.files.items() if path not in self.reports})


def files_to_seal(folder: Path) -> list[str]:
    """The files of an output folder that its seal vouches for: all but seals and the marker of unfinished work."""
    described = {UNFINISHED_NAME, *(path.name for path in find_seals(folder))}
    return [name for name in all_files(folder) if name not in described]


def file_entry(path: Path) -> FileEntry:
    """Size and sha256 of a file, forced to the disk first: content must be there before a seal vouches for it."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return FileEntry(bytes=path.stat().st_size, sha256=file_sha256(path))


def find_seals(folder: Path) -> list[Path]:
    """Where a folder's seal is: manifest.json, or one file an instance; empty where nothing has such a name."""
    parts = sorted(folder.glob("manifest.part-*-of-*.json"))
    return parts or [path for path in [folder / MANIFEST_NAME] if path.is_file()]


def files_without_content(folder: Path) -> set[str]:
    """The files of a folder that are not its content: our own seals and the reports that they name.

    Empty for a folder that somebody else made: a manifest.json of theirs is content as any other file.
    """
    try:
        manifests = {path.name: Manifest.model_validate_json(path.read_bytes()) for path in find_seals(folder)}
    except pydantic.ValidationError:
        return set()
    return {*manifests, *(name for manifest in manifests.values() for name in manifest.reports)}


def seal_path(folder: Path, instance_index: int, instance_count: int) -> Path:
    """manifest.json, or one seal an instance where several instances fill one folder."""
    if instance_count == 1:
        return folder / MANIFEST_NAME
    return folder / f"manifest.part-{instance_index:05d}-of-{instance_count:05d}.json"


def read_seal(folder: Path, *, check_files: bool = True) -> Manifest:
    """The seal of a folder, merged over all instances that filled it; every file's size and sha256 is checked.

    check_files: False takes the files' word for it, where another process of this machine checks them.
    Raises StepError where the folder has no seal, a part of it is missing, or a file does not match.
    """
    remedy = "Run the step that makes this folder again."
    paths = find_seals(folder)
    if not paths:
        raise StepError(str(folder), "no manifest.json, so it was never finished", remedy=remedy)
    expected = 1 if paths[0].name == MANIFEST_NAME else int(paths[0].stem.rsplit("-", 1)[1])
    if len(paths) != expected:
        raise StepError(str(folder), f"{len(paths)} part seals", limit=f"exactly {expected}", remedy=remedy)
    try:
        manifests = [Manifest.model_validate_json(path.read_bytes()) for path in paths]
    except pydantic.ValidationError as error:
        raise StepError(str(paths[0]), "not a seal that this version reads", remedy=remedy) from error
    files = {name: entry for manifest in manifests for name, entry in manifest.files.items()}
    for name, entry in sorted(files.items()) if check_files else ():
        path = folder / name
        if not path.is_file():
            raise StepError(str(path), "missing from a sealed folder", remedy=remedy)
        if (size := path.stat().st_size) != entry.bytes:
            raise StepError(str(path), f"{size} bytes", limit=f"{entry.bytes} as sealed", remedy=remedy)
        if file_sha256(path) != entry.sha256:
            raise StepError(str(path), "content differs from its seal", remedy=remedy)
    reports = sorted({name for manifest in manifests for name in manifest.reports})
    return manifests[0].model_copy(update={"files": files, "reports": reports})


def content_digest(folder: Path) -> str:
    """sha256 over path and content of every file; of a folder with a seal of ours the same as Manifest.content_digest,
    after the seal was checked, and with what was added since. A file counts as a folder of one.

    Raises StepError where a file does not match a seal of ours or vanishes while it is read, and for what is neither
    file nor folder; OSError where something cannot be read.
    """
    with refusing_vanished(folder):
        if folder.is_file():
            return table_digest({folder.name: file_sha256(folder)})
        if folder.exists() and not folder.is_dir():
            raise StepError(str(folder), "neither a file nor a folder", remedy="Name a file or a folder.")
        left_out = files_without_content(folder)
        sealed = read_seal(folder).files if left_out else {}
        names = [name for name in all_files(folder) if name not in left_out]
        digests = {name: sealed[name].sha256 if name in sealed else file_sha256(folder / name) for name in names}
    return table_digest(digests)


def seal(
    folders: StepFolders,
    step: str,
    config: StepConfig,
    metrics: Mapping[str, Any],
    seconds: float,
    reports: Sequence[str] = (),
    warnings: Sequence[Warned] = (),
) -> Manifest:
    """Writes the seal of `folders.output`, last and atomically. reports: see Manifest; one that ends in a slash stands
    for all files below it."""
    marker = folders.output / UNFINISHED_NAME
    marker.touch()
    names = files_to_seal(folders.output)
    give_rights_of(marker, (folders.output / name for name in names))
    files = {name: file_entry(folders.output / name) for name in names}
    below = tuple(report for report in reports if report.endswith("/"))
    named = {report for report in reports if report not in below}
    assert files.keys() >= named, f"reports {sorted(named - files.keys())} were not written"
    manifest = Manifest(
        step=step,
        config=config.model_dump(mode="json"),
        inputs=dict(sorted(folders.input_digests.items())),
        code_sha256=os.environ.get(CODE_DIGEST_VARIABLE),
        files=files,
        reports=sorted({*named, *(name for name in files if below and name.startswith(below))}),
        metrics=check_metrics(metrics),
        warnings=list(warnings),
        seconds=round(seconds, 3),
        peak_memory_bytes=peak_memory_bytes(),
        versions=library_versions(),
    )
    # Written into the marker of unfinished work, which then becomes the seal: at no moment is the folder neither.
    write_json(marker, manifest.model_dump(mode="json"))
    replace_durably(marker, seal_path(folders.output, folders.instance_index, folders.instance_count))
    return manifest


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics, each a finite number or a text. Raises StepError for a number that is not finite."""
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise StepError(name, value, limit="a finite number", remedy="Look at this step's log for the cause.")
    return dict(metrics)


def peak_memory_bytes() -> int:
    """Largest resident memory that this process has had."""
    # ru_maxrss is in KiB on Linux and in bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def library_versions() -> dict[str, str]:
    """Versions of Python and of the recorded libraries that are installed."""
    versions = {"python": platform.python_version()}
    for name in RECORDED_LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
