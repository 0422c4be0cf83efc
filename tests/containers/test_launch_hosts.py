"""Two hosts on loopback under real torchruns, with a step of some lines: one is lost, or fails."""

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
