"""The local model registry: numbered versions of model folders that outlive the runs that made them.

    REGISTRY/<group>/<version>/model/             a copy of the model folder: no later run and no edit reaches it
    REGISTRY/<group>/<version>/version.json       what CreateModelPackage got, digests, metrics; written once
    REGISTRY/<group>/<version>/evidence/          what is kept of the run that made it; written once
    REGISTRY/<group>/<version>/approvals/000001.json ...   the approval history, one file an entry, never changed

Nothing is ever overwritten: versions are made aside and renamed into place, the approval status is the newest entry of
the history, by its number. Who writes holds the group's lock, so that what a killed registration left aside is known
as such and cleared by the next. A version whose records are damaged is named and stands in nobody's way.
A version is what the SageMaker Model Registry calls a model package.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline.local.cache import content_digest, text_digest
from pipeline.model_versions import (
    VERSION_FILE,
    VERSION_NUMBER,
    Approval,
    DamagedVersion,
    ModelVersion,
    Status,
    VersionRecord,
    copy_model,
    damage_error,
    evidence_damage,
    model_damage,
    read_version,
)
from steps.contract import ConfigError, StepError, all_files, nearest_name, sync_folder, write_atomically, write_json
from steps.contract.locks import FileLock, LockHeldError

# The metadata with the digest of the settings that made a model. Nothing else in the metadata makes it another model:
# not the code, which leaves its trace in the weights or none, and no figure, which follows from model and text.
SETTINGS_MEMBER = "settings_sha256"
# A registration copies a model of many gigabytes while it holds the group's lock.
LOCK_NAME = ".lock"
LOCK_SECONDS = 1_800.0
POLL_SECONDS = 0.1


# The names that the Model Registry takes, so none leads out of the folder.
GROUP_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")


def check_group(group: str) -> None:
    """Raises ConfigError for a group's name that the Model Registry would not take."""
    if not GROUP_NAME.fullmatch(group):
        limit = "63 letters, digits and hyphens, a letter or digit first and last"
        raise ConfigError("ModelPackageGroupName", repr(group), limit=limit, remedy="Change the name.")


class WaitStoppedError(Exception):
    """Who waited for another writer is to wait no longer."""


class LocalRegistry:
    """A registry folder; it need not exist until something is registered.

    say: gets a line where another process is waited for, or has died while it wrote.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self._say = say or (lambda line: None)

    def groups(self) -> list[str]:
        """Names of the groups that have a folder, sorted."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir())

    def list_versions(self, group: str | None = None) -> list[ModelVersion]:
        """All versions of a group, or of every group, oldest first; damaged ones are left out (see `damaged`)."""
        return [entry for entry in self._read_all(group) if isinstance(entry, ModelVersion)]

    def damaged(self, group: str | None = None) -> list[DamagedVersion]:
        """The versions whose records cannot be read, oldest first."""
        return [entry for entry in self._read_all(group) if isinstance(entry, DamagedVersion)]

    def show(self, version: int, group: str | None = None) -> ModelVersion:
        """One version. Raises ConfigError where there is no such folder, group or number, or it stands in several
        groups, and StepError where it is damaged."""
        self._check_place(group)
        versions = [entry for entry in self.list_versions(group) if entry.version == version]
        if not versions:
            for damaged in self.damaged(group):
                if damaged.version == version:
                    raise damaged.error()
            known = [str(entry.version) for entry in self.list_versions(group)]
            numbers = ", ".join(sorted(set(known), key=int))
            limit = f"one of {numbers}" if known else f"none is registered in {self.folder}"
            raise ConfigError("version", version, limit=limit, remedy="List them with `langadapt models list`.")
        if len(versions) > 1:
            groups = ", ".join(entry.group for entry in versions)
            raise ConfigError("version", version, limit=f"one group of {groups}", remedy="Name the group.")
        return versions[0]

    def approve(self, version: int, comment: str = "", *, group: str | None = None, by: str = "") -> ModelVersion:
        """Sets a version to Approved; approving an approved one changes nothing.

        Raises StepError for a version whose model or evidence is not what was registered, ConfigError for a rejected
        one without a comment that says what has changed.
        """
        entry = self.show(version, group)
        if entry.status == "Rejected" and not comment.strip():
            raise ConfigError("comment", "empty", limit="a reason, as the version was rejected",
                              remedy="Say why it is approved after all.")  # fmt: skip
        if damage := model_damage(entry) or evidence_damage(entry):
            raise damage_error(damage)
        return self._set_status(entry, "Approved", comment, by)

    def reject(self, version: int, comment: str, *, group: str | None = None, by: str = "") -> ModelVersion:
        """Sets a version to Rejected, with the reason. Raises ConfigError for an empty reason."""
        if not comment.strip():
            raise ConfigError("comment", "empty", remedy="Say why the version is rejected.")
        return self._set_status(self.show(version, group), "Rejected", comment, by)

    def newest_approved(self, group: str) -> ModelVersion | None:
        """The approved version with the highest number, None where none is approved.

        Raises StepError where it, or a newer one that may be approved, is damaged: an older one in its place would be
        another champion, and nobody would know.
        """
        approved = [entry for entry in self.list_versions(group) if entry.status == "Approved"]
        newest = approved[-1] if approved else None
        for damaged in self.damaged(group):
            is_newer = newest is None or damaged.version > newest.version
            if is_newer and damaged.status in ("Approved", None):
                raise damaged.error()
        if newest is not None and (reason := model_damage(newest)):
            remedy = f"Restore it from a copy, or reject version {newest.version}."
            raise StepError("champion", f"damaged model version ({reason})", remedy=remedy)
        return newest

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
        evidence: Mapping[str, bytes] | None = None,
        stop: threading.Event | None = None,
    ) -> tuple[ModelVersion, bool]:
        """A version for this model and its settings, and whether it is new: what is registered already is given back.

        metadata: kept with a new version; its `settings_sha256`, empty where there is none, tells two registrations of
        one model content apart.  evidence: content by path below the version's folder `evidence`.
        stop: ends the waiting for another writer, with WaitStoppedError.
        Raises StepError for a missing or empty model folder, ConfigError for an unknown status or a group whose name
        the Model Registry would not take.
        """
        check_group(group)
        known = ("PendingManualApproval", "Approved", "Rejected")
        if status not in known:
            raise ConfigError("ModelApprovalStatus", status, remedy=nearest_name(status, known))
        digest = content_digest(model)
        identity = text_digest(json.dumps([digest, metadata.get(SETTINGS_MEMBER, "")]))
        with self._writing(group, stop) as folder:
            for entry in self.list_versions(group):
                if entry.identity == identity and model_damage(entry, check_content=False) is None:
                    return entry, False
            aside = folder / f".new-{uuid.uuid4().hex}"
            try:
                copy_model(model, aside / "model")
                if content_digest(aside / "model") != digest:
                    raise StepError(str(model), "changed while it was registered", remedy="Run again.")
                kept = all_files(aside / "model")
                for name, content in (evidence or {}).items():
                    write_atomically(aside / "evidence" / name, content)
                record = VersionRecord(
                    group=group, version=self._next_number(group), identity=identity, model_digest=digest,
                    model_bytes=sum((aside / "model" / name).stat().st_size for name in kept),
                    metadata=dict(metadata), metrics=dict(metrics), request=dict(request),
                    run_folder=str(run_folder or ""), created_at=time.time(),
                    evidence={name: sha256(content).hexdigest() for name, content in (evidence or {}).items()},
                )  # fmt: skip
                _write_approval(aside, Approval.model_validate({"status": status, "at": record.created_at}))
                return self._publish(aside, record), True
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise

    @contextmanager
    def _writing(self, group: str, stop: threading.Event | None = None) -> Iterator[Path]:
        """The group's folder, in which nobody else writes meanwhile. Clears what killed registrations left."""
        folder = self.folder / group
        lock = FileLock(folder / LOCK_NAME)
        deadline = time.monotonic() + LOCK_SECONDS
        is_told = False
        while True:
            try:
                lock.acquire()
                break
            except LockHeldError as held:
                if time.monotonic() > deadline:
                    remedy = "Wait for it to end, or end it."
                    raise StepError(str(folder), f"in use by process {held.holder}", remedy=remedy) from held
                if not is_told:
                    self._say(f"Waiting for process {held.holder}, which writes to the registry {folder}.")
                    is_told = True
                if stop is None:
                    time.sleep(POLL_SECONDS)
                elif stop.wait(POLL_SECONDS):
                    raise WaitStoppedError from held
        if lock.died_with_it:
            self._say(f"Process {lock.died_with_it} ended while it wrote to the registry {folder}: taking over.")
        try:
            for leftover in folder.glob(".new-*"):
                shutil.rmtree(leftover)
            yield folder
        finally:
            lock.release()

    def _check_place(self, group: str | None) -> None:
        """Raises ConfigError for a folder that does not exist, and for a group that it lacks."""
        if not self.folder.is_dir():
            remedy = "Name another with --registry; langadapt run makes one when its gate is open."
            raise ConfigError("registry", f"{self.folder} does not exist", remedy=remedy)
        groups = self.groups()
        if group is not None and groups and group not in groups:
            check_group(group)
            raise ConfigError("group", group, limit=f"a group of {self.folder}", remedy=nearest_name(group, groups))

    def _numbers(self, group: str) -> list[int]:
        folders = (self.folder / group).glob("*")
        return sorted(int(path.name) for path in folders if VERSION_NUMBER.fullmatch(path.name))

    def _next_number(self, group: str) -> int:
        # A damaged version keeps its number.
        return max(self._numbers(group), default=0) + 1

    def _publish(self, aside: Path, record: VersionRecord) -> ModelVersion:
        while True:
            write_json(aside / VERSION_FILE, record.model_dump(mode="json"))
            folder = self.folder / record.group / str(record.version)
            try:
                os.rename(aside, folder)
                break
            except OSError as error:
                # On a file system whose locks do not reach every machine somebody may have taken the number.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                record = record.model_copy(update={"version": record.version + 1})
        sync_folder(folder.parent)
        return self.show(record.version, record.group)

    def _set_status(self, entry: ModelVersion, status: Status, comment: str, by: str) -> ModelVersion:
        with self._writing(entry.group) as folder:
            entry = self.show(entry.version, entry.group)
            if entry.status != status:
                approval = Approval(status=status, comment=comment, by=by, at=time.time())
                _write_approval(folder / str(entry.version), approval)
        return self.show(entry.version, entry.group)

    def _read_all(self, group: str | None) -> Iterator[ModelVersion | DamagedVersion]:
        if group is not None:
            check_group(group)
        for name in [group] if group is not None else self.groups():
            for number in self._numbers(name):
                yield read_version(self.folder / name / str(number))


def _write_approval(folder: Path, approval: Approval) -> None:
    """Adds an entry to the history: the next number, whatever the clocks of those who wrote the others said."""
    entries = folder.glob("approvals/*.json")
    numbers = [int(path.stem) for path in entries if path.stem.isascii() and path.stem.isdecimal()]
    path = folder / "approvals" / f"{max(numbers, default=0) + 1:06d}.json"
    write_json(path, approval.model_dump(mode="json"))
