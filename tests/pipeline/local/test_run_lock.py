"""Locks between real processes: one run in a folder, one maker of the sample; what dead processes left is cleared."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_jobs import ROOT, SmallRuns, processing

from pipeline.local.run_lock import RunLock
from steps.contract import ConfigError
from steps.contract.locks import FileLock, LockHeldError
from steps.make_sample import cached_sample, sample_digest

WAITS = "import threading; threading.Event().wait()"
# Takes half a second to end.
ENDS_SLOWLY = """
import threading
signal.signal(signal.SIGTERM, lambda number, frame: (time.sleep(0.8), sys.exit(143)))
threading.Event().wait()
"""
# Makes the sample with a base model that is done when the test says so.
MAKES_SAMPLE = """
import sys, time
from pathlib import Path
from steps.make_sample import cached_sample
place = Path(sys.argv[1])
def train(texts, folder):
    with (place / "made").open("a") as stream:
        stream.write("made\\n")
    folder.mkdir()
    for number in range(20):
        (folder / f"part-{number}").write_text("model")
    while not (place / "go").exists():
        time.sleep(0.02)
folder = cached_sample(place / "cache", train)
print(folder, len(list((folder / "base_model").iterdir())))
"""


@pytest.fixture
def runs(tmp_path):
    return SmallRuns(tmp_path)


def is_at_work(runs):
    return lambda: list(runs.run_folder.glob("jobs/*/*/processes.json"))


def dead_process() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


# --- one run in a folder ----------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_in_one_line_that_names_the_process(runs):
    process = runs.start(processing("Slow", WAITS))
    runs.wait_for(is_at_work(runs))
    before = runs.record()
    second = SmallRuns(runs.folder).start(processing("Other", ""))
    assert second.wait(20) == 1
    assert runs.stderr.splitlines()[-1].endswith(
        f"ConfigError: run folder: {runs.run_folder} is in use by process {process.pid}. "
        "Wait for it to end, or choose another run folder."
    )
    # It left the record of the run that is at work alone.
    assert runs.record()["execution_id"] == before["execution_id"]
    process.terminate()
    assert process.wait(20) == 143


def test_a_run_that_is_ending_still_holds_its_folder_and_leaves_nothing_to_take_over(runs):
    process = runs.start(processing("Slow", ENDS_SLOWLY))
    runs.wait_for(is_at_work(runs))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    runs.wait_for(lambda: "stopping" in runs.stderr)
    refused = []
    while process.poll() is None:
        try:
            with RunLock(runs.run_folder, runs.lines.append):
                pass
        except ConfigError as error:
            refused.append(str(error))
        time.sleep(0.02)
    assert process.returncode == 130
    assert len(refused) > 5
    assert all(f"is in use by process {process.pid}." in line for line in refused)
    assert runs.run(processing("Other", "")).exit_code == 0
    assert not runs.lines


def test_the_lock_of_a_dead_process_is_taken_over_and_what_it_left_is_ended_a_line_each(runs):
    process = runs.start(processing("Slow", WAITS))
    runs.wait_for(is_at_work(runs))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert runs.run(processing("Other", "")).exit_code == 0
    # The worker, unlike launch.py, does not notice that the run is gone.
    assert runs.lines == [
        f"The run of process {process.pid} in {runs.run_folder} ended without cleaning up: taking it over",
        f"Ending 1 process that an earlier run in {runs.run_folder} left",
    ]
    assert runs.run(processing("Other", "")).exit_code == 0
    assert not runs.lines


HOLDS = """
import sys, time
from pathlib import Path
from pipeline.local.run_lock import RunLock
with RunLock(Path(sys.argv[1]), print):
    while not Path(sys.argv[2]).exists():
        time.sleep(0.02)
"""


def test_of_many_that_start_at_once_one_gets_the_folder(runs):
    go = runs.folder / "go"
    command = [sys.executable, "-c", HOLDS, str(runs.run_folder), str(go)]
    started = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    deadline = time.monotonic() + 60
    while sum(process.poll() is None for process in started) > 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    go.touch()
    errors = {process.pid: process.communicate(timeout=30)[1] for process in started}
    (holder,) = [process.pid for process in started if process.returncode == 0]
    refused = [text for number, text in errors.items() if number != holder]
    assert all(f"is in use by process {holder}." in text for text in refused)


# --- file systems and machines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, number):
    """The error of a network share is injected into the system call: no such share can be made here."""

    def refuse(stream, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError) as caught, RunLock(tmp_path / "run", print):
        pass
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: its file system keeps no locks ({os.strerror(number)}). Choose a folder on a local disk."
    )


def test_a_holder_on_another_machine_is_named_with_it(tmp_path):
    lock = FileLock(tmp_path / "lock")
    with lock:
        (tmp_path / "lock").write_text("77 elsewhere")
        with pytest.raises(LockHeldError) as caught:
            FileLock(tmp_path / "lock").acquire()
    assert caught.value.holder == "77 on elsewhere"


# --- leftovers --------------------------------------------------------------------------------------------------------


def test_half_written_files_of_dead_processes_are_cleared_and_no_others(runs):
    dead, alive = dead_process(), os.getppid()
    cleared = [f".execution.json.{dead}.7.tmp", f"executions/.a.json.{dead}.7.tmp", f"code/.b.zip.{dead}.tmp",
               f"definitions/.c.json.{dead}.7.tmp"]  # fmt: skip
    kept = [f".execution.json.{alive}.7.tmp", f"code/.b.zip.{alive}.tmp", "notes.tmp", f"outputs/.d.{dead}.7.tmp"]
    for name in [*cleared, *kept]:
        path = runs.run_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    assert runs.run(processing("First", "")).exit_code == 0
    assert [name for name in cleared if (runs.run_folder / name).exists()] == []
    assert [name for name in kept if (runs.run_folder / name).exists()] == kept


def test_outputs_half_sealed_and_checkpoints_set_aside_by_a_dead_run_are_cleared(runs):
    assert runs.run(processing("First", "(output / 'a.txt').write_text('a')")).exit_code == 0
    sealed = runs.files()
    aside = "s3/b/checkpoints/Train.before-0123456789ab"
    cleared = ["outputs/First/0123456789abcdef.new", aside, "outputs/Gone/0123456789abcdef.new"]
    kept = ["s3/b/checkpoints/Train", "s3/b/checkpoints/notes.before-the-move"]
    for name in [*cleared, *kept]:
        (runs.run_folder / name / "inside").mkdir(parents=True)
    assert runs.run(processing("Other", "")).exit_code == 0
    assert [name for name in cleared if (runs.run_folder / name).exists()] == []
    assert [name for name in kept if not (runs.run_folder / name / "inside").exists()] == []
    assert sealed.items() <= runs.files().items()


# --- the sample -------------------------------------------------------------------------------------------------------


def start_making(tmp_path):
    return subprocess.Popen(
        [sys.executable, "-c", MAKES_SAMPLE, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def folders_in(cache):
    return [path.name for path in cache.iterdir() if path.is_dir()]


def test_first_runs_at_once_make_the_sample_once(tmp_path):
    started = [start_making(tmp_path) for _ in range(3)]
    first = {process.pid: process.stdout.readline() for process in started}
    (maker,) = [number for number, line in first.items() if line.startswith("Making")]
    waiting = [line for number, line in first.items() if number != maker]
    assert waiting == [f"Waiting for process {maker}, which is making the sample's base model.\n"] * 2
    (tmp_path / "go").touch()
    folder = tmp_path / "cache" / f"sample-{sample_digest()[:16]}"
    assert [process.communicate(timeout=60)[0] for process in started] == [f"{folder} 20\n"] * 3
    assert (tmp_path / "made").read_text() == "made\n"
    assert folders_in(tmp_path / "cache") == [folder.name]


def test_where_the_maker_is_killed_the_one_that_waits_makes_it_and_clears_what_was_left(tmp_path):
    maker = start_making(tmp_path)
    assert maker.stdout.readline().startswith("Making")
    waiting = start_making(tmp_path)
    assert waiting.stdout.readline() == f"Waiting for process {maker.pid}, which is making the sample's base model.\n"
    while not (tmp_path / "made").exists():
        time.sleep(0.02)
    maker.kill()
    maker.wait()
    maker.stdout.close()
    (tmp_path / "go").touch()
    lines = waiting.communicate(timeout=60)[0].splitlines()
    assert lines[0].startswith("Making")
    assert lines[1].endswith(" 20")
    assert (tmp_path / "made").read_text() == "made\nmade\n"
    assert len(folders_in(tmp_path / "cache")) == 1


def test_leftovers_of_other_samples_go_only_where_nobody_makes_them(tmp_path):
    dead = dead_process()
    for name in ("sample-aaaa", "sample-bbbb"):
        (tmp_path / f".{name}.{dead}").mkdir()
    (tmp_path / f".sample-cccc.{os.getppid()}").mkdir()
    with FileLock(tmp_path / ".sample-bbbb.lock"):
        cached_sample(tmp_path, lambda texts, folder: Path(folder).mkdir())
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("."))
    assert left == sorted([f".sample-bbbb.{dead}", f".sample-cccc.{os.getppid()}"])


@pytest.mark.parametrize("content", [b"\xff\xfe\x00garbage", "٣ here".encode(), b"somebody else"])
def test_what_is_no_name_in_a_lock_names_nobody(tmp_path, content):
    (tmp_path / "lock").write_bytes(content)
    lock = FileLock(tmp_path / "lock")
    lock.acquire()
    assert lock.died_with_it == ""
    lock.release()
    assert (tmp_path / "lock").read_bytes() == b""
