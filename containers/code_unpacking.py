"""The step's code: the archive <sha256>.zip of the input `code`, checked against its name and unpacked."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from containers.launch_errors import LaunchError

# An archive that is larger than this, or unpacks to more, is none of ours.
LARGEST_CODE_BYTES = 64 * 1024 * 1024
MOST_MEMBERS = 10_000
# What Python's zipfile raises for archives that are damaged, encrypted, or packed in a way of their own; and what a
# disk answers where a member's name cannot be made, or is a file's and a folder's at once.
UNREADABLE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError)
UNFIT_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def unpack_code(folder: Path | None, target: Path) -> tuple[str, Path]:
    """The archive's sha256 and the folder that it was unpacked into. Raises LaunchError for a wrong or missing one."""
    if folder is None:
        raise LaunchError("code: no input of this name. Give the job the step's code archive.")
    archives = archives_below(folder)
    if len(archives) != 1:
        raise LaunchError(f"code: {len(archives)} archives in {folder}; limit exactly 1. Name one archive.")
    archive, named = archives[0], archives[0].stem
    if archive.stat().st_size > LARGEST_CODE_BYTES:
        raise LaunchError(f"code: {archive.name} is too large; limit {LARGEST_CODE_BYTES} bytes. Rebuild it.")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != named:
        raise LaunchError(f"code: {archive.name} has the sha256 {digest}. Upload the archive again.")
    make_empty(target)
    try:
        extract(archive, target)
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno not in UNFIT_NAMES:
            raise
        raise LaunchError(f"code: {archive.name} cannot be unpacked: {error}. Rebuild the archive.") from error
    return digest, target


def archives_below(folder: Path) -> list[Path]:
    """The archives in a folder and those below it. Raises OSError where one may not be looked into."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    found = [Path(place) / name for place, _, names in os.walk(folder, onerror=refuse) for name in names]
    return sorted(path for path in found if path.suffix == ".zip" and path.is_file())


def make_empty(target: Path) -> None:
    """A new folder in place of what was there."""
    try:
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    except OSError as error:
        # rmtree names what it could not remove without the folders that it lies in.
        raise OSError(error.errno, f"{error.strerror}, in it or at it", str(target)) from error
    target.mkdir(parents=True)


def extract(archive: Path, target: Path) -> None:
    """Writes an archive's members below the folder, once all of them are known to belong there."""
    with zipfile.ZipFile(archive) as bundle:
        members = bundle.infolist()
        for member in members:
            check_member(member, archive)
        if sum(member.file_size for member in members) > LARGEST_CODE_BYTES:
            raise LaunchError(
                f"code: {archive.name} is too large; limit {LARGEST_CODE_BYTES} bytes unpacked. Rebuild it."
            )
        if len(members) > MOST_MEMBERS:
            raise LaunchError(f"code: {archive.name} has {len(members)} members; limit {MOST_MEMBERS}. Rebuild it.")
        bundle.extractall(target)


def check_member(member: zipfile.ZipInfo, archive: Path) -> None:
    """Refuses whatever would be written outside of the folder, and links."""
    path = PurePosixPath(member.filename)
    is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename or is_link:
        raise LaunchError(
            f"code: {archive.name} holds {member.filename!r}; limit paths inside it. Rebuild the archive."
        )


def check_step(step: str, code: Path) -> None:
    """Raises LaunchError where the archive has no module of the step."""
    if not (code / "steps" / f"{step}.py").is_file():
        raise LaunchError(f"step: {step}; limit a step whose code is in the job's archive. Correct the setting `step`.")
