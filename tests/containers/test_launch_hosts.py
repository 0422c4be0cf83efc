"""Two hosts on loopback under real torchruns, with a step of some lines: measured, refused, lost, failed."""

from pathlib import Path

import pytest
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


def test_a_network_below_the_floor_is_refused_by_every_host_alike(tmp_path):
    variables = loopback_hosts(
        LANGADAPT_ALL_REDUCE_CHECK="on", LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND="100000",
    )  # fmt: skip
    containers, launchers = start_two(tmp_path, variables, {}, {})
    for launcher in launchers:
        _, errors = launcher.communicate(timeout=90)
        assert launcher.returncode == 1, errors
    first, second = map(message, containers)
    print(first)
    assert first == second
    assert first.startswith("error: all-reduce check: ")
    assert " GB/s over 2 processes on 2 hosts; limit 100000 GB/s. See that the security group allows" in first
    assert not list(tmp_path.rglob("seen*.json"))


@pytest.mark.parametrize("gone", [0, 1])
def test_a_killed_host_ends_the_other_with_a_line_that_names_it(tmp_path, gone):
    containers, launchers = start_two(tmp_path, loopback_hosts(), {"waits": "1"}, {"waits": "1"})
    for container in containers:
        wait_for(container.root / "model/ready", 60)
    kill_host(launchers[gone])
    left = 1 - gone
    _, errors = launchers[left].communicate(timeout=60)
    assert launchers[left].returncode == 1, errors
    assert message(containers[left]).startswith(f"error: {HOSTS[gone]}: this host was lost: its connection was closed.")
    launchers[gone].communicate()


def test_a_failed_host_ends_the_other_with_its_line(tmp_path):
    failing = {"fails": "error: loss: nan; limit a finite number.", "exit_code": "1"}
    containers, launchers = start_two(tmp_path, loopback_hosts(), {"waits": "1"}, failing)
    for launcher in launchers:
        _, errors = launcher.communicate(timeout=90)
        assert launcher.returncode == 1, errors
    assert message(containers[1]) == failing["fails"]
    assert message(containers[0]) == "error: algo-2 failed: loss: nan; limit a finite number."
