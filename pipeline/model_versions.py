"""A registered model version on disk: its records, and whether its files still are what was registered."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

from pipeline.local.cache import content_digest
from steps.contract import StepError, all_files, file_entry, file_sha256, size_text, sync_folder
from steps.contract.files import make_folder

VERSION_FILE = "version.json"
# A folder of another name in a group is no version: int() would read numbers in any script.
VERSION_NUMBER = re.compile("[1-9][0-9]{0,17}")
Status = Literal["PendingManualApproval", "Approved", "Rejected"]


class Approval(pydantic.BaseModel):
    """One entry of the approval history. at: seconds since the epoch, by the clock of who set it; its number orders."""

    status: Status
    comment: str = ""
    by: str = ""
    at: float


class VersionRecord(pydantic.BaseModel):
    """version.json. identity: sha256 over model content and settings; the same identity is the same version.

    evidence: sha256 of each file of the folder `evidence`, what is kept of the run (pipeline/local/evidence.py).
    """

    model_config = pydantic.ConfigDict(protected_namespaces=())

    group: str
    version: int
    identity: str
    model_digest: str
    model_bytes: int
    metadata: dict[str, str]
    metrics: dict[str, Any]
    request: dict[str, Any]
    run_folder: str
    created_at: float
    evidence: dict[str, str] = {}


class ModelVersion(VersionRecord):
    """A version with where its model lies and how its approval stands."""

    model_folder: Path
    approvals: list[Approval]

    @property
    def status(self) -> Status:
        return self.approvals[-1].status

    @property
    def evidence_folder(self) -> Path:
        return self.model_folder.parent / "evidence"

    @property
    def kept_at(self) -> str:
        """Its folder, and how large the model in it is."""
        return f"{self.model_folder.parent} ({size_text(self.model_bytes)} of model)"

    def evidence_named(self, name: str) -> Iterator[bytes]:
        """The content of each kept file of this name, in whichever step's folder it lies."""
        for path in self.evidence:
            if path.rpartition("/")[2] == name:
                yield (self.evidence_folder / path).read_bytes()


@dataclass(frozen=True)
class DamagedVersion:
    """A version whose records cannot be read. status: the newest that can be read, None where none can."""

    version: int
    folder: Path
    reason: str
    status: Status | None

    def error(self) -> StepError:
        remedy = "Restore it from a copy, or remove the folder."
        return StepError(str(self.folder), f"damaged model version ({self.reason})", remedy=remedy)


def read_version(folder: Path) -> ModelVersion | DamagedVersion:
    """The version in a folder whose name is its number, in the folder of its group."""
    approvals: list[Approval] = []
    try:
        for path in sorted(folder.glob("approvals/*.json")):
            approvals.append(Approval.model_validate_json(path.read_bytes()))
        record = VersionRecord.model_validate_json((folder / VERSION_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, pydantic.ValidationError) as error:
        reason = " ".join(str(error).split())[:120]
    else:
        if approvals and (record.group, record.version) == (folder.parent.name, int(folder.name)):
            return ModelVersion(**record.model_dump(), model_folder=folder / "model", approvals=approvals)
        says = f"it says that it is version {record.version} of {record.group}"
        reason = says if approvals else "no approval history"
    return DamagedVersion(int(folder.name), folder, reason, approvals[-1].status if approvals else None)


def model_damage(version: ModelVersion, *, check_content: bool = True) -> str | None:
    """What differs from the model that was registered, in words; None where nothing does.

    check_content: False compares sizes alone, which reads no file.
    """
    folder = version.model_folder
    if not folder.is_dir():
        return f"{folder} is missing"
    size = sum((folder / name).stat().st_size for name in all_files(folder))
    if size != version.model_bytes:
        return f"{folder} has {size:,} bytes, registered with {version.model_bytes:,}"
    if not check_content:
        return None
    try:
        digest = content_digest(folder)
    except StepError as error:
        return f"{error.subject}: {error.value}"
    return None if digest == version.model_digest else f"{folder} has other content than was registered"


def evidence_damage(version: ModelVersion) -> str | None:
    """What differs from the evidence that was kept, in words; None where nothing does."""
    for name, digest in version.evidence.items():
        path = version.evidence_folder / name
        if not path.is_file():
            return f"{path} is missing"
        if file_sha256(path) != digest:
            return f"{path} has other content than was registered"
    return None


def damage_error(damage: str) -> StepError:
    """The one line of a version that is not what was registered. damage: what differs, in words."""
    return StepError("damaged model version", damage, remedy="Restore it from a copy, or reject the version.")


def copy_model(source: Path, target: Path, names: Sequence[str] | None = None) -> None:
    """Copies a model and forces it to the disk: what a rename makes visible must be there after a power cut, too.

    names: of the files to copy; without it all of them.
    With a hard link, whoever cut the run's file short would cut the registered one too. Raises StepError beforehand
    where the disk has no room for it.
    """
    if names is None:
        names = [""] if source.is_file() else all_files(source)
    make_folder(target)
    needed = sum((source / name).stat().st_size for name in names)
    if needed > (free := shutil.disk_usage(target).free):
        remedy = "Make space, then give the same command again: it goes on from what is finished."
        raise StepError(str(target.parent.parent), f"needs {size_text(needed)} for the model",
                        limit=f"{size_text(free)} free", remedy=remedy)  # fmt: skip
    for name in names:
        kept = target / (name or source.name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Not its mode: what was written elsewhere for its owner alone is served by others.
        shutil.copyfile(source / name if name else source, kept)
        file_entry(kept)
    for folder in {target, *((target / name).parent for name in names)}:
        sync_folder(folder)
