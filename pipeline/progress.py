"""How a run is shown while it goes on: a line a step with its state, seconds and latest figures.

On a terminal the lines stay in place and change (pipeline/live_lines.py); elsewhere a line is printed when a step's
state changes, and no control character is.

    NO_COLOR set       no colours, anywhere
    FORCE_COLOR set    colours where the lines are printed, too; NO_COLOR wins
    TERM=dumb          printed lines, as for what is no terminal
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Mapping
from typing import Protocol, TextIO

from pipeline.execution_record import CACHED, EXECUTING, FAILED, NOT_RUN, SUCCEEDED, WAITING, StepRecord

# SGR codes of the states.
COLOURS = {SUCCEEDED: "32", CACHED: "36", EXECUTING: "1", FAILED: "1;31"}
QUIET_COLOUR = "2"
DUMB_TERMINALS = ("dumb", "unknown")
# What writing gives where the reader has gone: a pipe that nobody reads, a terminal that was closed.
READER_GONE = (errno.EPIPE, errno.EIO)


class Progress(Protocol):
    """What a run tells while it works. `line` may be called from any thread, the others from one.

    passing: a line that the next one takes the place of, on a terminal alone; an empty one takes it away.
    earlier: seconds that steps took in earlier runs, by name.
    """

    def passing(self, text: str) -> None: ...
    def start(self, steps: Mapping[str, StepRecord], earlier: Mapping[str, float]) -> None: ...
    def refresh(self) -> None: ...
    def line(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Quiet:
    """Shows nothing but keeps the lines, for callers that print in their own form."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def passing(self, text: str) -> None: ...

    def start(self, steps: Mapping[str, StepRecord], earlier: Mapping[str, float]) -> None: ...

    def refresh(self) -> None: ...

    def line(self, text: str) -> None:
        self.lines.append(text)

    def stop(self) -> None: ...


class PlainLines:
    """One printed line at each change of a step's state."""

    def __init__(self, stream: TextIO, *, colours: bool = False) -> None:
        self._output, self._colours = Output(stream), colours
        self._steps: Mapping[str, StepRecord] = {}
        self._shown: dict[str, str] = {}

    def passing(self, text: str) -> None: ...

    def start(self, steps: Mapping[str, StepRecord], earlier: Mapping[str, float]) -> None:
        self._steps = steps
        self._shown = dict.fromkeys(steps, WAITING)

    def refresh(self) -> None:
        width = max((len(name) for name in self._steps), default=0)
        for name, step in self._steps.items():
            # Taken once: a step may end between two looks at it.
            state = step.state
            if state != self._shown[name] and state != NOT_RUN:
                self._shown[name] = state
                seconds = "" if state == EXECUTING else f"{step.elapsed():8.1f} s"
                detail = step.reason if state == EXECUTING else step.metric
                line = printable(f"{name:<{width}}  {state:<9} {seconds:>10}  {detail}".rstrip())
                self._output.write(f"{self._coloured(line, state)}\n")

    def _coloured(self, line: str, state: str) -> str:
        return f"\x1b[{COLOURS.get(state, QUIET_COLOUR)}m{line}\x1b[0m" if self._colours else line

    def line(self, text: str) -> None:
        self._output.write(f"{printable(text)}\n")

    def stop(self) -> None:
        self.refresh()


class Output:
    """A stream that several threads write whole texts to. A reader that has gone does not end the run it looked at."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream
        # A signal may come while a line is written, and want to tell of itself.
        self._lock = threading.RLock()
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> None:
        with self._lock:
            if self._stream is None:
                return
            try:
                # A letter that the terminal cannot show is one place wide, as every other.
                self._stream.write(text.encode(self._encoding, "replace").decode(self._encoding))
                self._stream.flush()
            except OSError as error:
                if error.errno not in READER_GONE:
                    raise
                self._stream = None


def printable(text: str) -> str:
    """The text as one line without control characters: what a step prints must not steer the terminal."""
    text = text.translate({ord(letter): " " for letter in "\r\n\t"})
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def wants_colours(stream: TextIO) -> bool:
    """Whether to colour what is printed there, by NO_COLOR, FORCE_COLOR, TERM and what the stream is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_live(stream)


def is_live(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in (*DUMB_TERMINALS, "")


def progress_for(stream: TextIO | None = None) -> Progress:
    """Live lines where the stream (default: standard error) is a terminal, plain ones elsewhere."""
    stream = sys.stderr if stream is None else stream
    if not is_live(stream):
        return PlainLines(stream, colours=wants_colours(stream))
    from pipeline.live_lines import LiveLines

    return LiveLines(stream, colours=wants_colours(stream))
