"""One run at a time in a run folder, and a certain answer to `is this process still that one?`."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from steps.contract import ConfigError

LOCK_NAME = ".lock"


class RunLock:
    """Held for the length of a run. The operating system frees it when the process ends, however it ends.

    The file names the holder's process id and is emptied at an orderly end: an id found in a free lock belongs to a
    process that died, and `say` gets one line about it.
    """

    def __init__(self, run_folder: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = run_folder / LOCK_NAME, say

    def __enter__(self) -> RunLock:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("a+")
        self._stream.seek(0)
        holder = self._stream.read().strip()
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._stream.close()
            remedy = "Wait for it to end, or choose another run folder."
            value = f"{self._path.parent} is in use by process {holder or 'of another run'}"
            raise ConfigError("run folder", value, remedy=remedy) from None
        if holder:
            self._say(f"The run of process {holder} in {self._path.parent} ended without cleaning up: taking it over")
        self._write(str(os.getpid()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("")
        self._stream.close()

    def _write(self, text: str) -> None:
        self._stream.truncate(0)
        self._stream.write(text)
        self._stream.flush()


def process_identity(process_id: int) -> str | None:
    """When a process started, in its system's own terms: with the id it names one process for ever. None: not there."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{process_id}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The name in parentheses may hold spaces; state is the first field after it, start time the twentieth.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(process_id)], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


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


def has_members(group: int) -> bool:
    """Whether a process group has a process that runs; those that only wait to be noticed as ended do not count."""
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # State, parent, group.
            if fields[0] not in "ZX" and int(fields[2]) == group:
                return True
        return False
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    return any(int(row[0]) == group and not row[1].startswith("Z") for row in rows)
