"""The line a minute that tells a silent job from a hung one.

A step that tells its progress or its metrics touches the file that LANGADAPT_PROGRESS_FILE names, in every process of
it: its output is left alone, and what it prints need not be read. Where the file was not touched for a while, the
launcher says for how long, and what the step's processes did meanwhile.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from containers.process_tree import Use, use_of

HEARTBEAT_PREFIX = "heartbeat: "
DEFAULT_HEARTBEAT_SECONDS = 60.0
GPU_SECONDS = 5.0
GPU_QUERY = ("--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")


class Heartbeat:
    """Watches one step's process. interval_seconds: of the lines, and how long a step may be silent; 0 for no lines."""

    def __init__(self, host: str, progress_file: Path, interval_seconds: float) -> None:
        self._host, self._file, self._interval = host, progress_file, interval_seconds
        self._touched = self._touched_ns()
        self._progress_at = self._sampled_at = time.monotonic()
        self._before: Use | None = None

    def _touched_ns(self) -> int:
        # It lies in the job's own folder, but a step may take it away.
        return self._file.stat().st_mtime_ns if self._file.exists() else 0

    def look(self, process_id: int) -> str:
        """The line where one is due, else nothing. Called often."""
        now = time.monotonic()
        if (touched := self._touched_ns()) != self._touched:
            self._touched, self._progress_at = touched, now
        seconds = now - self._sampled_at
        if not self._interval or (self._before is not None and seconds < self._interval):
            return ""
        before, self._before, self._sampled_at = self._before, use_of(process_id), now
        if before is None or now - self._progress_at < self._interval:
            return ""
        return self._line(now - self._progress_at, seconds, before, self._before)

    def _line(self, silent: float, seconds: float, before: Use, now: Use) -> str:
        def size(name: str) -> str:
            return f"{max(0, getattr(now, name) - getattr(before, name)) / 1e6:.1f} MB"

        busy = max(0.0, now.processor_seconds - before.processor_seconds)
        return (
            f"{HEARTBEAT_PREFIX}{self._host}: no progress told for {silent:.0f} s; in the last {seconds:.0f} s "
            f"{now.processes} processes of the step used {busy:.1f} s of processor time, read {size('read_bytes')} "
            f"({size('disk_read_bytes')} from disk) and wrote {size('written_bytes')}; memory "
            f"{now.memory_bytes / 1e9:.2f} GB{gpu_use()}"
        )


def gpu_use(program: str = "nvidia-smi") -> str:
    """How busy the GPUs are, as the end of a line; nothing where there is no such program."""
    if shutil.which(program) is None:
        return ""
    try:
        shown = subprocess.run(
            [program, *GPU_QUERY],
            capture_output=True, text=True, timeout=GPU_SECONDS, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        rows = [[float(value) for value in line.split(",")] for line in shown.stdout.splitlines() if line.strip()]
        busy, held = [row[0] for row in rows], [row[1] for row in rows]
        return f"; GPUs {', '.join(f'{share:.0f}%' for share in busy)} busy, {sum(held) / 1_000:.1f} GB held"
    except subprocess.TimeoutExpired:
        return f"; GPUs: {program} gave no answer in {GPU_SECONDS:.0f} s"
    except (subprocess.CalledProcessError, ValueError, IndexError, OSError):
        return f"; GPUs: {program} told nothing that can be read"
