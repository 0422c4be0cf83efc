"""A process and all that it started: found, ended, and what they use, from /proc.

torchrun starts its workers in sessions of their own, so that no signal to a group reaches them all. Where there is no
/proc, as on macOS, the process itself is all that is found.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")
# What a process may answer that ends while it is looked at, or that belongs to somebody else.
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True)
class Use:
    """What a tree of processes has used since they started, and holds now.

    read_bytes, written_bytes: by calls to the system, from whatever place; disk_read_bytes: from a disk alone, what
    is mapped into memory included.
    """

    processes: int = 0
    processor_seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    disk_read_bytes: int = 0
    memory_bytes: int = 0


def tree(root: int, processes: Path = PROCESSES) -> list[int]:
    """Ids of a process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    if processes.is_dir():
        for name in os.listdir(processes):
            if name.isdecimal() and (fields := stat_fields(int(name), processes)):
                children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for number in found:
        found += children.get(number, [])
    return found


def stat_fields(number: int, processes: Path = PROCESSES) -> list[str]:
    """The fields of a process's stat behind its name, state first; empty where it is not there."""
    with suppress(*GONE):
        # The name in parentheses may hold spaces and parentheses.
        return (processes / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def use_of(root: int, processes: Path = PROCESSES) -> Use:
    """What a process and its descendants use; those that have ended count through the parent that noticed it."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    count, seconds, memory = 0, 0.0, 0
    totals = {"rchar": 0, "wchar": 0, "read_bytes": 0}
    for number in tree(root, processes):
        fields = stat_fields(number, processes)
        if not fields:
            continue
        count += 1
        seconds += sum(map(int, fields[11:15])) / ticks
        memory += int(fields[21]) * page
        with suppress(*GONE):
            for line in (processes / str(number) / "io").read_text().splitlines():
                name, _, value = line.partition(": ")
                if name in totals:
                    totals[name] += int(value)
    return Use(count, seconds, totals["rchar"], totals["wchar"], totals["read_bytes"], memory)


def end_tree(process: subprocess.Popen[bytes], grace_seconds: float, *, is_told: bool = False) -> int:
    """SIGTERM to a process, SIGKILL after the grace; then SIGKILL to what it had started. Its return code.

    is_told: it has got SIGTERM already. torchrun forgets its workers when it gets a second one.
    """
    started = {number: stat_fields(number)[19:20] for number in tree(process.pid)}
    if not is_told:
        process.terminate()
    try:
        code = process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        return kill_tree(process)
    for number, began in started.items():
        # The same process, not a later one of this id.
        if number != process.pid and began and stat_fields(number)[19:20] == began:
            with suppress(*GONE):
                os.kill(number, signal.SIGKILL)
    return code


def kill_tree(process: subprocess.Popen[bytes]) -> int:
    """SIGKILL to a process and its descendants, none of which gets to start another. Its return code."""
    known: set[int] = set()
    # Stopped first: what is started meanwhile is found in the next look.
    while new := [number for number in tree(process.pid) if number not in known]:
        known.update(new)
        for number in new:
            with suppress(*GONE):
                os.kill(number, signal.SIGSTOP)
    for number in known:
        with suppress(*GONE):
            os.kill(number, signal.SIGKILL)
    return process.wait()
