"""The hosts of a training job, each of which knows how the others fare: a star of TCP connections to the first.

A collective over EFA waits ten minutes for a host that is gone, and then says something else on every host. Here each
host's launcher holds a connection to the first host's, beside the training and over any backend's network, and a line
a few seconds that it lives. A host that ends says so first, and how; one that is silent or whose connection breaks
before is lost. The first host tells the others of both.

Ports: LANGADAPT_HOSTS_PORT of the first host, by default the one behind torchrun's. A greeting names the job's key, so
that a stranger's connection does not count.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from containers.host_messages import Channel, close_all
from containers.job_configuration import Launch
from containers.launch_errors import EXIT_TERMINATED, EXIT_USER_ERROR, STOPPED_LINE, Ended, LaunchError
from containers.rendezvous import HOSTS_PORT, check_name, hosts_port, rendezvous_host, take_port
from containers.variables import seconds_variable

# Hosts come up minutes apart: their images have to be pulled.
DEFAULT_MEETING_SECONDS = 900.0
LOST_SECONDS, GREETING_SECONDS = 30.0, 10.0
# So many times a host says that it lives before it is lost by its silence.
ALIVE_TIMES = 10
POLL_SECONDS, RETRY_SECONDS = 0.05, 0.5
# Connections that have not said yet whose they are.
MOST_STRANGERS, LISTENING = 64, 128
# The first host names those that are late: the others wait for its word.
LATER_SECONDS = 60.0


@dataclass(frozen=True)
class News:
    """What ends this host's work: another host's failure, or its loss (exit_code None)."""

    host: str
    line: str
    exit_code: int | None = None
    is_consequence: bool = False

    @property
    def is_stop(self) -> bool:
        """True where the other host was stopped by SIGTERM: all hosts are, within moments of each other."""
        return self.exit_code == EXIT_TERMINATED

    @property
    def weight(self) -> int:
        """Of several, that with the highest one has caused the others."""
        return 2 if self.exit_code is None else 0 if self.is_consequence else 1


class Hosts:
    """This host among those of its job. Nothing of it waits but `meet`: call `poll` often."""

    def __init__(self, launch: Launch) -> None:
        self._names, self._own, self._key = launch.hosts, launch.host, launch.key
        self._first = launch.hosts[0]
        self._address = (rendezvous_host(launch.hosts), hosts_port())
        self._meeting_seconds = seconds_variable("LANGADAPT_MEETING_SECONDS", DEFAULT_MEETING_SECONDS)
        self._lost_seconds = seconds_variable("LANGADAPT_LOST_SECONDS", LOST_SECONDS, at_least=1)
        self._peers: dict[str, Channel] = {}
        self._strangers: list[Channel] = []
        self._alive_at = self._tried_at = 0.0
        self._values: dict[str, dict[str, Any]] = {}
        self._decided: dict[str, dict[str, Any]] = {}
        self._news: list[News] = []
        self._ended: set[str] = set()
        self._listener = self._listen() if self._is_first else None

    @property
    def _is_first(self) -> bool:
        return self._own == self._first

    @property
    def news(self) -> News | None:
        """What ends this host's work, None where all is well."""
        return max(self._news, key=lambda news: news.weight, default=None)

    def _listen(self) -> socket.socket:
        host, port = self._address
        # All of its own addresses: its name may resolve to one that the others do not see.
        listener = take_port(HOSTS_PORT, port, host, "127.0.0.1" if host.startswith("127.") else "")
        listener.listen(LISTENING)
        listener.setblocking(False)
        return listener

    # --- what comes ---------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Takes in what has come and tells the others what they have to know."""
        if self._is_first:
            self._accept()
        elif self._first not in self._peers and self._first not in self._ended:
            self._connect()
        for host, channel in list(self._peers.items()):
            for message in channel.receive():
                self._take(host, channel, message)
            self._judge(host, channel)
        if time.monotonic() - self._alive_at >= self._lost_seconds / ALIVE_TIMES:
            self._alive_at = time.monotonic()
            self._tell_all(kind="alive")

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(BlockingIOError, InterruptedError, ConnectionAbortedError):
            while len(self._strangers) < MOST_STRANGERS:
                self._strangers.append(Channel(self._listener.accept()[0]))
        for channel in list(self._strangers):
            greeting = next(iter(channel.receive()), None)
            host = greeting.get("host") if greeting else None
            is_ours = greeting is not None and greeting.get("key") == self._key and host in self._names
            if is_ours and host not in {self._own, *self._peers, *self._ended}:
                channel.send(kind="welcome", key=self._key)
                self._peers[str(host)] = channel
            elif greeting or channel.is_closed or time.monotonic() - channel.heard_at > GREETING_SECONDS:
                channel.drop()
            else:
                continue
            self._strangers.remove(channel)

    def _connect(self) -> None:
        """One try to reach the first host, and its answer, in a second or so."""
        if time.monotonic() - self._tried_at < RETRY_SECONDS:
            return
        self._tried_at = time.monotonic()
        # A name may be none: the line for those that are late says so.
        with suppress(OSError, UnicodeError):
            channel = Channel(socket.create_connection(self._address, timeout=2.0))
            channel.send(kind="greeting", key=self._key, host=self._own)
            deadline = time.monotonic() + 2.0
            while not channel.is_closed and time.monotonic() < deadline:
                messages = channel.receive()
                if messages and (messages[0].get("kind"), messages[0].get("key")) == ("welcome", self._key):
                    self._peers[self._first] = channel
                    for message in messages[1:]:
                        self._take(self._first, channel, message)
                    return
                if messages:
                    break
                time.sleep(POLL_SECONDS)
            channel.drop()

    def _take(self, host: str, channel: Channel, message: dict[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "arrived":
            self._values.setdefault(str(message["at"]), {})[host] = message["value"]
        elif kind == "go":
            self._decided[str(message["at"])] = dict(message["values"])
        elif kind == "ended":
            # Its host says nothing more. The first tells of the others, too.
            ended = str(message["host"])
            if ended == host:
                self._ended.add(host)
            if message["exit_code"] != 0:
                self._note(News(ended, str(message["line"]), int(message["exit_code"]), bool(message["consequence"])))
        elif kind == "lost":
            self._note(News(str(message["host"]), str(message["line"])))

    def _judge(self, host: str, channel: Channel) -> None:
        """Whether a host is lost: it is silent for too long, or its connection broke without a goodbye."""
        silent = time.monotonic() - channel.heard_at
        if host in self._ended:
            close_all([channel])
            del self._peers[host]
        elif channel.is_closed or silent > self._lost_seconds:
            why = channel.reason if channel.is_closed else f"nothing heard of it for {silent:.0f} s"
            channel.drop()
            del self._peers[host]
            self._ended.add(host)
            self._note(News(host, why))

    def _note(self, news: News) -> None:
        """Keeps what ends this host's work, and as the first host tells the others."""
        if news.host == self._own or any(known.host == news.host for known in self._news):
            return
        self._news.append(news)
        if not self._is_first:
            return
        if news.exit_code is None:
            self._tell_all(kind="lost", host=news.host, line=news.line)
        else:
            self._tell_all(kind="ended", host=news.host, line=news.line, exit_code=news.exit_code,
                           consequence=news.is_consequence)  # fmt: skip

    def _tell_all(self, **message: Any) -> None:
        for channel in self._peers.values():
            channel.send(**message)

    # --- what is agreed on --------------------------------------------------------------------------------------------

    def meet(self, at: str, value: Any, is_over: Callable[[], bool]) -> dict[str, Any]:
        """Waits until every host has come to this point of the job, and gives the values that they brought, by host.

        is_over: True where this host's work ends otherwise; then, and where there is news, the values are empty.
        Raises LaunchError where a host has not come after LANGADAPT_MEETING_SECONDS.
        """
        deadline, is_told = time.monotonic() + self._meeting_seconds, False
        while at not in self._decided:
            self.poll()
            if self.news or is_over():
                return {}
            if self._is_first:
                self._values.setdefault(at, {})[self._own] = value
                if len(self._values[at]) == len(self._names):
                    self._decided[at] = self._values[at]
                    self._tell_all(kind="go", at=at, values=self._values[at])
            elif not is_told and self._first in self._peers:
                self._peers[self._first].send(kind="arrived", at=at, value=value)
                is_told = True
            if time.monotonic() > deadline + (LATER_SECONDS if is_told else 0):
                check_name(self._address[0])
                raise LaunchError(self._late_line(at))
            time.sleep(POLL_SECONDS)
        return self._decided[at]

    def _late_line(self, at: str) -> str:
        """Which hosts have not come."""
        late = [name for name in self._names if name not in self._values.get(at, {})] if self._is_first else []
        who = ", ".join(late) or f"{self._first} at {self._address[0]}:{self._address[1]}"
        return (
            f"hosts: {who} not reached in {self._meeting_seconds:g} s (LANGADAPT_MEETING_SECONDS). See that the "
            "security group allows all traffic to itself both ways, and the other hosts' logs."
        )

    # --- the end ------------------------------------------------------------------------------------------------------

    def say_goodbye(self, ended: Ended) -> None:
        """Tells how this host has ended, and closes its connections."""
        self._tell_all(kind="ended", host=self._own, line=ended.line, exit_code=ended.exit_code,
                       consequence=ended.is_consequence)  # fmt: skip
        close_all(self._peers.values())
        for stranger in self._strangers:
            stranger.drop()
        if self._listener is not None:
            self._listener.close()

    def wait_for_news(self, seconds: float, is_over: Callable[[], bool]) -> News | None:
        """What has happened to another host, waited for so long where nothing is known that has caused this."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_over():
            self.poll()
            if self.news and self.news.weight > 0:
                break
            time.sleep(POLL_SECONDS)
        return self.news


def after_news(own: Ended, news: News | None, was_sent_sigterm: bool) -> Ended:
    """How this host has ended, in the light of another's end.

    own: what its step's end says. was_sent_sigterm: the step was stopped because of the news.
    """
    if news is None or own.exit_code == 0:
        return own
    if own.line and not own.is_consequence and not was_sent_sigterm:
        return own
    if news.exit_code is None:
        line = (
            f"error: {news.host}: this host was lost: {news.line}. Give the same command again: training goes on from "
            "its last checkpoint."
        )
        return Ended(EXIT_USER_ERROR, line, is_consequence=True)
    if news.is_stop:
        return Ended(EXIT_TERMINATED, f"{STOPPED_LINE}, as {news.host} was", is_consequence=True)
    return Ended(news.exit_code, f"error: {news.host} failed: {news.line.removeprefix('error: ')}", is_consequence=True)
