"""The first signal ends steps cleanly, the second kills; and no process of a job outlives it, wherever it has gone."""

import os
import signal
import subprocess
import sys
import time

import pytest
from small_jobs import SmallRuns, processing, states, training

from pipeline.local.processes import end_all, job_processes, kill_all, process_identity

# What must end at once may take this long on a busy machine; left alone, it would take minutes.
AT_ONCE_SECONDS = 30
# Counts on from its checkpoint until it is told to stop: for two minutes, or a little where it goes on.
COUNTS = """
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
kept = checkpoints / "count.txt"
count = began = int(kept.read_text()) if kept.exists() else 0
last = began + 20 if began else 1200
while count < last:
    time.sleep(0.1)
    count += 1
    if stopped:
        kept.write_text(str(count))
        sys.exit(143)
    (root / "at-work").touch()
(output / "count.txt").write_text(str(began))
"""
# A launcher whose worker is in a session of its own, as torchrun's are.
WITH_WORKER = """
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
(root / "aside").write_text(str(worker.pid))
(root / "aside").rename(root / "worker.txt")
time.sleep(120)
"""
# The same, where neither heeds SIGTERM.
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" + WITH_WORKER
# The same, but the launcher is killed, and the worker is nobody's child.
KILLED_LAUNCHER = WITH_WORKER.replace("time.sleep(120)\n", "os.kill(os.getpid(), signal.SIGKILL)\n")


@pytest.fixture
def runs(tmp_path):
    return SmallRuns(tmp_path)


def worker_of(runs, step):
    """The worker's id, once it is at work."""
    runs.wait_for(lambda: list(runs.run_folder.glob(f"jobs/{step}/*/opt/ml/worker.txt")))
    return int(next(runs.run_folder.glob(f"jobs/{step}/*/opt/ml/worker.txt")).read_text())


@pytest.mark.parametrize(("number", "code", "line"), [
    (signal.SIGINT, 130, "stopping; press ctrl-C again to kill"),
    (signal.SIGTERM, 143, "stopping on SIGTERM; a second signal kills"),
    (signal.SIGHUP, 143, "stopping on SIGHUP; a second signal kills"),
])  # fmt: skip
def test_the_first_signal_ends_steps_behind_a_checkpoint(runs, number, code, line):
    process = runs.start(training("Count", COUNTS), processing("Later", ""))
    runs.wait_for(lambda: list(runs.run_folder.glob("jobs/Count/*/opt/ml/at-work")))
    began = time.monotonic()
    process.send_signal(number)

    assert process.wait(60) == code
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert line in runs.stderr.splitlines()
    record = runs.record()
    assert (record["state"], record["exit_code"], record["steps"]["Count"]["state"]) == ("Stopped", code, "Stopped")
    assert not runs.processes("Count")
    count = (runs.run_folder / "s3/b/checkpoints/Count/count.txt").read_text()
    assert int(count) > 0

    result = runs.run(training("Count", COUNTS), processing("Later", ""))
    assert result.exit_code == 0
    assert (result.outputs["Count"]["model"] / "count.txt").read_text() == count
    # The run came to an orderly end: there was nothing to take over.
    assert not runs.lines


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_kills_everything_at_once(runs, number, code):
    process = runs.start(processing("Stubborn", STUBBORN))
    worker = worker_of(runs, "Stubborn")
    process.send_signal(number)
    runs.wait_for(lambda: "stopping" in runs.stderr)
    time.sleep(0.5)
    assert len(runs.processes("Stubborn")) == 2
    began = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == code
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert "killing" in runs.stderr.splitlines()
    assert process_identity(worker) is None
    assert not runs.processes("Stubborn")
    assert runs.record()["steps"]["Stubborn"]["state"] == "Stopped"


def test_the_second_signal_does_not_wait_for_a_function_that_hangs(runs):
    call = {"Name": "Call", "Type": "Lambda", "Arguments": {}, "FunctionArn": "hang", "OutputParameters": []}
    code = f"import pathlib, time; pathlib.Path({str(runs.folder / 'called')!r}).touch(); time.sleep(120)"
    process = runs.start(call, functions={"hang": code})
    runs.wait_for((runs.folder / "called").exists)
    process.send_signal(signal.SIGINT)
    runs.wait_for(lambda: "stopping" in runs.stderr)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 130
    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert runs.record()["steps"]["Call"]["state"] == "Stopped"


def test_a_signal_behind_the_last_step_changes_nothing(runs):
    """It comes while a function that ends anyway is at work."""
    call = {"Name": "Call", "Type": "Lambda", "Arguments": {}, "FunctionArn": "last", "OutputParameters": []}
    code = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    process = runs.start(call, functions={"last": code})
    assert process.wait(60) == 0
    assert (runs.record()["state"], runs.record()["failure"]) == ("Succeeded", None)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_a_killed_run_left_ends_although_its_job_is_another_now(runs, is_recorded):
    process = runs.start(processing("Work", WITH_WORKER))
    worker = worker_of(runs, "Work")
    running = runs.processes("Work")
    if not is_recorded:
        # As where the run was killed between the start of a process and its record.
        (record,) = runs.folder.glob("**/processes.json")
        record.unlink()
    process.kill()
    process.wait()
    for number in set(running) - {worker}:
        os.kill(number, signal.SIGKILL)
    assert runs.run(processing("Other", "")).exit_code == 0
    assert process_identity(worker) is None
    assert any(line.startswith("Ending 1 process that") for line in runs.lines)


def test_the_worker_of_a_killed_launcher_has_ended_with_the_job(runs):
    """It has no parent and no group of the job's any more."""
    result = runs.run(processing("Bad", KILLED_LAUNCHER))

    assert states(result) == {"Bad": "Failed"}
    assert process_identity(worker_of(runs, "Bad")) is None
    assert not runs.processes("Bad")


def test_what_a_killed_run_left_in_a_session_of_its_own_ends_before_the_next_attempt(runs):
    marker = runs.folder / "killed-once"
    code = f"marker = Path({str(marker)!r})\nif not marker.exists():\n    marker.touch()\n"
    code += "".join(f"    {line}\n" for line in WITH_WORKER.strip().splitlines())
    process = runs.start(processing("Work", code))
    worker = worker_of(runs, "Work")
    (launcher,) = set(runs.processes("Work")) - {worker}
    # The run and the launcher die at once; the worker goes on, in a session of its own and nobody's child.
    process.kill()
    os.kill(launcher, signal.SIGKILL)
    process.wait()
    runs.wait_for(lambda: list(runs.processes("Work")) == [worker])

    result = runs.run(processing("Work", code))
    assert result.exit_code == 0
    assert process_identity(worker) is None


# --- processes --------------------------------------------------------------------------------------------------------

SLEEP = "import time; time.sleep(60)"
SLEEP_WITH_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True)\n{SLEEP}"
)
NEVER_ENDS = (
    "import pathlib, signal, sys; signal.signal(15, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); " + SLEEP
)


def test_processes_are_found_by_group_by_parent_and_by_the_folder_they_were_started_for(tmp_path):
    bare = {name: value for name, value in os.environ.items() if name != "OPT_ML"}

    def start(code, **environment):
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, env={**bare, **environment}, start_new_session=True)

    leader = start(SLEEP_WITH_CHILD)
    marked, other = start(SLEEP, OPT_ML=str(tmp_path)), start(SLEEP, OPT_ML=f"{tmp_path}x")

    def find():
        return job_processes([leader.pid], [str(tmp_path)])

    try:
        deadline = time.monotonic() + 10
        while len(found := find()) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(found) == 3
        assert {leader.pid, marked.pid} < set(found)
        assert other.pid not in found
    finally:
        kill_all(find)
        for process in (leader, marked, other):
            process.kill()
            process.wait()
    assert not find()


def test_what_does_not_heed_sigterm_is_killed_after_the_grace(tmp_path):
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-c", NEVER_ENDS, str(ready)], start_new_session=True)
    while not ready.exists():
        time.sleep(0.02)
    began = time.monotonic()
    end_all(lambda: job_processes([process.pid], []), 0.4, hurry=lambda: False)
    assert 0.4 < time.monotonic() - began < AT_ONCE_SECONDS
    assert process.wait() == -signal.SIGKILL
