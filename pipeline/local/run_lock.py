"""One run at a time in a run folder, and what dead runs left half-written there cleared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pipeline.local.processes import process_identity
from steps.contract import ConfigError
from steps.contract.locks import FileLock, LockHeldError

LOCK_NAME = ".lock"
# Files that `write_atomically` and code archives write aside; the first number is the id of the process.
_WRITTEN_ASIDE = re.compile(r"\..+?\.(\d+)(?:\.\d+)?\.tmp")
# Checkpoints that a run which began anew has set aside: nothing reads them any more.
_SET_ASIDE = re.compile(r".+\.before-[0-9a-f]{12}")
# Where they may lie: the run folder's own files. What jobs and steps write is cleared by them.
_WRITTEN_IN = (".", "executions", "definitions", "code", "jobs/*/*")


class RunLock:
    """Held for the length of a run. `say` gets one line where the run before died with it."""

    def __init__(self, run_folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = run_folder, say
        self._lock = FileLock(run_folder / LOCK_NAME)

    def __enter__(self) -> RunLock:
        try:
            self._lock.acquire()
        except LockHeldError as held:
            remedy = "Wait for it to end, or choose another run folder."
            raise ConfigError(
                "run folder", f"{self._folder} is in use by process {held.holder}", remedy=remedy
            ) from held
        if holder := self._lock.died_with_it:
            self._say(f"The run of process {holder} in {self._folder} ended without cleaning up: taking it over")
        clear_leftovers(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def clear_leftovers(run_folder: Path) -> None:
    """Removes what dead runs left half-written, while the lock is held: no other run is at work here.

    Files of processes that are surely dead, as no process has their id; outputs that were being sealed; checkpoints
    that were set aside. The last two would stay for ever once their step's key is another.
    """
    for folder in _WRITTEN_IN:
        for path in run_folder.glob(f"{folder}/.*.tmp"):
            written_by = _WRITTEN_ASIDE.fullmatch(path.name)
            if written_by and path.is_file() and process_identity(int(written_by[1])) is None:
                path.unlink(missing_ok=True)
    for path in run_folder.glob("outputs/*/*.new"):
        shutil.rmtree(path)
    for path in [path for path in run_folder.glob("s3/**/*.before-*") if _SET_ASIDE.fullmatch(path.name)]:
        shutil.rmtree(path)
