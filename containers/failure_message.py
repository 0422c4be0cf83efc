"""The one line of a failure: what a step's end means, and where the service looks for it."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from containers.launch_errors import EXIT_BUG, EXIT_INTERRUPTED, Ended
from containers.memory_kills import memory_line

# The service shows this much of a failure.
LONGEST_MESSAGE_BYTES = 1_024
# What a step says that another process has left alone; steps/modeling/parallel.py has it.
LEFT_ALONE = "another process ended and left it alone"


def describe_end(
    code: int, error_file: Path, *, stopped: Ended | None, was_short: bool = False, arguments: Sequence[str] = ()
) -> Ended:
    """Exit code and line of a step's end. What the step wrote itself comes first; a signal becomes 128 + its number.

    stopped: how it has ended where it was stopped from outside and says nothing. was_short: the kernel has killed a
    process for want of memory meanwhile. The error file is gone afterwards: its place on the disk is for the message.
    """
    words = error_file.read_text(encoding="utf-8", errors="replace").strip() if error_file.is_file() else ""
    error_file.unlink(missing_ok=True)
    if code == 0:
        return Ended(0)
    if own := own_words(words):
        return own
    if stopped:
        return stopped
    if code == -signal.SIGKILL or (code > 0 and was_short):
        # torchrun ends with 1 whatever has ended its workers.
        return Ended(128 + signal.SIGKILL, f"error: {memory_line(was_short, arguments)}")
    if code < 0:
        # Real-time signals have no names.
        known = [known.name for known in signal.Signals if known == -code]
        name = known[0] if known else f"signal {-code}"
        exit_code = EXIT_INTERRUPTED if -code == signal.SIGINT else 128 - code
        return Ended(exit_code, f"error: killed by {name}; the log has what came before")
    # A step that ends by itself always says why: this one died before it could.
    line = f"error: ended with exit code {code} and no message; the log has the cause"
    return Ended(EXIT_BUG, line, is_consequence=True)


def own_words(words: str) -> Ended | None:
    """How a step says that it has ended, None where its words are none of a step of ours."""
    try:
        written = json.loads(words)
    except (ValueError, RecursionError):
        return None
    if not isinstance(written, dict):
        return None
    line, code = written.get("line"), written.get("exit_code")
    if not isinstance(line, str) or not isinstance(code, int):
        return None
    # A step that says 0 has failed all the same.
    code = code if 0 < code < 256 else EXIT_BUG
    return Ended(code, line, is_told=True, is_consequence=LEFT_ALONE in line)


def say(line: str) -> None:
    """Prints a line in the job's log, which may lie on a disk that is full."""
    with suppress(OSError):
        print(line, flush=True)


def write_message(path: Path, line: str) -> None:
    """The line where the service reads a failure's reason, cut to what it shows."""
    content = " ".join(line.split()).encode("utf-8", "backslashreplace")[:LONGEST_MESSAGE_BYTES]
    # Nothing more can be done on a disk that takes not even this: the exit code tells the kind of failure.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.decode(errors="ignore").encode())
