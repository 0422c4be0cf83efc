"""The local model registry: numbered versions of model folders that outlive the runs that made them.

    REGISTRY/<group>/<version>/model/             a copy of the model folder: no later run and no edit reaches it
    REGISTRY/<group>/<version>/version.json       what CreateModelPackage got, digests, metrics; written once
    REGISTRY/<group>/<version>/approvals/000001.json ...   the approval history, one file an entry, never changed

Nothing is ever overwritten: versions are made aside and renamed into place, the approval status is the newest entry of
the history. A version is what the SageMaker Model Registry calls a model package.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic

from pipeline.local.cache import all_files, content_digest, text_digest
from steps.contract import ConfigError, StepError, nearest_name, write_json

VERSION_FILE = "version.json"
# The metadata with the digest of the settings that made a model. Nothing else in the metadata makes it another model:
# not the code, which leaves its trace in the weights or none, and no figure, which follows from model and text.
SETTINGS_MEMBER = "settings_sha256"
Status = Literal["PendingManualApproval", "Approved", "Rejected"]


class Approval(pydantic.BaseModel):
    """One entry of the approval history. at: seconds since the epoch."""

    status: Status
    comment: str = ""
    by: str = ""
    at: float


class VersionRecord(pydantic.BaseModel):
    """version.json. identity: sha256 over model content and settings; the same identity is the same version."""

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


class ModelVersion(VersionRecord):
    """A version with where its model lies and how its approval stands."""

    model_folder: Path
    approvals: list[Approval]

    @property
    def status(self) -> Status:
        return self.approvals[-1].status

    @property
    def approval_seconds(self) -> float:
        """When the status was last set, in seconds since the epoch."""
        return self.approvals[-1].at


class LocalRegistry:
    """A registry folder; it need not exist until something is registered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def groups(self) -> list[str]:
        """Names of the groups that have a folder, sorted."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir())

    def list_versions(self, group: str | None = None) -> list[ModelVersion]:
        """All versions of a group, or of every group, oldest first."""
        found = []
        for name in [group] if group is not None else self.groups():
            numbers = sorted(int(path.name) for path in (self.folder / name).glob("*") if path.name.isdigit())
            found += [self._read(name, number) for number in numbers]
        return found

    def show(self, version: int, group: str | None = None) -> ModelVersion:
        """One version. Raises ConfigError where there is none of that number, or it stands in several groups."""
        versions = [entry for entry in self.list_versions(group) if entry.version == version]
        if not versions:
            known = [str(entry.version) for entry in self.list_versions(group)]
            limit = f"one of {', '.join(sorted(set(known), key=int))}" if known else "none is registered"
            raise ConfigError("version", version, limit=limit, remedy="List them with `langadapt models list`.")
        if len(versions) > 1:
            groups = ", ".join(entry.group for entry in versions)
            raise ConfigError("version", version, limit=f"one group of {groups}", remedy="Name the group.")
        return versions[0]

    def approve(self, version: int, comment: str = "", *, group: str | None = None, by: str = "") -> ModelVersion:
        """Sets a version to Approved; approving an approved one changes nothing."""
        return self._set_status(self.show(version, group), "Approved", comment, by)

    def reject(self, version: int, comment: str, *, group: str | None = None, by: str = "") -> ModelVersion:
        """Sets a version to Rejected, with the reason. Raises ConfigError for an empty reason."""
        if not comment.strip():
            raise ConfigError("comment", "empty", remedy="Say why the version is rejected.")
        return self._set_status(self.show(version, group), "Rejected", comment, by)

    def newest_approved(self, group: str) -> ModelVersion | None:
        """The approved version with the highest number, None where none is approved."""
        approved = [entry for entry in self.list_versions(group) if entry.status == "Approved"]
        return approved[-1] if approved else None

    def register(
        self,
        *,
        group: str,
        model: Path,
        metadata: Mapping[str, str],
        metrics: Mapping[str, Any],
        request: Mapping[str, Any],
        status: str = "PendingManualApproval",
        run_folder: Path | None = None,
    ) -> tuple[ModelVersion, bool]:
        """A version for this model and its settings, and whether it is new: what is registered already is given back.

        metadata: kept with a new version; its `settings_sha256`, empty where there is none, tells two registrations of
        one model content apart.
        Raises StepError for a missing or empty model folder, ConfigError for an unknown status.
        """
        known = ("PendingManualApproval", "Approved", "Rejected")
        if status not in known:
            raise ConfigError("ModelApprovalStatus", status, remedy=nearest_name(status, known))
        digest = content_digest(model)
        identity = text_digest(json.dumps([digest, metadata.get(SETTINGS_MEMBER, "")]))
        for entry in self.list_versions(group):
            if entry.identity == identity:
                return entry, False
        aside = self.folder / group / f".new-{uuid.uuid4().hex}"
        _keep_model(model, aside / "model")
        if content_digest(aside / "model") != digest:
            raise StepError(str(model), "changed while it was registered", remedy="Run again.")
        kept_bytes = sum((aside / "model" / name).stat().st_size for name in all_files(aside / "model"))
        numbers = [entry.version for entry in self.list_versions(group)]
        record = VersionRecord(
            group=group, version=max(numbers, default=0) + 1, identity=identity, model_digest=digest,
            model_bytes=kept_bytes, metadata=dict(metadata),
            metrics=dict(metrics), request=dict(request), run_folder=str(run_folder or ""), created_at=time.time(),
        )  # fmt: skip
        _write_approval(aside, Approval.model_validate({"status": status, "at": record.created_at}), 1)
        return self._publish(aside, record), True

    def _publish(self, aside: Path, record: VersionRecord) -> ModelVersion:
        while True:
            write_json(aside / VERSION_FILE, record.model_dump(mode="json"))
            try:
                # Fails where another process took this number in the meantime, as the folder is not empty.
                os.rename(aside, self.folder / record.group / str(record.version))
                return self._read(record.group, record.version)
            except OSError:
                if not (self.folder / record.group / str(record.version)).exists():
                    raise
                record = record.model_copy(update={"version": record.version + 1})

    def _set_status(self, entry: ModelVersion, status: Status, comment: str, by: str) -> ModelVersion:
        if entry.status != status:
            approval = Approval(status=status, comment=comment, by=by, at=time.time())
            _write_approval(self.folder / entry.group / str(entry.version), approval, len(entry.approvals) + 1)
        return self._read(entry.group, entry.version)

    def _read(self, group: str, version: int) -> ModelVersion:
        folder = self.folder / group / str(version)
        try:
            record = VersionRecord.model_validate_json((folder / VERSION_FILE).read_bytes())
            files = sorted(folder.glob("approvals/*.json"))
            approvals = [Approval.model_validate_json(path.read_bytes()) for path in files]
        except (FileNotFoundError, pydantic.ValidationError) as error:
            reason = " ".join(str(error).split())[:120]
            raise StepError(str(folder), f"no model version ({reason})", remedy="Restore it from a copy.") from error
        return ModelVersion(**record.model_dump(), model_folder=folder / "model", approvals=approvals)


def _write_approval(folder: Path, approval: Approval, number: int) -> None:
    path = folder / "approvals" / f"{number:06d}.json"
    if path.exists():
        raise ConfigError(str(path), "was written by someone else just now", remedy="Look at it and try again.")
    write_json(path, approval.model_dump(mode="json"))


def _keep_model(source: Path, target: Path) -> None:
    """Copies: with a hard link, whoever cut the run's file short would cut the registered one too."""
    target.mkdir(parents=True)
    for name in [""] if source.is_file() else all_files(source):
        kept = target / (name or source.name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name if name else source, kept)
