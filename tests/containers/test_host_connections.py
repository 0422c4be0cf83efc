"""Hosts of one job over real sockets, each a thread or a turn of this process."""

import socket
import threading
import time
from pathlib import Path

import pytest
from container_tree import free_ports, wait_for

from containers.host_connections import Hosts, News, after_news
from containers.job_configuration import Launch
from containers.launch_errors import Ended, LaunchError

NAMES = ["algo-1", "algo-2", "algo-3"]


def never() -> bool:
    return False


@pytest.fixture
def port(monkeypatch) -> int:
    (port,) = free_ports(1)
    for name, value in (
        ("RENDEZVOUS_HOST", "127.0.0.1"), ("HOSTS_PORT", str(port)), ("LOST_SECONDS", "1"), ("MEETING_SECONDS", "20"),
    ):  # fmt: skip
        monkeypatch.setenv(f"LANGADAPT_{name}", value)
    return port


def host(index: int, names=NAMES) -> Hosts:
    return Hosts(Launch("training", "tiny", {}, ["--rate=1"], index, list(names), "lo"))


def meet(hosts: list[Hosts], at: str = "start", values=(1, 2, 3)) -> list[dict]:
    """What each is told at a meeting of all."""
    told: list[dict] = [{}] * len(hosts)

    def come(index: int) -> None:
        told[index] = hosts[index].meet(at, values[index], never)

    threads = [threading.Thread(target=come, args=(index,)) for index in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return told


def until_news(*hosts: Hosts) -> list[News | None]:
    def all_know() -> bool:
        for one in hosts:
            one.poll()
        return all(one.news for one in hosts)

    wait_for(all_know, 10)
    return [one.news for one in hosts]


def leave(*hosts: Hosts, ended: Ended | None = None) -> None:
    """Each in a thread, as in a process of its own: a goodbye waits a little for the other end to go, too."""
    for one in hosts:
        threading.Thread(target=one.say_goodbye, args=(ended or Ended(0),)).start()


def test_all_learn_the_same_values_and_part_without_news(port):
    hosts = [host(index) for index in range(3)]
    everything = {"algo-1": 1, "algo-2": 2, "algo-3": 3}
    assert meet(hosts) == [everything] * 3
    assert meet(hosts, "later", values=(4, 5, 6)) == [{"algo-1": 4, "algo-2": 5, "algo-3": 6}] * 3
    # One that ends earlier, the first among them, is no loss.
    leave(hosts[2], hosts[0])
    for _ in range(10):
        hosts[1].poll()
        time.sleep(0.05)
    assert hosts[1].news is None
    leave(hosts[1])


@pytest.mark.parametrize("gone", [0, 1])
def test_a_broken_connection_is_a_lost_host(port, gone):
    hosts = [host(index) for index in range(3)]
    meet(hosts)
    for channel in hosts[gone]._peers.values():
        # As the kernel does for a process that is killed.
        channel.drop()
    left = [one for one in hosts if one is not hosts[gone]]
    assert [(news.host, news.exit_code) for news in until_news(*left)] == [(NAMES[gone], None)] * 2
    leave(*left)


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_silent_host_is_lost(port, frozen):
    hosts = [host(index) for index in range(3)]
    meet(hosts)
    left = [one for one in hosts if one is not hosts[frozen]]
    news = until_news(*left)
    assert [one.host for one in news] == [NAMES[frozen]] * 2
    assert all("nothing heard of it for " in one.line for one in news)
    leave(*hosts)


def test_a_host_that_was_frozen_hears_first_what_has_come_meanwhile(port):
    """Its own clock says that nobody has spoken for long: that alone is no loss."""
    hosts = [host(index, NAMES[:2]) for index in range(2)]
    meet(hosts)
    deadline = time.monotonic() + 1.5
    hosts[0]._lost_seconds = 60.0
    while time.monotonic() < deadline:
        hosts[0].poll()
        time.sleep(0.05)
    hosts[0]._alive_at = 0.0
    hosts[0].poll()
    time.sleep(0.1)
    hosts[1].poll()
    assert hosts[1].news is None
    leave(*hosts)


def test_a_failure_is_told_to_all_and_the_cause_outweighs_its_consequences(port):
    hosts = [host(index) for index in range(3)]
    meet(hosts)
    leave(hosts[1], ended=Ended(1, "error: process 1 of 3: another process ended", is_consequence=True))
    assert [news.host for news in until_news(hosts[0], hosts[2])] == ["algo-2"] * 2
    leave(hosts[2], ended=Ended(1, "error: loss: nan; limit a finite number."))
    assert hosts[0].wait_for_news(5, never) == News("algo-3", "error: loss: nan; limit a finite number.", 1)
    leave(hosts[0])


def test_strangers_do_not_count(port):
    first = host(0, NAMES[:2])
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    # As a host of another job.
    strangers[1].sendall(b'{"kind": "greeting", "key": "another", "host": "algo-2"}\n')
    strangers[2].sendall(b'["algo-2"]\n' + b"x" * 100_000)
    strangers[3].close()
    # The fifth says nothing.
    for _ in range(10):
        first.poll()
        time.sleep(0.02)
    assert (first._peers, first.news) == ({}, None)
    second = host(1, NAMES[:2])
    assert meet([first, second]) == [{"algo-1": 1, "algo-2": 2}] * 2
    leave(first, second)


def test_who_is_late_is_named(port, monkeypatch):
    monkeypatch.setenv("LANGADAPT_MEETING_SECONDS", "0.5")
    first = host(0)
    with pytest.raises(LaunchError, match=r"^hosts: algo-2, algo-3 not reached in 0\.5 s .*security group"):
        first.meet("start", None, never)
    leave(first)
    alone = host(1)
    with pytest.raises(LaunchError, match=rf"^hosts: algo-1 at 127\.0\.0\.1:{port} not reached in 0\.5 s"):
        alone.meet("start", None, never)


def test_a_port_in_use_is_named(port):
    with socket.create_server(("127.0.0.1", port)), pytest.raises(LaunchError, match=rf"HOSTS_PORT: {port}: Address"):
        host(0)


def test_torchruns_own_port_is_refused_for_the_launchers(port, monkeypatch):
    monkeypatch.setenv("LANGADAPT_RENDEZVOUS_PORT", str(port))
    with pytest.raises(LaunchError, match=rf"^LANGADAPT_HOSTS_PORT: {port}; limit another port than LANGADAPT_REND"):
        host(0)


def test_a_first_host_whose_name_is_none_is_named(port, monkeypatch):
    monkeypatch.setenv("LANGADAPT_MEETING_SECONDS", "0.2")
    monkeypatch.setenv("LANGADAPT_RENDEZVOUS_HOST", "no-such-host.invalid")
    for index in range(2):
        one = host(index)
        with pytest.raises(LaunchError, match=r"^LANGADAPT_RENDEZVOUS_HOST: no-such-host\.invalid cannot be resolved"):
            one.meet("start", None, never)
        leave(one)


@pytest.mark.parametrize("given", ["0", "0.9", "", "x", "9" * 5_000])
def test_a_silence_that_loses_every_host_is_refused(port, monkeypatch, given):
    monkeypatch.setenv("LANGADAPT_LOST_SECONDS", given)
    with pytest.raises(LaunchError, match=r"^LANGADAPT_LOST_SECONDS: .*; limit a number from 1\. Change the variable"):
        host(0)


LEFT_ALONE = Ended(1, "error: process 0 of 2: another process ended and left it alone", is_consequence=True)
LOST = News("algo-2", "its connection was closed")


@pytest.mark.parametrize(("own", "news", "was_sent", "code", "line"), [
    (Ended(0), LOST, True, 0, ""),
    (LEFT_ALONE, None, False, 1, LEFT_ALONE.line),
    (LEFT_ALONE, LOST, False, 1, "error: algo-2: this host was lost: its connection was closed. Give the same command "
     "again: training goes on from its last checkpoint."),
    (Ended(143, "error: stopped by SIGTERM"), News("algo-2", "error: loss: nan", 1), True, 1,
     "error: algo-2 failed: loss: nan"),
    (Ended(143, "error: stopped by SIGTERM"), News("algo-2", "error: stopped by SIGTERM", 143), True, 143,
     "error: stopped by SIGTERM, as algo-2 was"),
    # Its own cause, found at the same time.
    (Ended(1, "error: rate: 0"), News("algo-2", "error: rate: 0", 1), False, 1, "error: rate: 0"),
])  # fmt: skip
def test_a_hosts_end_in_the_light_of_anothers(own, news, was_sent, code, line):
    ended = after_news(own, news, was_sent)
    assert (ended.exit_code, ended.line) == (code, line)


def test_modules_of_the_launcher_are_small():
    for path in sorted((Path(__file__).parents[2] / "containers").glob("*.py")):
        assert len(path.read_text().splitlines()) <= 300, path
