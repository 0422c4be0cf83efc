"""Signals, from the first moment on: handed to what runs, once, and remembered. Imports little, as it comes first."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


class StopSignals:
    """came: SIGTERM has come, or SIGHUP, which is handed on as SIGTERM. was_interrupted: SIGINT has come.

    A second signal changes nothing: a step that is writing its checkpoint goes on with it. A process with the id 1, as
    in a container, gets no signal that it has no handler for.
    """

    def __init__(self) -> None:
        self.came = self.was_interrupted = False
        self._process: subprocess.Popen[bytes] | None = None
        self._handed: set[int] = set()

    def install(self) -> None:
        """Takes the signals of this process over."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._interrupt)
        # Under nohup a closed terminal changes nothing.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._stop)

    def hand_to(self, process: subprocess.Popen[bytes] | None) -> None:
        """Names the process that is to get the signals; one that came before reaches it now."""
        self._handed = set()
        self._process = process
        if self.came:
            self._send(signal.SIGTERM)
        elif self.was_interrupted:
            self._send(signal.SIGINT)

    def _stop(self, number: int, frame: object) -> None:
        is_first, self.came = not self.came, True
        if is_first:
            self._send(signal.SIGTERM)

    def _interrupt(self, number: int, frame: object) -> None:
        is_first, self.was_interrupted = not self.was_interrupted, True
        # A terminal sends SIGINT to the step as well: it ends in its own way, and this process waits for it.
        if is_first and not is_in_foreground():
            self._send(signal.SIGINT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and number not in self._handed and self._process.poll() is None:
            self._handed.add(number)
            self._process.send_signal(number)


def is_in_foreground() -> bool:
    """True where a terminal's ctrl-C reaches this process's whole group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
