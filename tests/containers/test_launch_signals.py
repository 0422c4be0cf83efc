"""SIGTERM at every moment of a launch, and an interruption as managed spot does it."""

import signal
import time

import pytest
from container_tree import Container, interrupt_as_the_service, loopback_hosts, wait_for

from containers.process_tree import stat_fields, tree


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


def test_sigterm_before_the_step_has_started(container):
    """The first of two hosts waits for the second."""
    container.training(hosts=["algo-1", "algo-2"])
    launcher = container.start(**loopback_hosts())
    # The code is unpacked just before the hosts meet.
    wait_for(container.root / "code/steps/tiny.py")
    time.sleep(0.3)
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=20)
    assert launcher.returncode == 143
    assert (container.root / "output/failure").read_text() == "error: stopped by SIGTERM"
    assert not list((container.root / "model").iterdir())


def test_a_second_sigterm_changes_nothing(container):
    container.training(counts_stops="1")
    launcher = container.start()
    wait_for(container.root / "model/ready")
    for _ in range(3):
        launcher.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    launcher.communicate(timeout=20)
    assert launcher.returncode == 143
    assert (container.root / "output/failure").read_text() == "error: stopped by SIGTERM 1 times"


def test_an_interruption_kills_what_takes_too_long(container):
    container.training(counts_stops="60")
    launcher = container.start()
    wait_for(container.root / "model/ready")
    processes = tree(launcher.pid)
    assert len(processes) == 2
    assert interrupt_as_the_service([launcher], grace_seconds=1) == [-signal.SIGKILL]
    wait_for(lambda: all(stat_fields(number)[:1] in ([], ["Z"]) for number in processes), 10)
    launcher.communicate()
