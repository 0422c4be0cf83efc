"""Standard output and standard error as a command finds them: closed, full, or of a terminal that has gone."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import Any

OUTPUT, ERRORS = 1, 2


class OutputError(Exception):
    """What a command answers could not be written; the text is the one line that a person sees."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}. Make space or name another place, then try again.")


class _Output(io.FileIO):
    """The descriptor of standard output. What cannot be written is an OutputError wherever it is noticed: Python writes
    when its buffer is full, in the middle of whatever fills it. A reader who has gone is told as ever."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from error


def open_streams() -> None:
    """A stream that the caller closed (`>&-`) is one that nobody reads: as if it went to /dev/null.

    Both take every letter: a path may hold some that the terminal's encoding lacks.
    """
    for name, number in (("stdout", OUTPUT), ("stderr", ERRORS)):
        if getattr(sys, name) is None:
            silence(number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        # Where Python's own stands aside, as in tests, its place is taken by one that knows what to do.
        if getattr(sys, name) is getattr(sys, f"__{name}__"):
            getattr(sys, name).reconfigure(errors="backslashreplace")
    stdout = sys.__stdout__
    if isinstance(stdout, io.TextIOWrapper) and sys.stdout is stdout:
        stdout.flush()
        writer = io.BufferedWriter(_Output(OUTPUT, "w", closefd=False))
        at_once = stdout.line_buffering or stdout.write_through
        sys.stdout = io.TextIOWrapper(writer, stdout.encoding, "backslashreplace", line_buffering=at_once)


def silence(number: int) -> None:
    """From now on what is written to this descriptor is dropped; whoever holds it need not know."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null == number:
        os.set_inheritable(number, True)
        return
    os.dup2(null, number)
    os.close(null)


def leave_terminal() -> None:
    """After the terminal was closed: what was shown there goes nowhere; files and pipes keep what they get."""
    for number in (OUTPUT, ERRORS):
        if stat.S_ISCHR(os.fstat(number).st_mode):
            silence(number)


def flush() -> None:
    """Writes out what standard output holds. A reader who has gone, as `head` goes, is no fault.

    Raises OutputError where it cannot be written. What is left goes nowhere then, for Python flushes at its end too.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence(OUTPUT)
    except OutputError:
        silence(OUTPUT)
        raise


def tell(line: str) -> None:
    """A line on standard error. Where that takes nothing, the exit code alone tells."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(ERRORS)
