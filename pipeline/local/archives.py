"""Folders as .tar.gz files, the same bytes for the same content: how a training job's output leaves the service."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Sequence
from pathlib import Path

from steps.contract import StepError, all_files, file_sha256

EXECUTABLE, READABLE = 0o755, 0o644


def pack(folders: Sequence[Path], archive: Path, subject: str) -> None:
    """Writes the files of the folders, one an instance, into one archive: sorted, without owners and times.

    Raises StepError, named by `subject`, where two instances wrote different files of one name.
    """
    files: dict[str, Path] = {}
    for folder in folders:
        for name in all_files(folder):
            path = folder / name
            if name in files and file_sha256(files[name]) != file_sha256(path):
                remedy = "Let each instance write only its own files."
                raise StepError(subject, f"two instances wrote different {name}", remedy=remedy)
            files.setdefault(name, path)
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        archive.open("wb") as raw,
        # The header of a gzip file holds a name and a time of its own.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            status = files[name].stat()
            entry.size, entry.mode = status.st_size, EXECUTABLE if status.st_mode & 0o100 else READABLE
            with files[name].open("rb") as content:
                tar.addfile(entry, content)
