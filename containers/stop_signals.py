"""SIGTERM, from the first moment on: handed to what runs, once, and remembered."""

from __future__ import annotations

import signal
import subprocess


class StopSignals:
    """came: SIGTERM has come. A second one changes nothing: a step that is writing its checkpoint goes on with it.

    A process with the id 1, as in a container, gets no signal that it has no handler for.
    """

    def __init__(self) -> None:
        self.came = False
        self._process: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Takes the signals of this process over."""
        signal.signal(signal.SIGTERM, self._note)
        # A terminal sends SIGINT to the step as well: it ends in its own way, and this process waits for it.
        signal.signal(signal.SIGINT, lambda number, frame: None)

    def hand_to(self, process: subprocess.Popen[bytes] | None) -> None:
        """Names the process that is to get SIGTERM; one that came before reaches it now."""
        self._process = process
        if self.came and process is not None:
            self._send()

    def _note(self, number: int, frame: object) -> None:
        is_first, self.came = not self.came, True
        if is_first:
            self._send()

    def _send(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
