"""What a failed job says, in the words of the person who started it: their paths, and why it may say nothing."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from containers.heartbeat import HEARTBEAT_PREFIX
from containers.network_settings import LAUNCH_PREFIX
from pipeline.local.job_log import ATTEMPT_PREFIX, log_tail
from steps.contract import METRICS_LINE_PREFIX, PROGRESS_LINE_PREFIX, WARNING_LINE_PREFIX, memory_bytes, size_text

# With less than this a job cannot be relied on to leave a message.
LITTLE_DISK_BYTES = 64 * 1024
# Begin lines that tell of a step at work, and so never why it ended.
NOT_A_CAUSE = (
    ATTEMPT_PREFIX, METRICS_LINE_PREFIX, PROGRESS_LINE_PREFIX, WARNING_LINE_PREFIX, HEARTBEAT_PREFIX, LAUNCH_PREFIX,
)  # fmt: skip


def with_own_paths(text: str, places: Mapping[Path, Path]) -> str:
    """The text with each path of a job's tree, and whatever is below it, replaced by the path that it stands for."""
    own = {str(place): str(path) for place, path in places.items()}
    if not own:
        return text
    # The longest first: a file's own place lies below its folder's. A name that only begins alike is another one.
    names = "|".join(re.escape(name) for name in sorted(own, key=len, reverse=True))
    return re.sub(rf"(?:{names})(?![\w-]|\.\w)", lambda match: own[match[0]], text)


def line_without_message(code: int, log: Path) -> str:
    """Why a job failed that left no message: the signal or exit code, and the last line of its log."""
    lines = [line for line in log_tail(log) if line.strip() and not line.startswith(NOT_A_CAUSE)]
    last = lines[-1].strip() if lines else ""
    # A step that said why, and found no place to leave it.
    if code > 0 and last.startswith("error: "):
        return last
    cause = f"exit code {code}"
    if code < 0:
        cause = f"killed by {signal.Signals(-code).name}"
        if -code == signal.SIGKILL:
            cause += f", most likely for want of memory (this machine has {size_text(memory_bytes())})"
    free = shutil.disk_usage(log.parent).free
    if free < LITTLE_DISK_BYTES:
        cause += f", with the disk of {log.parent} full ({size_text(free)} free): make space and run again"
    return f"{cause}: {last}" if last else cause
