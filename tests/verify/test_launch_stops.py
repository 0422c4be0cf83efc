"""ContinuedPretraining under the launcher, stopped as the service stops a job: a checkpoint, 143, and on from there."""

from __future__ import annotations

import filecmp
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from container_tree import interrupt_as_the_service
from launched_pretraining import ENDLESS, LaunchedJob
from small_pretraining import make_inputs
from workplace import prove

from pipeline.code_archive import STEPS_FOLDER

pytestmark = pytest.mark.verify

TRIES = 10
STOPPED = {
    "phase_1_steps": 4, "phase_2_steps": 1_200, "validate_every_steps": 1_000, "checkpoint_every_steps": 400,
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, make_tiny_tokenizer, make_tiny_llama):
    return make_inputs(tmp_path_factory.mktemp("inputs"), make_tiny_tokenizer, make_tiny_llama)


def test_stopped_ten_times_in_phase_2(inputs, tmp_path):
    moments = random.Random(8)
    whole, stopped = (LaunchedJob(tmp_path / name, inputs, **STOPPED) for name in ("whole", "stopped"))
    whole.start()
    assert whole.wait() == [0], whole.log()
    good, seen = 0, []
    for attempt in range(TRIES):
        stopped.start()
        stopped.wait_for_training()
        resumed = stopped.resumed_from()
        assert attempt == 0 or resumed == seen[-1], (resumed, seen)
        time.sleep(moments.uniform(0, 1.0))
        stopped.launchers[0].send_signal(signal.SIGTERM)
        (code,) = stopped.wait(120)
        seen.append(stopped.steps_told()[-1])
        good += code == 143 and stopped.message() == "error: stopped by SIGTERM"
    stopped.start()
    assert stopped.wait() == [0], stopped.log()
    prove("tries in which SIGTERM in phase 2 gave exit code 143 and its line", good, "10 of 10", good == TRIES)
    print("steps stopped at:", seen)
    resumed = stopped.resumed_from()
    prove("step that the last start went on from", resumed, f"{seen[-1]}, the one stopped at", resumed == seen[-1])
    files = [job.root("algo-1") / "model/model.safetensors" for job in (whole, stopped)]
    same = filecmp.cmp(*files, shallow=False)
    prove("model.safetensors of the run stopped 10 times and the whole one's", same, "bit-identical", same)


def test_spot_interrupts_two_hosts(inputs, tmp_path):
    job = LaunchedJob(tmp_path, inputs, hosts=2, **ENDLESS)
    try:
        job.start()
        job.wait_for_training()
        began = time.monotonic()
        codes = interrupt_as_the_service(job.launchers, 120)
        seconds = time.monotonic() - began
        stopped_at = job.steps_told()[-1]
        prove("exit codes of two interrupted hosts", codes, "143, 143", codes == [143, 143])
        prove("seconds from SIGTERM to the end of both", round(seconds, 1), "120", seconds < 120)
        job.start()
        job.wait_for_training("going on from the checkpoint")
        resumed = job.resumed_from()
        prove("step that both went on from", resumed, f"{stopped_at}, the one stopped at", resumed == stopped_at)
    finally:
        job.clean_up()


def test_spot_kills_what_ignores_it(inputs, tmp_path):
    """The real 120 s, and a step that notes no SIGTERM; the step that comes after it does."""
    deaf = tmp_path / "deaf" / "steps"
    shutil.copytree(STEPS_FOLDER, deaf, ignore=shutil.ignore_patterns("__pycache__"))
    module = deaf / "modeling/stopping.py"
    text = module.read_text()
    module.write_text(
        text.replace("        if self._came_at is None:\n            self._came_at = time.monotonic()", "        pass")
    )
    assert module.read_text() != text
    job = LaunchedJob(tmp_path / "job", inputs, steps=deaf, **ENDLESS)
    try:
        job.start()
        job.wait_for_training()
        began = time.monotonic()
        codes = interrupt_as_the_service(job.launchers, 120)
        seconds = time.monotonic() - began
        last = job.steps_told()[-1]
        prove("exit code of a launcher whose step ignores SIGTERM", codes, "-9", codes == [-signal.SIGKILL])
        prove("seconds until it is killed", round(seconds, 1), "at least 120", 120 <= seconds < 130)
        again = LaunchedJob(tmp_path / "again", inputs, **ENDLESS)
        again.checkpoints.rmdir()
        again.checkpoints.symlink_to(job.checkpoints)
        again.start()
        again.wait_for_training("going on from the checkpoint")
        resumed = again.resumed_from()
        again.clean_up()
        periodic = resumed > 0 and resumed % ENDLESS["checkpoint_every_steps"] == 0 and last - resumed < 100
        prove(f"step that the next start went on from, killed at {last}", resumed, "a periodic checkpoint", periodic)
    finally:
        job.clean_up()


def test_sigterm_while_the_network_is_measured(inputs, tmp_path):
    job = LaunchedJob(tmp_path, inputs, hosts=2, **ENDLESS)
    try:
        job.start(LANGADAPT_ALL_REDUCE_CHECK="on")
        deadline = time.monotonic() + 60
        while not all(any(is_check(number) for number in job.processes(index)) for index in (0, 1)):
            assert time.monotonic() < deadline, job.log()
            time.sleep(0.05)
        began = time.monotonic()
        codes = interrupt_as_the_service(job.launchers, 120)
        seconds = time.monotonic() - began
        prove("exit codes of SIGTERM while measuring", codes, "143, 143", codes == [143, 143])
        prove("seconds until both have ended", round(seconds, 1), "60", seconds < 60)
        prove("steps trained", job.steps_told(), "none", job.steps_told() == [])
    finally:
        job.clean_up()


def is_check(number: int) -> bool:
    command = Path(f"/proc/{number}/cmdline")
    return command.exists() and b"all_reduce_check.py" in command.read_bytes()
