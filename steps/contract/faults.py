"""Errors that a person can mend although a library or the system raised them: a full disk, no memory, a bad place.

A library may hide the system's error: behind another exception (`raise ... from`), in a text (Rust's `os error 28`), in
the exceptions of each process (torch's checkpoints), or wholly (torch's file writer). `mendable_error` knows the ways.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from steps.contract.errors import PLACE_ERRORS, StepError, UserError

# A cause that an exception was raised beside, not from, counts only where it cannot have been expected and handled.
RESOURCE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)
# What a file in a folder's place answers, or the other way round: of a place that the user named his fault, else ours.
KIND_ERRORS = frozenset({errno.EEXIST, errno.EISDIR, errno.ENOTDIR})
# Settings of the steps that memory grows with; a step that runs out of it names those that it has.
MEMORY_SETTINGS = (
    "device_batch_blocks", "batch_conversations", "batch_tokens", "max_training_bytes", "max_documents", "max_tokens",
    "block_tokens",
)  # fmt: skip
SAME_COMMAND = "then give the same command again: it goes on from what is finished."
_SYSTEM_ERROR = re.compile(r"\((?:os error|errno) (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
# numpy's words for a write that ended early, which is how it meets a full disk.
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")
# torch's file writer (C++) knows that it failed, not why.
_FILE_WRITER = re.compile(r"inline_container\.cc|iostream error|PytorchStreamWriter failed")
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|cannot allocate memory|std::bad_alloc", re.IGNORECASE)


def mendable_error(error: BaseException, place: Path | None = None, settings: Iterable[str] = ()) -> UserError | None:
    """The one line of an error that is the machine's or a place's fault, None for any other, which is a bug.

    place: what was written to, named where the error itself names no path; an error of KIND_ERRORS counts then only of
    this place and the folders above it, as what lies in it is our own work. settings: names of the settings in use, of
    which those that memory grows with are named where there is none left.
    """
    for found, is_certain in _causes(error):
        if isinstance(found, UserError):
            return found
        if isinstance(found, MemoryError) or (isinstance(found, RuntimeError) and _NO_MEMORY.search(str(found))):
            return _no_memory(found, settings)
        if isinstance(found, RuntimeError) and _FILE_WRITER.search(str(found)):
            return _unwritable(place, "could not be written to the end")
        number = system_error(found)
        if number == errno.ENOMEM:
            return _no_memory(found, settings)
        if number in RESOURCE_ERRORS or (is_certain and number in PLACE_ERRORS and _is_users(found, number, place)):
            return place_error(found, number, place)
    return None


def _is_users(error: BaseException, number: int | None, place: Path | None) -> bool:
    """False for an error of KIND_ERRORS that is not of the place or above it."""
    if place is None or number not in KIND_ERRORS:
        return True
    names = [getattr(error, name, None) for name in ("filename2", "filename")]
    paths = [Path(os.fsdecode(name)).absolute() for name in names if isinstance(name, str | bytes)]
    return any(path in (place.absolute(), *place.absolute().parents) for path in paths)


def system_error(error: BaseException) -> int | None:
    """The system's number of an error: its own, or the one that its text tells."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, OSError) and _SHORT_WRITE.search(str(error)):
        return errno.ENOSPC
    if match := _SYSTEM_ERROR.search(str(error)):
        return int(match[1] or match[2])
    return None


def _causes(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """An exception and those behind it, and whether it was raised from them (or is itself) and not merely after."""
    waiting, seen = [(error, True)], set()
    while waiting:
        found, is_certain = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found, is_certain
        # torch's CheckpointException: what each process met, with its stack.
        failures = getattr(found, "failures", None)
        if isinstance(failures, Mapping):
            waiting += [(entry[0], is_certain) for entry in failures.values() if isinstance(entry, tuple)]
        if found.__cause__ is not None:
            waiting.append((found.__cause__, is_certain))
        elif found.__context__ is not None:
            waiting.append((found.__context__, False))


def place_error(error: BaseException, number: int | None = None, place: Path | None = None) -> UserError:
    """The one line of an error in PLACE_ERRORS. number: of the system, where the error does not carry it itself."""
    number = number if number is not None else system_error(error)
    # Of a copy or a renaming that found no space the second name is the one at fault.
    names = [getattr(error, name, None) for name in ("filename2", "filename")]
    named = next((os.fsdecode(name) for name in names if isinstance(name, str | bytes)), None)
    path = Path(named) if named is not None else place
    reason = os.strerror(number) if number is not None else "cannot be used"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return _unwritable(path, reason)
    remedies = {
        errno.EFBIG: f"Raise the limit of a file's size (`ulimit -f`) or name another place, {SAME_COMMAND}",
        errno.EIO: f"Look at the disk and its connection, {SAME_COMMAND}",
        errno.ESTALE: f"Look at the connection to its server, {SAME_COMMAND}",
        errno.EMFILE: "Raise the limit of open files (`ulimit -n`).",
        errno.ENFILE: "Raise the system's limit of open files.",
        errno.EISDIR: "Remove the folder that stands in the place of a file.",
        errno.EACCES: "Give this user the right to it, or name another place.",
        errno.EPERM: "Give this user the right to it, or name another place.",
    }
    remedy = remedies.get(number or 0, "Name a place that can be written to.")
    return StepError(str(path or "disk"), reason, remedy=remedy)


def _unwritable(path: Path | None, reason: str) -> UserError:
    limit = None
    if path is not None:
        there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        usage = shutil.disk_usage(there)
        limit = f"{size_text(usage.free)} free of {size_text(usage.total)}"
    return StepError(str(path or "disk"), reason, limit=limit, remedy=f"Make space, {SAME_COMMAND}")


def _no_memory(error: BaseException, settings: Iterable[str]) -> UserError:
    return StepError("memory", f"none left ({shortened(str(error)) or type(error).__name__})",
                     limit=size_text(memory_bytes()), remedy=memory_remedy(settings))  # fmt: skip


def memory_remedy(settings: Iterable[str]) -> str:
    """What to lower, of the settings that there are, or else what to do."""
    given = [name for name in settings if name in MEMORY_SETTINGS]
    lowered = f"Lower {' or '.join(given)}, or use" if given else "Use"
    return f"{lowered} a machine with more memory."


def memory_bytes() -> int:
    """The memory that this process may have: the machine's, or what `ulimit -v` leaves of it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


def shortened(text: str, characters: int = 160) -> str:
    """A text in one line, its end cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters]}..."


def size_text(size_bytes: float) -> str:
    """Bytes as people read them, such as 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1_000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.1f} TB"
