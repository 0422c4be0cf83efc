"""Two hosts on loopback under torchrun, training a tiny model: one is killed, cut off or frozen, and the other ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from container_tree import kill_host
from launched_pretraining import ENDLESS, LaunchedJob, send_all
from small_pretraining import make_inputs
from workplace import prove

pytestmark = pytest.mark.verify

LIMIT_SECONDS = 60


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, make_tiny_tokenizer, make_tiny_llama):
    return make_inputs(tmp_path_factory.mktemp("inputs"), make_tiny_tokenizer, make_tiny_llama)


@pytest.fixture
def job(inputs, tmp_path) -> Iterator[LaunchedJob]:
    job = LaunchedJob(tmp_path, inputs, hosts=2, **ENDLESS)
    job.start()
    job.wait_for_training()
    yield job
    job.clean_up()


def prove_the_other_ends(job: LaunchedJob, gone: int, how: str, began: float) -> None:
    left = 1 - gone
    code = job.launchers[left].wait(180)
    seconds = time.monotonic() - began
    place = f"{job.hosts[gone]} {how}"
    prove(f"{place}: seconds until {job.hosts[left]} has ended", round(seconds, 1), "60", seconds < LIMIT_SECONDS)
    prove(f"{place}: exit code of {job.hosts[left]}", code, "1", code == 1)
    line = job.message(job.hosts[left])
    names = line.startswith(f"error: {job.hosts[gone]}: this host was lost: ") and "\n" not in line
    prove(f"{place}: {job.hosts[left]} says", line, "one line that names the host", names)
    told = [text for text in job.log(job.hosts[left]).splitlines() if text.startswith("error: ")]
    prove(f"{place}: last line of an error in the log", told[-1], "the same line", told[-1] == line)


@pytest.mark.parametrize("gone", [0, 1])
def test_killed(job, gone):
    began = time.monotonic()
    kill_host(job.launchers[gone])
    prove_the_other_ends(job, gone, "killed", began)


@pytest.mark.parametrize("gone", [0, 1])
def test_killed_while_the_other_waits_for_it(job, gone):
    """The workers are frozen first: no connection of theirs breaks, the other host's hang in a collective."""
    launcher, *others = job.processes(gone)
    send_all(others, signal.SIGSTOP)
    time.sleep(1)
    began = time.monotonic()
    os.kill(launcher, signal.SIGKILL)
    prove_the_other_ends(job, gone, "killed while its workers are frozen", began)


@pytest.mark.parametrize("gone", [0, 1])
def test_frozen(job, gone):
    began = time.monotonic()
    send_all(job.processes(gone), signal.SIGSTOP)
    prove_the_other_ends(job, gone, "frozen", began)


def test_the_network_is_measured(inputs, tmp_path: Path):
    job = LaunchedJob(tmp_path, inputs, hosts=2, phase_1_steps=1, phase_2_steps=1)
    try:
        job.start(LANGADAPT_ALL_REDUCE_CHECK="on", LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND="0.001")
        codes = job.wait()
        line = next(text for text in job.log().splitlines() if text.startswith("launch: all-reduce check: "))
        prove("a job of two hosts that is measured first: exit codes", codes, "0, 0", codes == [0, 0])
        prove("what it says", line, "GB/s, limit", "GB/s over 2 processes on 2 hosts, limit 0.001" in line)
        job.start(LANGADAPT_ALL_REDUCE_CHECK="on", LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND="100000")
        codes = job.wait()
        first, second = (job.message(host) for host in job.hosts)
        refused = first == second and " GB/s over 2 processes on 2 hosts; limit 100000 GB/s. See that the" in first
        prove("one below the floor: exit codes", codes, "1, 1", codes == [1, 1])
        prove("what both say", first, "value, limit and remedies, alike", refused and job.steps_told() == [])
        job.start(LANGADAPT_ALL_REDUCE_CHECK="on", LANGADAPT_ALL_REDUCE_SECONDS="0.1")
        codes = job.wait()
        lines = [job.message(host) for host in job.hosts]
        alike = all("all-reduce check, 2 hosts: no answer in 0.1 s. See that" in line for line in lines)
        prove("one that gives no answer in time: exit codes", codes, "1, 1", codes == [1, 1])
        prove("what both say", lines, "no answer, and the remedies", alike)
    finally:
        job.clean_up()
