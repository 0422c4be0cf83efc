"""Lines that stay in place on a terminal: a line a step, and one for the whole run.

They are painted again over the last ones, whatever happened to the window in the meantime:

    more steps than rows       those at work and those that failed come first, the others as there is room
    narrower than the lines    lines are cut to the window, never wrapped
    narrowed while it runs     the terminal has wrapped what stands there, in its own way: it is left as it is, and the
                               lines are painted anew below
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from pipeline.execution_record import CACHED, EXECUTING, FAILED, SKIPPED, STOPPED, SUCCEEDED, WAITING, StepRecord
from pipeline.progress import COLOURS, QUIET_COLOUR, Output, printable
from pipeline.time_left import elapsed_text, run_seconds_left, seconds_text

# Below it a line has room for a name and either the state or how far the step is.
WIDE_COLUMNS = 64
NAME_COLUMNS_NARROW = 20
# What is shown first where there are more steps than rows.
IMPORTANCE = (FAILED, EXECUTING, STOPPED, SUCCEEDED, CACHED, WAITING)
HIDE_CURSOR, SHOW_CURSOR, ERASE_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[J"


class LiveLines:
    """Implements Progress (pipeline/progress.py) on a terminal."""

    def __init__(self, stream: TextIO, *, colours: bool = True) -> None:
        self._stream, self._output, self._colours = stream, Output(stream), colours
        # Held while the block on the screen and what is known of it change together.
        self._lock = threading.RLock()
        self._steps: Mapping[str, StepRecord] = {}
        self._earlier: Mapping[str, float] = {}
        self._began = 0.0
        self._passing = ""
        # The block that stands on the screen: its lines without colours, and the window when they were painted.
        self._painted: list[str] = []
        self._size = self._window()

    def passing(self, text: str) -> None:
        with self._lock:
            self._passing = printable(text)
            self._paint()

    def start(self, steps: Mapping[str, StepRecord], earlier: Mapping[str, float]) -> None:
        with self._lock:
            self._steps, self._earlier, self._passing = steps, earlier, ""
            self._began = time.monotonic()
            self._paint()

    def refresh(self) -> None:
        with self._lock:
            size = self._window()
            if size != self._size:
                # A window is dragged over many sizes: the lines follow when it stays at one.
                narrowed = any(cell_len(line) > size[0] for line in self._painted)
                self._size = size
                if narrowed:
                    self._output.write("\n")
                    self._painted = []
                return
            self._paint()

    def line(self, text: str) -> None:
        with self._lock:
            self._output.write(f"{self._to_the_top()}{ERASE_BELOW}{printable(text)}\n")
            self._painted = []
            self._paint()

    def stop(self) -> None:
        """Leaves every step's line on the screen, however many there are."""
        with self._lock:
            self._size = self._window()
            self._paint(whole=True)
            self._output.write(f"\n{SHOW_CURSOR}" if self._painted else "")
            self._painted, self._steps = [], {}

    def _window(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            columns, rows = os.get_terminal_size(self._stream.fileno())
        except OSError:
            # A terminal that was closed in the meantime.
            columns, rows = 0, 0
        # Some serial lines tell no size.
        return columns or 80, rows or 24

    def _to_the_top(self) -> str:
        """Moves the cursor to the first column of the block's first line."""
        up = len(self._painted) - 1
        return f"\x1b[{up}A\r" if up > 0 else "\r"

    def _paint(self, *, whole: bool = False) -> None:
        columns, rows = self._size
        # The last column stays free: terminals differ in where the cursor stands once it is written to.
        lines = [(set_cell_size(text, columns - 1).rstrip(), colour)
                 for text, colour in self._lines(columns - 1, None if whole else rows - 1)]  # fmt: skip
        plain = [text for text, _ in lines]
        if plain == self._painted and not whole:
            return
        shown = [f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour else text for text, colour in lines]
        self._output.write(f"{HIDE_CURSOR}{self._to_the_top()}{ERASE_BELOW}" + "\n".join(shown) + SHOW_CURSOR)
        self._painted = plain

    def _lines(self, columns: int, rows: int | None) -> list[tuple[str, str]]:
        """Text and colour of each line, not yet cut to the columns; at most `rows` of them."""
        if not self._steps:
            return [(self._passing, "")] if self._passing else []
        names = list(self._steps)
        footer = self._footer()
        if rows is not None and len(names) + 1 > rows:
            states = {name: self._steps[name].state for name in names}
            ranked = sorted(names, key=lambda name: IMPORTANCE.index(states[name]) if states[name] in IMPORTANCE else 9)
            kept = set(ranked[: max(1, rows - 1)])
            footer += f", {len(names) - len(kept)} not shown"
            names = [name for name in names if name in kept]
        width = max(len(name) for name in self._steps)
        return [(self._line(self._steps[name], width, columns), self._colour(name)) for name in names] + [(footer, "")]

    def _colour(self, name: str) -> str:
        return COLOURS.get(self._steps[name].state, QUIET_COLOUR)

    def _line(self, step: StepRecord, width: int, columns: int) -> str:
        # Taken once: another thread may end the step meanwhile.
        state = step.state
        if columns < WIDE_COLUMNS:
            name_columns = min(width, NAME_COLUMNS_NARROW)
            name = set_cell_size(_cut(step.name, name_columns), name_columns)
            return printable(f"{name}  {_share_text(step) if state == EXECUTING else state}")
        done = _done_text(step) if state == EXECUTING else ""
        seconds = "" if state == WAITING else f"{step.elapsed():.1f} s"
        detail = step.error if state == FAILED else step.metric or step.reason
        figures = "  ".join(part for part in (done, detail) if part)
        return _cut(printable(f"{step.name:<{width}}  {state:<9} {seconds:>10}  {figures}"), columns)

    def _footer(self) -> str:
        over = sum(step.state in (SUCCEEDED, CACHED, SKIPPED) for step in self._steps.values())
        text = f"{over} of {len(self._steps)} steps, {elapsed_text(time.monotonic() - self._began)}"
        left = run_seconds_left(self._steps, self._earlier)
        if left and any(step.state == EXECUTING for step in self._steps.values()):
            text += f", about {seconds_text(left)} left"
        return text


def _done_text(step: StepRecord) -> str:
    """`120/400 steps, 45 s left`, as much of it as is known."""
    if step.progress is None or not step.progress.total:
        return ""
    told = f"{step.progress.done:,}/{step.progress.total:,} {step.progress.unit}"
    left = step.seconds_left
    return f"{told}, {seconds_text(left)} left" if left else told


def _share_text(step: StepRecord) -> str:
    """`5%, 45 s` until it is done; the state where it does not tell."""
    if step.progress is None or not step.progress.total:
        return step.state
    told = f"{step.progress.done * 100 // step.progress.total}%"
    return f"{told}, {seconds_text(step.seconds_left)}" if step.seconds_left else told


def _cut(text: str, columns: int) -> str:
    """The text in exactly so many columns or fewer, with … where it was cut."""
    if cell_len(text) <= columns:
        return text
    return f"{set_cell_size(text, columns - 1).rstrip()}…"
