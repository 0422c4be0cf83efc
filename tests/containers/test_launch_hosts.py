"""Two hosts on loopback under real torchruns, with a step of some lines: one is lost, or fails."""

import socket
from pathlib import Path

from container_tree import Container, kill_host, loopback_hosts, wait_for

HOSTS = ("algo-1", "algo-2")


def start_two(folder: Path, variables: dict[str, str], *settings: dict[str, str]):
    """Containers and launchers of two hosts, each with its own settings."""
    containers = [Container(folder / host) for host in HOSTS]
    launchers = []
    for container, host, given in zip(containers, HOSTS, settings, strict=True):
        container.training(hosts=HOSTS, host=host, **given)
        launchers.append(container.start(**variables))
    return containers, launchers


def message(container: Container) -> str:
    return (container.root / "output/failure").read_text()


def test_a_killed_host_ends_the_other_with_a_line_that_names_it(tmp_path):
    """The first, which all the others are connected to; tests/verify has each way, with a real training."""
    containers, launchers = start_two(tmp_path, loopback_hosts(), {"waits": "1"}, {"waits": "1"})
    for container in containers:
        wait_for(container.root / "model/ready", 60)
    kill_host(launchers[0])
    _, errors = launchers[1].communicate(timeout=60)
    assert launchers[1].returncode == 1, errors
    assert message(containers[1]).startswith("error: algo-1: this host was lost: ")
    launchers[0].communicate()


def test_a_failed_host_ends_the_other_with_its_line(tmp_path):
    failing = {"fails": "error: loss: nan; limit a finite number.", "exit_code": "1"}
    containers, launchers = start_two(tmp_path, loopback_hosts(), {"waits": "1"}, failing)
    for launcher in launchers:
        _, errors = launcher.communicate(timeout=90)
        assert launcher.returncode == 1, errors
    assert message(containers[1]) == failing["fails"]
    assert message(containers[0]) == "error: algo-2 failed: loss: nan; limit a finite number."


def test_a_port_of_torchruns_that_is_in_use_is_named_on_every_host(tmp_path):
    meeting = loopback_hosts()
    port = int(meeting["LANGADAPT_RENDEZVOUS_PORT"])
    with socket.create_server(("127.0.0.1", port)):
        containers, launchers = start_two(tmp_path, meeting, {}, {})
        for launcher in launchers:
            _, errors = launcher.communicate(timeout=60)
            assert launcher.returncode == 1, errors
    line = f"LANGADAPT_RENDEZVOUS_PORT: {port}: Address already in use. Name a port that is free."
    assert [message(container) for container in containers] == [f"error: {line}", f"error: algo-1 failed: {line}"]


def test_processes_of_one_host_that_cannot_meet(tmp_path):
    container = Container(tmp_path)
    container.training()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = {"LANGADAPT_PROCESSES": "2", "LANGADAPT_RENDEZVOUS_PORT": str(port)}
        line = f"error: LANGADAPT_RENDEZVOUS_PORT: {port}: Address already in use. Name a port that is free.\n"
        assert container.launch(**given) == (1, line)
        # One process needs no port.
        assert container.launch(LANGADAPT_RENDEZVOUS_PORT=str(port), LANGADAPT_PROCESSES="1")[0] == 0
    code, errors = container.launch(**given, LANGADAPT_RENDEZVOUS_HOST="no-such-host.invalid")
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("error: LANGADAPT_RENDEZVOUS_HOST: no-such-host.invalid cannot be resolved: ")


def test_processes_of_one_host_meet_without_its_name(tmp_path):
    """A container outside the service has no name that its own machine could look up."""
    container = Container(tmp_path)
    container.training(hosts=["no-such-host.invalid"], host="no-such-host.invalid")
    port = loopback_hosts()["LANGADAPT_RENDEZVOUS_PORT"]
    assert container.launch(LANGADAPT_PROCESSES="2", LANGADAPT_RENDEZVOUS_PORT=port) == (0, "")
    assert sorted(path.name for path in (container.root / "model").iterdir()) == ["seen-0.json", "seen-1.json"]
