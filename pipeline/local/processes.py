"""The processes of a job: found wherever they have gone, written down, ended.

A job's processes are those in the groups of the processes that it was started with, their descendants, and every
process that was started with the job's folder in OPT_ML. The last rule finds what has neither parent nor group any
more: torchrun starts its workers in sessions of their own, and where it is killed they are nobody's children.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT_VARIABLE = "OPT_ML"
POLL_SECONDS = 0.05
# Longer than the 30 s that torchrun gives its workers.
STOP_GRACE_SECONDS = 45
# A killed process may take this long to be gone: the system writes out what it holds.
KILL_SECONDS = 10.0
_HAS_PROC = Path("/proc/self/stat").exists()


@dataclass(frozen=True)
class RunningProcess:
    """One process that runs. identity: when it started; with its id it names one process for ever."""

    process_id: int
    parent: int
    group: int
    identity: str


def running_processes() -> dict[int, RunningProcess]:
    """All processes of this machine by id; those that only wait to be noticed as ended are left out."""
    if _HAS_PROC:
        ids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        found = [process for number in ids if (process := _read_stat(number)) is not None]
    else:
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart="], capture_output=True, text=True, check=True
        )
        rows = [line.split(maxsplit=4) for line in listed.stdout.splitlines()]
        found = [RunningProcess(int(row[0]), int(row[1]), int(row[2]), row[4].strip())
                 for row in rows if not row[3].startswith("Z")]  # fmt: skip
    return {process.process_id: process for process in found}


def _read_stat(process_id: int) -> RunningProcess | None:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It has ended, or is another user's on a machine that hides those.
        return None
    # The name in parentheses may hold spaces; behind it state, parent, group, and as the twentieth the start time.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else RunningProcess(process_id, int(fields[1]), int(fields[2]), fields[19])


def process_identity(process_id: int) -> str | None:
    """When a process started, in its system's own terms: with the id it names one process for ever. None: not there."""
    if _HAS_PROC:
        process = _read_stat(process_id)
        return process.identity if process is not None else None
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(process_id)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def has_members(group: int) -> bool:
    """Whether a process group has a process that runs."""
    return any(process.group == group for process in running_processes().values())


def job_processes(leaders: Collection[int], roots: Collection[str]) -> dict[int, str]:
    """Ids and identities of a job's processes that run (see the module's docstring).

    leaders: ids of the processes that it was started with, each the leader of a group.  roots: its values of OPT_ML.
    """
    running = running_processes()
    found = {number for number, process in running.items() if number in leaders or process.group in leaders}
    found |= _started_with(roots, running)
    children: dict[int, list[int]] = {}
    for number, process in running.items():
        children.setdefault(process.parent, []).append(number)
    waiting = list(found)
    while waiting:
        new = [number for number in children.get(waiting.pop(), []) if number not in found]
        found.update(new)
        waiting += new
    return {number: running[number].identity for number in found if number != os.getpid()}


def _started_with(roots: Collection[str], running: Iterable[int]) -> set[int]:
    """Those that have one of the roots in OPT_ML. Processes of other users are passed over."""
    wanted = {f"{ROOT_VARIABLE}={root}".encode() for root in roots}
    found = set()
    if _HAS_PROC:
        for number in running:
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if wanted & set(Path(f"/proc/{number}/environ").read_bytes().split(b"\0")):
                    found.add(number)
        return found
    # The environment stands behind the command; a folder with spaces in its name is not told apart there.
    listed = subprocess.run(["ps", "-A", "-E", "-ww", "-o", "pid=,command="], capture_output=True, check=False)
    for line in listed.stdout.splitlines():
        first, _, rest = line.strip().partition(b" ")
        if wanted & set(rest.split()):
            found.add(int(first))
    return found


# --- ended ------------------------------------------------------------------------------------------------------------


def end_all(find: Callable[[], dict[int, str]], grace_seconds: float, hurry: Callable[[], bool]) -> None:
    """Ends all processes that `find` names: SIGTERM, and SIGKILL after the grace or as soon as `hurry` says so."""
    signal_all(find(), signal.SIGTERM)
    wait_until(lambda: hurry() or not find(), grace_seconds)
    kill_all(find)


def kill_all(find: Callable[[], dict[int, str]]) -> None:
    """SIGKILL to all processes that `find` names, and to those that they started meanwhile, until there is none."""
    deadline = time.monotonic() + KILL_SECONDS
    while (found := find()) and time.monotonic() < deadline:
        signal_all(found, signal.SIGKILL)
        time.sleep(POLL_SECONDS / 2)


def signal_all(processes: Mapping[int, str | None], number: int) -> None:
    for process_id, identity in processes.items():
        # It may end at this moment; some systems refuse a signal to one that waits to be noticed.
        with suppress(ProcessLookupError, PermissionError):
            if identity is not None and process_identity(process_id) == identity:
                os.kill(process_id, number)


def wait_until(holds: Callable[[], bool], most_seconds: float) -> None:
    """Waits until a condition holds, at most so long."""
    deadline = time.monotonic() + most_seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


# --- written down -----------------------------------------------------------------------------------------------------


def record_processes(path: Path, process_ids: list[int]) -> None:
    """Writes down the processes of a job, so that the next run can end those that outlive this one."""
    rows = [{"process_id": number, "identity": process_identity(number)} for number in process_ids]
    path.write_text(json.dumps(rows))


def recorded_processes(path: Path) -> list[int]:
    """Ids of recorded processes that still run: the same processes, not later ones with the same id."""
    return [row["process_id"] for row in _recorded(path)
            if row["identity"] is not None and process_identity(row["process_id"]) == row["identity"]]  # fmt: skip


def recorded_groups(path: Path) -> list[int]:
    """Ids of the process groups that recorded processes led and that still have members.

    A leader that ended may have left some: as long as there is one, no other process gets the leader's id. So where
    another one has it, the group is gone.
    """
    return [row["process_id"] for row in _recorded(path)
            if row["identity"] is not None and process_identity(row["process_id"]) in (None, row["identity"])
            and has_members(row["process_id"])]  # fmt: skip


def _recorded(path: Path) -> list[dict[str, Any]]:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return []
