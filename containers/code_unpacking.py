"""The step's code: the archive <sha256>.zip of the input `code`, checked against its name and unpacked."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path, PurePosixPath

from containers.launch_errors import LaunchError

# An archive that unpacks to more than this is none of ours.
LARGEST_CODE_BYTES = 64 * 1024 * 1024


def unpack_code(folder: Path | None, target: Path) -> tuple[str, Path]:
    """The archive's sha256 and the folder that it was unpacked into. Raises LaunchError for a wrong or missing one."""
    if folder is None:
        raise LaunchError("code: no input of this name. Give the job the step's code archive.")
    archives = sorted(path for path in folder.rglob("*.zip") if path.is_file())
    if len(archives) != 1:
        raise LaunchError(f"code: {len(archives)} archives in {folder}; limit exactly 1. Name one archive.")
    archive, named = archives[0], archives[0].stem
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != named:
        raise LaunchError(f"code: {archive.name} has the sha256 {digest}. Upload the archive again.")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    with zipfile.ZipFile(archive) as bundle:
        members = bundle.infolist()
        for member in members:
            check_member(member, archive)
        if sum(member.file_size for member in members) > LARGEST_CODE_BYTES:
            raise LaunchError(
                f"code: {archive.name} is too large; limit {LARGEST_CODE_BYTES} bytes unpacked. Rebuild it."
            )
        bundle.extractall(target)
    return digest, target


def check_member(member: zipfile.ZipInfo, archive: Path) -> None:
    """Refuses whatever would be written outside of the folder, and links."""
    path = PurePosixPath(member.filename)
    is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename or is_link:
        raise LaunchError(
            f"code: {archive.name} holds {member.filename!r}; limit paths inside it. Rebuild the archive."
        )
