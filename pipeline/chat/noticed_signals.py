"""Signals that come just when readline begins to wait for a key.

Python's readline looks for signals when its wait is interrupted. One that came a moment before is overlooked until the
next key is pressed: ctrl-C would seem to do nothing.
"""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# By then the signal has been seen, or the wait has begun.
SETTLING_SECONDS = 0.05


@contextmanager
def noticed_signals() -> Iterator[None]:
    """Within it a second signal, which stands for nothing but a changed window, follows each one that Python handles,
    and interrupts the wait. For the main thread."""
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    main_thread = threading.get_ident()

    def wake() -> None:
        while woken.recv(64):
            time.sleep(SETTLING_SECONDS)
            signal.pthread_kill(main_thread, signal.SIGWINCH)

    before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=wake, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        waker.close()
        thread.join()
        woken.close()
