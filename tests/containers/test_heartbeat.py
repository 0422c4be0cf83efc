"""The line that tells a silent step from a hung one, and who is counted."""

import os
import re
import subprocess
import sys
import time

import pytest
from container_tree import Container, wait_for

from containers.heartbeat import HEARTBEAT_PREFIX, Heartbeat, gpu_use
from containers.process_tree import tree, use_of
from pipeline.local.failure_lines import line_without_message
from pipeline.local.job_log import LogFollower
from steps.contract import note_progress, report, report_progress

# A child that computes for a while and writes 3 MB, and then sleeps as its parent does.
BUSY = """
import os, subprocess, sys, time
if sys.argv[1:]:
    until = time.process_time() + 0.6
    while time.process_time() < until: pass
    open(os.devnull, "wb").write(bytes(3_000_000))
    print("done", flush=True)
    time.sleep(60)
subprocess.run([sys.executable, __file__, "child"])
"""


@pytest.fixture
def busy(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    yield process
    for number in tree(process.pid):
        os.kill(number, 9)
    process.communicate()


def test_a_silent_step_is_told_with_what_its_processes_did(busy, tmp_path):
    beat = Heartbeat("algo-2", tmp_path / "progress", 0.3)
    assert beat.look(busy.pid) == ""
    assert busy.stdout.readline() == b"done\n"
    time.sleep(0.3)
    line = beat.look(busy.pid)
    print(line)
    found = re.fullmatch(
        r"heartbeat: algo-2: no progress told for \d+ s; in the last \d+ s 2 processes of the step used (\S+) s of "
        r"processor time, read \S+ MB \(\S+ MB from disk\) and wrote (\S+) MB; memory (\S+) GB.*", line,
    )  # fmt: skip
    assert found is not None
    assert float(found[1]) >= 0.5
    assert float(found[2]) >= 3.0
    assert 0.01 <= float(found[3]) < 1
    time.sleep(0.35)
    # Both only sleep now: that is what a hung step looks like.
    assert "used 0.0 s of processor time" in beat.look(busy.pid)


def test_no_line_while_the_step_gets_on_or_where_none_are_wanted(tmp_path, monkeypatch):
    progress = tmp_path / "progress"
    progress.write_bytes(b"")
    monkeypatch.setenv("LANGADAPT_PROGRESS_FILE", str(progress))
    beat, off = Heartbeat("algo-1", progress, 0.2), Heartbeat("algo-1", progress, 0)
    for tell in (lambda: report(step=1), lambda: report_progress(0, 9, "steps"), note_progress, note_progress):
        tell()
        assert beat.look(os.getpid()) == ""
        time.sleep(0.15)
    time.sleep(0.2)
    assert beat.look(os.getpid()).startswith(HEARTBEAT_PREFIX)
    assert off.look(os.getpid()) == off.look(os.getpid()) == ""
    monkeypatch.setenv("LANGADAPT_PROGRESS_FILE", str(tmp_path / "gone" / "progress"))
    report(step=2)


def test_a_job_prints_heartbeats(tmp_path):
    container = Container(tmp_path)
    container.processing()
    log = tmp_path / "log.txt"
    with log.open("w") as stream:
        launcher = container.start("--step=tiny", "--waits=1", LANGADAPT_HEARTBEAT_SECONDS="0.4", stdout=stream)
        wait_for(lambda: log.read_text().count(HEARTBEAT_PREFIX) >= 2)
        launcher.terminate()
        launcher.communicate(timeout=20)
    assert all(line.startswith("heartbeat: algo-1: no progress told for ") for line in log.read_text().splitlines())


def test_heartbeats_are_no_progress_and_no_cause_to_a_run(tmp_path):
    log = tmp_path / "log.txt"
    beat = "heartbeat: algo-1: no progress told for 60 s; in the last 60 s 1 processes of the step used 0.0 s\n"
    log.write_text(f"--- job-1 of run-7\nprogress: 3/9 steps\nmetrics: step=3\nOSError: gone\n{beat}launch: algo-1\n")
    follower = LogFollower(log, "run-7")
    follower.read()
    assert (follower.metric, follower.progress.done, follower.warnings) == ("step=3", 3, [])
    assert line_without_message(3, log) == "exit code 3: OSError: gone"


def test_gpus_are_told_where_a_program_tells_of_them(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu_use("no-such-program") == ""
    answers = {"two": "printf '98, 71234\\n0, 512\\n'", "odd": "echo '[N/A], [N/A]'", "failing": "exit 9"}
    for name, script in answers.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert gpu_use("two") == "; GPUs 98%, 0% busy, 71.7 GB held"
    assert gpu_use("odd") == gpu_use("failing").replace("failing", "odd") == "; GPUs: odd told nothing that can be read"


def test_use_counts_children_that_have_ended(tmp_path):
    before = use_of(os.getpid()).processor_seconds
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.4: pass"], check=True)
    assert use_of(os.getpid()).processor_seconds - before >= 0.35
