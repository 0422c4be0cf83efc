"""Signals at every moment of a launch, and an interruption as managed spot does it."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

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


@pytest.mark.parametrize(("number", "code", "line"), [
    # The step's own SIGTERM handler answers it.
    (signal.SIGHUP, 143, "error: stopped by SIGTERM"),
    # No terminal has sent it to the step.
    (signal.SIGINT, 130, "error: interrupted"),
])  # fmt: skip
def test_other_signals_to_the_launcher_alone_reach_the_step(container, number, code, line):
    container.processing()
    launcher = container.start("--step=tiny", "--waits=1", before=without_a_terminal)
    wait_for(container.root / "processing/output/ready")
    launcher.send_signal(number)
    launcher.communicate(timeout=20)
    assert launcher.returncode == code
    assert (container.root / "output/message").read_text() == line


def test_ctrl_c_ends_hosts_that_wait_for_others(container):
    container.training(hosts=["algo-1", "algo-2"])
    launcher = container.start(**loopback_hosts(), before=without_a_terminal)
    wait_for(container.root / "code/steps/tiny.py")
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=20)
    assert launcher.returncode == 130
    assert (container.root / "output/failure").read_text() == "error: interrupted"


def without_a_terminal() -> None:
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("seconds", [0, 0.02, 0.05, 0.1, 0.2])
def test_process_1_ends_by_sigterm_from_its_first_handler_on(container, seconds):
    """The kernel drops what process 1 has no handler for, as while Python itself starts."""
    container.processing()
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    if shutil.which(apart[0]) is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no name space for processes can be made here")
    outside = container.start("--step=tiny", "--waits=1", wrapped_in=apart)
    wait_for(lambda: len(tree(outside.pid)) > 1)
    launcher = tree(outside.pid)[1]
    wait_for(lambda: catches(launcher, signal.SIGTERM))
    time.sleep(seconds)
    os.kill(launcher, signal.SIGTERM)
    outside.communicate(timeout=20)
    assert outside.returncode == 143
    assert (container.root / "output/message").read_text() == "error: stopped by SIGTERM"


def catches(process: int, number: int) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert caught
    return bool(int(caught[1], 16) >> (number - 1) & 1)
