"""A lock file that one process holds at a time; the system frees it when the holder ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TextIO

from steps.contract.errors import ConfigError
from steps.contract.files import make_folder

# What a file system answers that keeps no locks, such as some network shares.
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# A holder writes its name right after it has got the lock.
NAME_SECONDS = 1.0


class LockHeldError(Exception):
    """Another process holds the lock. holder: its id, with its machine where that is another one."""

    def __init__(self, path: Path, holder: str) -> None:
        self.path, self.holder = path, holder
        super().__init__(f"{path} is held by process {holder}")


class FileLock:
    """Held from `acquire` to `release`, or within `with`. The file names its holder and is emptied at the release.

    So a name in a free lock belongs to a process that died with it: `died_with_it`, empty where there was none.
    The file itself stays: were it removed, two processes could each hold a lock on a file of this name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.died_with_it = ""

    def acquire(self) -> None:
        """Takes the lock or raises: LockHeldError, ConfigError where the file system keeps no locks, StepError where
        there can be no folder."""
        make_folder(self.path.parent)
        deadline = time.monotonic() + NAME_SECONDS
        while (stream := self._try()) is None:
            # Without a name its holder has just got it, or is about to give it back.
            if (name := self._name()) or time.monotonic() > deadline:
                raise LockHeldError(self.path, name or "of unknown id")
            time.sleep(0.02)
        self._stream = stream
        self.died_with_it = _read_name(stream)
        try:
            self._write(f"{os.getpid()} {platform.node()}")
        except OSError:
            # A full disk takes no name. Closing tries to write it once more, and frees the lock all the same.
            with suppress(OSError):
                stream.close()
            raise

    def _try(self) -> TextIO | None:
        """The file with the lock on it, None where another process has that."""
        stream = self.path.open("a+", encoding="utf-8", errors="replace")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            return None
        except OSError as error:
            stream.close()
            if error.errno not in NO_LOCKS:
                raise
            value = f"its file system keeps no locks ({error.strerror})"
            raise ConfigError(str(self.path.parent), value, remedy="Choose a folder on a local disk.") from error
        return stream

    def _name(self) -> str:
        with self.path.open(encoding="utf-8", errors="replace") as stream:
            return _read_name(stream)

    def release(self) -> None:
        self._write("")
        self._stream.close()

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _write(self, text: str) -> None:
        self._stream.truncate(0)
        self._stream.write(text)
        self._stream.flush()


def _read_name(stream: TextIO) -> str:
    """The holder as people are told of it; empty where the file holds anything but a name of ours."""
    stream.seek(0)
    process_id, _, machine = stream.read().strip().partition(" ")
    if not (process_id.isascii() and process_id.isdecimal()):
        return ""
    return f"{process_id} on {machine}" if machine and machine != platform.node() else process_id
