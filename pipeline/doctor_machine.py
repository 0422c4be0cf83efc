"""The machine: cores, memory, open files, and the folders that a run writes to."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.doctor_finding import MISSING, OK, WARNING, Finding

# Peak of the sample's largest step (docs/results.json), and how many steps run side by side.
STEP_BYTES = 1_100_000_000
STEPS_AT_A_TIME = 2
# One step at a time still works.
LEAST_MEMORY_BYTES = STEP_BYTES + 300_000_000
# The sample's run folder, registry and cache, with room for temporary files; below the least nothing fits.
DISK_BYTES = 2_000_000_000
LEAST_DISK_BYTES = 200_000_000
# A step holds some dozens open, its shards and what libraries map; torchrun's workers share none of theirs.
OPEN_FILES = 256
LEAST_OPEN_FILES = 64


def check_cores() -> Finding:
    """Cores that this process may use."""
    there = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    found = f"{allowed}" if allowed == there else f"{allowed} of {there}"
    if allowed < STEPS_AT_A_TIME:
        return Finding("cores", WARNING, found, brings=f"{STEPS_AT_A_TIME} let steps run side by side")
    return Finding("cores", OK, found)


def check_memory() -> Finding:
    """Memory of the machine, or of the container that this process is in, against what a run of the sample takes."""
    total, available = memory_bytes()
    found = f"{total / 1e9:.1f} GB, {available / 1e9:.1f} GB available"
    wanted = STEP_BYTES * STEPS_AT_A_TIME
    need = f"a run of the sample takes {wanted / 1e9:.1f} GB: {STEPS_AT_A_TIME} steps of {STEP_BYTES / 1e9:.1f} GB"
    if total < LEAST_MEMORY_BYTES:
        remedy = "Take a machine with more memory."
        return Finding("memory", MISSING, found, brings=need, remedy=remedy, needed=True)
    if available < wanted:
        return Finding("memory", WARNING, found, brings=need, remedy="End other programs.")
    return Finding("memory", OK, f"{found}; {need}")


def memory_bytes() -> tuple[int, int]:
    """Total and available memory."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "hw.memsize"]
        total = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return total, total
    lines = Path("/proc/meminfo").read_text().splitlines()
    kibibytes = {line.partition(":")[0]: int(line.split()[1]) for line in lines if len(line.split()) > 1}
    total, available = kibibytes["MemTotal"] * 1024, kibibytes["MemAvailable"] * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file() and (text := limit.read_text().strip()) != "max":
        total = min(total, int(text))
        available = min(available, max(0, int(text) - int(used.read_text())))
    return total, available


def check_open_files() -> Finding:
    """The limit on files that a process may hold open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES:
        return Finding("open files", OK, "no limit" if limit == resource.RLIM_INFINITY else f"{limit:,} a process")
    remedy = f"Raise it: ulimit -n {OPEN_FILES}"
    if limit < LEAST_OPEN_FILES:
        return Finding("open files", MISSING, f"{limit:,} a process", remedy=remedy, needed=True)
    brings = f"{OPEN_FILES:,} are enough for any corpus"
    return Finding("open files", WARNING, f"{limit:,} a process", brings=brings, remedy=remedy)


def check_folder(name: str, folder: Path | None) -> Iterator[Finding]:
    """Room, leave to write, and file locks where a folder is or will be made; None: the system's temporary folder."""
    if folder is None:
        try:
            folder = Path(tempfile.gettempdir())
        except OSError as error:
            remedy = "Name one that can be written to in TMPDIR."
            yield Finding(name, MISSING, error.strerror or "none", remedy=remedy, needed=True)
            return
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    shown = f"{folder}" if there == folder else f"{folder} (to be made in {there.absolute()})"
    if not there.is_dir():
        yield Finding(name, MISSING, f"{there} is a file", remedy="Name a folder.", needed=True)
        return
    try:
        locks = file_locks_work(there)
    except OSError as error:
        found = f"{shown}: {(error.strerror or 'cannot be written to').lower()}"
        yield Finding(name, MISSING, found, remedy="Name a folder that can be written to.", needed=True)
        return
    free = shutil.disk_usage(there).free
    room = f"{shown}: {free / 1e9:.1f} GB free"
    need = f"a run of the sample takes up to {DISK_BYTES / 1e9:.1f} GB"
    if not locks:
        found = f"{shown}: its file system keeps no file locks"
        yield Finding(name, MISSING, found, remedy="Name a folder on a local disk.", needed=True)
    elif free < LEAST_DISK_BYTES:
        yield Finding(name, MISSING, room, brings=need, remedy="Make room.", needed=True)
    elif free < DISK_BYTES:
        yield Finding(name, WARNING, room, brings=need, remedy="Make room.")
    else:
        yield Finding(name, OK, f"{room}, writable, with file locks")


def file_locks_work(folder: Path) -> bool:
    """Whether a lock that one holds is refused to another. Raises OSError where no file can be made."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".langadapt-doctor-") as first, open(first.name, "rb") as other:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
