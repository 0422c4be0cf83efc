"""Standard output and standard error as a command finds them: closed, full, or of a terminal that has gone."""

from __future__ import annotations

import os
import stat
import sys
from typing import TextIO

OUTPUT, ERRORS = 1, 2


class OutputError(Exception):
    """What a command answers could not be written; the text is the one line that a person sees."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"standard output: {error.strerror}. Make space or name another place, then try again.")


def open_closed_streams() -> None:
    """A stream that the caller closed (`>&-`) is one that nobody reads: as if it went to /dev/null."""
    for name, number in (("stdout", OUTPUT), ("stderr", ERRORS)):
        if getattr(sys, name) is None:
            silence(number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


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


def flush(stream: TextIO, number: int) -> None:
    """Writes out what a stream holds. A reader who has gone, as `head` goes, is no fault.

    Raises OutputError where it cannot be written. What is left goes nowhere then, for Python flushes at its end too.
    """
    try:
        stream.flush()
    except OSError as error:
        silence(number)
        if not isinstance(error, BrokenPipeError):
            raise OutputError(error) from error


def tell(line: str) -> None:
    """A line on standard error. Where that takes nothing, the exit code alone tells."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(ERRORS)
