"""Files: hashed, listed, and written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from steps.contract.errors import StepError


def file_sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def table_digest(digests: Mapping[str, str]) -> str:
    """sha256 over a sorted table of path and content digest."""
    lines = "".join(f"{path}\0{digests[path]}\n" for path in sorted(digests))
    return hashlib.sha256(lines.encode()).hexdigest()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes aside, fsyncs, renames: a reader sees the old file or the new one, never half of either.

    Raises StepError where no file can be, as in /proc.
    """
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with aside.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        replace_durably(aside, path)
    except FileNotFoundError as error:
        raise _unmakeable(path) from error
    except BaseException as error:
        # A read-only disk removes nothing, not even what is not there.
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(aside)):
            # The error of a write names no file, and nobody knows the one aside.
            error.filename = str(path)
        raise


def make_folder(folder: Path, named: Path | None = None) -> None:
    """Makes a folder and those above it. Raises StepError where none can be, as in /proc.

    named: what the error names in the place of a folder aside.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise _unmakeable(named or folder) from error


def _unmakeable(path: Path) -> StepError:
    return StepError(str(path), "cannot be made there", remedy="Name a place that can be written to.")


def give_rights_of(made: Path, paths: Iterable[Path]) -> None:
    """Gives files the rights of one that was made under the same umask: safetensors lets the owner alone read its own.

    A right that a file has already it keeps.
    """
    rights = made.stat().st_mode & 0o666
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode | rights != mode:
            path.chmod(mode | rights)


def replace_durably(source: Path, target: Path) -> None:
    """Renames over what is there and forces the new name to the disk."""
    os.replace(source, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Forces the names in a folder to the disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Any) -> None:
    """Writes JSON atomically, readable and in a stable form; NaN and infinity are refused."""
    write_atomically(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def refusing_vanished(place: Path) -> Iterator[None]:
    """Within it a file that is not there any more is a StepError: somebody works on what is being read."""
    try:
        yield
    except FileNotFoundError as error:
        remedy = "Leave the inputs as they are while a run goes on, then give the same command again."
        raise StepError(str(error.filename or place), "vanished while it was read", remedy=remedy) from error


def check_name(path: Path) -> None:
    """Raises StepError for a path that is no UTF-8: neither records nor digests nor URIs can hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise StepError(shown, "a name that is no UTF-8", remedy="Rename it.") from error


def all_files(folder: Path) -> list[str]:
    """Sorted relative paths (with /) of all files below a folder; links are followed.

    Pipes, sockets and devices are no files. Raises StepError for a link to nothing, unless its name begins with a dot
    (editors mark open files so), for a folder that a link leads back to, and for a name that is no UTF-8; OSError for a
    folder that cannot be read.
    """
    return sorted(_walk(folder, folder, ()))


def _walk(top: Path, folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    found = folder.stat()
    identity = (found.st_dev, found.st_ino)
    if identity in above:
        raise StepError(str(folder), "a link back to a folder above it", remedy="Remove the link.")
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            try:
                is_folder = entry.is_dir()
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                raise StepError(str(path), "a link that leads to itself", remedy="Remove the link.") from error
            if is_folder or entry.is_file():
                check_name(path)
            if is_folder:
                yield from _walk(top, path, (*above, identity))
            elif entry.is_file():
                yield path.relative_to(top).as_posix()
            elif entry.is_symlink() and not path.exists() and not entry.name.startswith("."):
                raise StepError(str(path), "a link to nothing", remedy="Remove the link or restore what it names.")
