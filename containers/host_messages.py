"""Lines of JSON over one TCP connection, without waiting for either end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

# No message of ours is longer, nor is what waits to be sent to a host that does not read.
LONGEST_LINE_BYTES, MOST_WAITING_BYTES = 65_536, 1_000_000
# Beside the messages that tell that a host lives: the kernel's own, for a host that is cut off.
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
CLOSING_SECONDS = 2.0


class Channel:
    """One end of a connection. heard_at: when something last came. is_closed: the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE_OPTIONS.items():
            # Not every system has each of them.
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._socket = connection
        self._received, self._waiting = b"", b""
        self.heard_at = time.monotonic()
        self.is_closed = False
        self.reason = ""

    def send(self, **message: Any) -> None:
        """Sends a message as soon as the connection takes it."""
        self._waiting += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Sends of what waits as much as the connection takes."""
        try:
            while self._waiting and not self.is_closed:
                sent = self._socket.send(self._waiting)
                self._waiting = self._waiting[sent:]
        except BlockingIOError:
            if len(self._waiting) > MOST_WAITING_BYTES:
                self._end("it does not read")
        except OSError as error:
            self._end(error.strerror or type(error).__name__)

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have come whole. One that is none closes the connection: the other end is not ours."""
        self.flush()
        self._read()
        *lines, self._received = self._received.split(b"\n")
        if len(self._received) > LONGEST_LINE_BYTES:
            self._end("it sent what is no message")
        messages: list[dict[str, Any]] = []
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._end("it sent what is no message")
                break
            messages.append(message)
        return messages

    def _read(self) -> None:
        try:
            while not self.is_closed and len(self._received) <= MOST_WAITING_BYTES:
                if not (new := self._socket.recv(LONGEST_LINE_BYTES)):
                    self._end("its connection was closed")
                    return
                self._received += new
                self.heard_at = time.monotonic()
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or type(error).__name__)

    def _end(self, reason: str) -> None:
        self.is_closed, self.reason = True, reason
        self._socket.close()

    def drop(self) -> None:
        """Closes at once: the other end is gone, or none of ours."""
        self._socket.close()
        self.is_closed = True

    def has_waiting(self) -> bool:
        """True where something could not be sent yet."""
        self.flush()
        return bool(self._waiting) and not self.is_closed

    def shut(self) -> None:
        """Says that nothing more is sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self) -> bool:
        """Reads away what comes; True once the other end has closed, too."""
        self._read()
        self._received = b""
        return self.is_closed


def close_all(channels: Iterable[Channel]) -> None:
    """Sends what waits and closes, in a second or two however many they are.

    What the other ends have sent is read away: closed over it, a connection is reset, and what was sent last is lost.
    """
    channels, deadline = list(channels), time.monotonic() + CLOSING_SECONDS
    while sum(channel.has_waiting() for channel in channels) and time.monotonic() < deadline:
        time.sleep(0.01)
    for channel in channels:
        channel.shut()
    while sum(channel.drain() for channel in channels) < len(channels) and time.monotonic() < deadline:
        time.sleep(0.01)
    for channel in channels:
        channel.drop()
