"""Two instances under torchrun, stopped and killed in training: nothing goes on, and the next run resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workplace import Workplace, copy_of_source, fill_workplace, prove

from pipeline.local.processes import job_processes
from steps.contract import EXIT_DONE, EXIT_INTERRUPTED

pytestmark = pytest.mark.verify

STEP = "ContinuedPretraining"
# Enough steps to be stopped in the middle of.
LONGER = ("--set", "continued_pretraining.phase_1_steps=60", "--set", "continued_pretraining.phase_2_steps=60",
          "--param", f"{STEP}InstanceCount=2")  # fmt: skip


class Stopped:
    """A workplace and a run in it that is in training."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.process = subprocess.Popen(
            place.command(*place.run_arguments(*LONGER)), cwd=place.folder, env=place.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.wait_for(lambda: "metrics: step=1" in self.log())

    def log(self) -> str:
        return "".join(path.read_text() for path in self.place.run_folder.glob(f"jobs/{STEP}/*/log.txt"))

    def processes(self) -> dict[int, str]:
        """Ids and command lines of the job's processes."""
        roots = [str(path) for path in self.place.run_folder.glob(f"jobs/{STEP}/*/algo-*/opt/ml")]
        found = {}
        for number in job_processes([], roots):
            command = Path(f"/proc/{number}/cmdline")
            if command.exists():
                found[number] = command.read_bytes().replace(b"\0", b" ").decode()
        return found

    def wait_for(self, condition: Callable[[], object], seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            assert self.process.poll() is None, self.process.stderr.read() if self.process.stderr else ""
            time.sleep(0.05)


@pytest.fixture
def stopped(tmp_path: Path, make_tiny_llama: Callable) -> Iterator[Stopped]:
    place = fill_workplace(tmp_path, make_tiny_llama, copy_of_source(tmp_path / "source"))
    run = Stopped(place)
    yield run
    if run.process.poll() is None:
        run.process.kill()
    run.process.wait()


def resumed_from(place: Workplace) -> int:
    return json.loads((place.output(STEP) / "training.json").read_text())["resumed_from_step"]


def test_one_ctrl_c(stopped: Stopped) -> None:
    torchruns = [number for number, command in stopped.processes().items() if "torch.distributed.run" in command]
    prove("torchrun processes of two instances", len(torchruns), "2", len(torchruns) == 2)
    began = time.monotonic()
    stopped.process.send_signal(signal.SIGINT)
    _, errors = stopped.process.communicate(timeout=120)
    seconds = time.monotonic() - began
    prove("seconds from ctrl-C to the end", round(seconds, 1), "30", seconds < 30)
    code = stopped.process.returncode
    prove("exit code", code, "130", code == EXIT_INTERRUPTED)
    prove("the line", "stopping; press ctrl-C again to kill" in errors, "shown", "press ctrl-C again" in errors)
    prove("processes left", len(stopped.processes()), "0", not stopped.processes())
    again = stopped.place.run(*LONGER)
    assert again.returncode == EXIT_DONE, again.stderr
    prove(
        "step that the next run goes on from", resumed_from(stopped.place), "above 0", resumed_from(stopped.place) > 0
    )


def test_ctrl_c_twice(stopped: Stopped) -> None:
    for _ in range(2):
        began = time.monotonic()
        stopped.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    code = stopped.process.wait(60)
    seconds = time.monotonic() - began
    prove("seconds from the second ctrl-C to the end", round(seconds, 1), "10", seconds < 10)
    prove("exit code", code, "130", code == EXIT_INTERRUPTED)
    prove("processes left, torchrun's workers too", len(stopped.processes()), "0", not stopped.processes())


def test_torchrun_killed(stopped: Stopped) -> None:
    """SIGKILL of torchrun alone: its workers, in sessions of their own, end before the next attempt begins."""
    processes = stopped.processes()
    torchrun = next(number for number, command in processes.items() if "torch.distributed.run" in command)
    os.kill(torchrun, signal.SIGKILL)
    stopped.wait_for(lambda: "retry 1" in line_after(stopped), 180)
    left = set(processes) & set(stopped.processes())
    prove("processes of the first attempt beside the second", len(left), f"0 of {len(processes)}", not left)
    code = stopped.process.wait(600)
    prove("exit code after the retry", code, "0", code == EXIT_DONE)


def line_after(stopped: Stopped) -> str:
    assert stopped.process.stderr is not None
    return stopped.process.stderr.readline()
