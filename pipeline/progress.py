"""Live progress of a run: a line a step with state, seconds and the step's own latest metric.

On a terminal the lines stay in place and change; elsewhere a line is printed when a step's state changes. Colours
follow NO_COLOR, as rich does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipeline.execution_record import CACHED, EXECUTING, FAILED, NOT_RUN, SUCCEEDED, WAITING, StepRecord

STYLES = {SUCCEEDED: "green", CACHED: "cyan", EXECUTING: "bold", FAILED: "bold red"}


class Progress(Protocol):
    """What the executor tells while it works. `line` may be called from any thread, the others from one."""

    def start(self, steps: Mapping[str, StepRecord]) -> None: ...
    def refresh(self) -> None: ...
    def line(self, text: str) -> None: ...
    def stop(self) -> None: ...


class Quiet:
    """Shows nothing but keeps the lines, for callers that print in their own form."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, steps: Mapping[str, StepRecord]) -> None: ...

    def refresh(self) -> None: ...

    def line(self, text: str) -> None:
        self.lines.append(text)

    def stop(self) -> None: ...


class PlainLines:
    """One printed line at each change of a step's state."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._steps: Mapping[str, StepRecord] = {}
        self._shown: dict[str, str] = {}

    def start(self, steps: Mapping[str, StepRecord]) -> None:
        self._steps = steps
        self._shown = dict.fromkeys(steps, WAITING)

    def refresh(self) -> None:
        width = max((len(name) for name in self._steps), default=0)
        for name, step in self._steps.items():
            if step.state != self._shown[name] and step.state != NOT_RUN:
                self._shown[name] = step.state
                seconds = "" if step.state == EXECUTING else f"{step.elapsed():8.1f} s"
                detail = step.reason if step.state == EXECUTING else step.metric
                self.line(f"{name:<{width}}  {step.state:<9} {seconds:>10}  {detail}".rstrip())

    def line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def stop(self) -> None:
        self.refresh()


class LiveLines:
    """Lines that stay in place on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps: Mapping[str, StepRecord] = {}
        self._live: Live | None = None

    def start(self, steps: Mapping[str, StepRecord]) -> None:
        self._steps = steps
        self._live = Live(self._lines(), console=self._console, auto_refresh=False, redirect_stdout=False,
                          redirect_stderr=False)  # fmt: skip
        self._live.start()

    def refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._lines(), refresh=True)

    def line(self, text: str) -> None:
        self._console.print(Text(text))

    def stop(self) -> None:
        if self._live is not None:
            self.refresh()
            self._live.stop()
            self._live = None

    def _lines(self) -> Group:
        width = max((len(name) for name in self._steps), default=0)
        lines = []
        for name, step in self._steps.items():
            seconds = "" if step.state == WAITING else f"{step.elapsed():.1f} s"
            detail = step.error if step.state == FAILED else step.metric or step.reason
            # One line a step: what does not fit is cut.
            line = Text(f"{name:<{width}}  ", no_wrap=True, overflow="ellipsis")
            line.append(f"{step.state:<9}", style=STYLES.get(step.state, "dim"))
            lines.append(line.append(f" {seconds:>10}  {detail}"))
        return Group(*lines)


def progress_for(stream: TextIO | None = None) -> Progress:
    """Live lines where the stream (default: standard error) is a terminal, plain ones elsewhere."""
    stream = sys.stderr if stream is None else stream
    console = Console(file=stream)
    return LiveLines(console) if console.is_terminal and not console.is_dumb_terminal else PlainLines(stream)
