"""A file system of a few hundred kilobytes, where this machine lets the user mount one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs. What is in it survives a change of its size and of whether it can be written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, kilobytes: int) -> None:
        self._remount(f"size={kilobytes}k")

    def make_read_only(self, read_only: bool) -> None:
        self._remount("ro" if read_only else "rw")

    def fill(self) -> None:
        """Takes all the room that is left, to the last byte."""
        with (self.folder / "filling").open("wb", buffering=0) as stream:
            block = 1 << 16
            while block:
                try:
                    stream.write(bytes(block))
                except OSError:
                    block //= 2

    def clear(self) -> None:
        (self.folder / "filling").unlink()

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def _remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.folder)], check=True)


@contextmanager
def mounted(folder: Path, kilobytes: int) -> Iterator[SmallDisk]:
    """A disk of that size in a new folder; skips the test, with the reason, where none may be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None:
        pytest.skip("no small disk: this system has no mount")
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no small disk: {' '.join(made.stderr.split()) or made.returncode}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
