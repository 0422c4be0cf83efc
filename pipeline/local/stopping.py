"""How a run ends before its end: the first signal stops its steps, the second kills them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.streams import leave_terminal
from steps.contract import EXIT_INTERRUPTED, EXIT_TERMINATED

# A thread that works on files and not on a job cannot be ended; after a second signal nobody waits longer for it.
WAIT_AFTER_KILL_SECONDS = 3.0
# SIGHUP: the terminal was closed, or the connection dropped.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Stopping:
    """asked: steps are to end, a checkpoint written.  at_once: they are to be killed.  signals: those received."""

    asked: threading.Event = field(default_factory=threading.Event)
    at_once: threading.Event = field(default_factory=threading.Event)
    signals: list[int] = field(default_factory=list)
    _told: int = 0
    _killed_at: float = 0.0

    def note(self, number: int, frame: object = None) -> None:
        """A signal handler. It says nothing itself: what it interrupts may be in the middle of a line."""
        if number == signal.SIGHUP:
            leave_terminal()
        self.signals.append(number)
        if len(self.signals) > 1:
            self._killed_at = self._killed_at or time.monotonic()
            self.at_once.set()
        self.asked.set()

    def news(self) -> str:
        """A line about signals that came since the last call; empty where there is none."""
        count = min(len(self.signals), 2)
        if count == self._told:
            return ""
        self._told = count
        if count == 2:
            return "killing"
        if self.signals[0] == signal.SIGINT:
            return "stopping; press ctrl-C again to kill"
        return f"stopping on {self.name}; a second signal kills"

    @property
    def name(self) -> str:
        return signal.Signals(self.signals[0]).name

    @property
    def exit_code(self) -> int:
        return EXIT_INTERRUPTED if self.signals[0] == signal.SIGINT else EXIT_TERMINATED

    @property
    def is_overdue(self) -> bool:
        """Some time after the second signal: all processes are dead, whatever else still works is not waited for."""
        return self.at_once.is_set() and time.monotonic() - self._killed_at > WAIT_AFTER_KILL_SECONDS


@contextmanager
def noting_signals(stopping: Stopping) -> Iterator[None]:
    """Within it SIGINT, SIGTERM and SIGHUP are noted; SIGHUP not under nohup. Outside the main thread: nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in STOP_SIGNALS
              if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]  # fmt: skip
    before = {number: signal.signal(number, stopping.note) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_at_once(code: int) -> None:
    """Ends this process although threads still work: python itself would wait for them. What is to be told is told."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
