"""SIGTERM while training: noted, for the end of the step that is running."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """True once SIGTERM has come."""

    def __init__(self) -> None:
        self._came_at: float | None = None

    def __bool__(self) -> bool:
        return self._came_at is not None

    @property
    def seconds_ago(self) -> float:
        """Since SIGTERM came; 0 where it has not, as in a process that another one tells."""
        return 0.0 if self._came_at is None else time.monotonic() - self._came_at

    def note(self, number: int, frame: object) -> None:
        """The signal's handler. A second signal gives no more time than the first."""
        if self._came_at is None:
            self._came_at = time.monotonic()


@contextmanager
def noting_sigterm() -> Iterator[StopRequest]:
    """Within it SIGTERM is noted instead of ending the process at once."""
    stop = StopRequest()
    previous = signal.signal(signal.SIGTERM, stop.note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, previous)
