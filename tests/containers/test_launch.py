"""The launcher with a real tiny code archive: a step of a dozen lines stands for the work."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from container_tree import LAUNCH, STEP, Container, loopback_hosts, wait_for

from containers import failure_message
from containers.memory_kills import MEMORY_SETTINGS, memory_kill_places, memory_kills
from steps.contract import faults

ROOT = Path(__file__).parents[2]


@pytest.fixture
def container(tmp_path):
    return Container(tmp_path)


def test_a_processing_job_becomes_the_steps_command_line(container):
    digest = container.processing()

    assert container.launch("--step=tiny", '--text=it\'s, "quoted"', "--sizes=[1, 2]")[0] == 0
    seen = container.read("processing/output/seen.json")
    assert seen["arguments"] == {
        "corpus": str(container.root / "processing/input/corpus"),
        "output": str(container.root / "processing/output"),
        "text": 'it\'s, "quoted"',
        "sizes": "[1, 2]",
    }
    assert (seen["code"], seen["rank"]) == (digest, None)
    assert seen["file"] == str(container.root / "code/steps/tiny.py")


def test_as_the_image_starts_it_a_step_finds_its_own_code_first(container, tmp_path):
    container.processing()
    image = tmp_path / "opt/langadapt"
    shutil.copytree(ROOT / "containers", image / "containers", ignore=shutil.ignore_patterns("__pycache__"))
    (image / "steps").mkdir()
    (image / "steps/tiny.py").write_text("raise SystemExit('not the step that was sent')")
    environment = {"PATH": os.environ["PATH"], "OPT_ML": str(container.root), "PYTHONPATH": str(image)}
    command = [sys.executable, "-m", "containers.launch", "--step=tiny"]

    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert container.read("processing/output/seen.json")["file"] == str(container.root / "code/steps/tiny.py")


def test_an_instance_of_several_learns_its_place(container):
    container.processing(hosts=["algo-10", "algo-2", "algo-1"], host="algo-2")

    assert container.launch("--step=tiny")[0] == 0
    arguments = container.read("processing/output/seen.json")["arguments"]
    assert (arguments["instance_index"], arguments["instance_count"]) == ("1", "3")


def test_a_training_job_reads_hyperparameters_and_runs_without_torchrun_for_one_process(container):
    container.training(rate="0.1", text="it's")
    (container.root / "checkpoints").mkdir()

    assert container.launch(LANGADAPT_PROCESSES="1")[0] == 0
    seen = container.read("model/seen.json")
    assert seen["arguments"] == {
        "blocks": str(container.root / "input/data/blocks"), "output": str(container.root / "model"),
        "checkpoints": str(container.root / "checkpoints"), "rate": "0.1", "text": "it's",
    }  # fmt: skip
    assert seen["tensorboard"] == str(container.root / "output/tensorboard")
    assert Path(seen["modules"]).is_relative_to(container.root)
    # The service gives 120 s; torchrun would kill a checkpoint under way after 30.
    assert seen["grace"] == "115"


def test_two_hosts_meet_on_loopback_and_flags_like_torchruns_own_reach_the_step(tmp_path):
    meeting = loopback_hosts()
    containers = [Container(tmp_path / host) for host in ("algo-1", "algo-2")]
    processes = []
    for container, host in zip(containers, ("algo-1", "algo-2"), strict=True):
        # --n and --log are ambiguous abbreviations of torchrun's own flags.
        container.training(hosts=["algo-1", "algo-2"], host=host, n="5", log="x")
        processes.append(container.start(**meeting))
    for process in processes:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors

    for rank, container in enumerate(containers):
        seen = container.read(f"model/seen-{rank}.json")
        assert (seen["rank"], seen["world"]) == (str(rank), "2")
        assert (seen["arguments"]["n"], seen["arguments"]["log"]) == ("5", "x")


@pytest.mark.parametrize("code", [1, 70])
def test_the_steps_line_and_exit_code_are_kept(container, code):
    container.processing()
    line = "error: text: 3; limit 5. Add text."

    assert container.launch("--step=tiny", f"--fails={line}", f"--exit_code={code}")[0] == code
    assert (container.root / "output/message").read_text() == line


def test_a_training_failure_lies_where_the_service_looks_and_is_cut_to_its_limit(container):
    container.training(fails="ə" * 3_000, exit_code="1")

    assert container.launch()[0] == 1
    assert (container.root / "output/failure").read_text() == "ə" * 512


def test_a_killed_step_is_told_by_its_signal(container):
    container.processing()

    assert container.launch("--step=tiny", "--dies=1")[0] == 137
    line = (container.root / "output/message").read_text()
    assert line.startswith("error: killed (SIGKILL) from outside, not for want of memory: peak 0.0")
    assert line.endswith(" GB. Give the same command again.")


def test_a_step_that_is_killed_near_its_limit_had_most_likely_no_memory_left(container):
    container.processing()
    with memory_limit(120_000_000) as processes:
        started = container.start(
            "--step=tiny", "--hoards=70", "--dies=1", before=lambda: processes.write_text(str(os.getpid()))
        )
        started.communicate(timeout=60)
    line = (container.root / "output/message").read_text()
    assert line.startswith("error: killed (SIGKILL), most likely for want of memory: peak 0.")
    assert line.endswith(" GB. Use a machine with more memory.")


@contextmanager
def memory_limit(limit_bytes: int):
    """A control group of that much memory: gives the path that takes a process in. Skips where none can be made."""
    version_1 = Path("/sys/fs/cgroup/memory")
    group = (version_1 if version_1.is_dir() else version_1.parent) / f"langadapt-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
    try:
        group.mkdir()
        (group / limit).write_text(str(limit_bytes))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no memory limit can be set here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def test_a_step_that_the_kernel_kills_for_memory_is_told_so(container):
    container.processing()
    with memory_limit(120_000_000) as processes:
        started = container.start(
            "--step=tiny", "--hoards=400", "--batch_tokens=8", "--seed=0",
            before=lambda: processes.write_text(str(os.getpid())),
        )  # fmt: skip
        started.communicate(timeout=60)
    line = (container.root / "output/message").read_text()
    print(line)
    assert started.returncode == 137
    assert line.startswith("error: killed (SIGKILL), for want of memory: peak 0.1")
    assert line.endswith("Lower batch_tokens, or use a machine with more memory.")


@pytest.mark.parametrize(("rows", "place"), [
    ("0::/job", "job/memory.events"),
    # As a container without a name space for its groups tells it: the path is the machine's.
    ("0::/outside/job", "memory.events"),
    ("5:cpu:/\n4:blkio,memory:/job\n0::/", "memory/job/memory.oom_control"),
])  # fmt: skip
def test_kills_for_memory_are_counted_in_the_own_control_group(tmp_path, rows, place):
    """Of other processes of the machine many may be killed beside a step that fails of itself."""
    (tmp_path / "rows").write_text(rows + "\n")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("oom 9\noom_kill 3\n")
    assert memory_kills(memory_kill_places(tmp_path / "rows", tmp_path)) == 3


def test_the_settings_to_lower_are_those_that_the_steps_name():
    """The launcher is on its own in a container and cannot import them."""
    assert MEMORY_SETTINGS == faults.MEMORY_SETTINGS
    # How it knows that a step's failure is another's consequence.
    assert failure_message.LEFT_ALONE in (ROOT / "steps/modeling/parallel.py").read_text()


def test_kills_for_memory_are_the_machines_where_no_control_group_counts_them(tmp_path):
    assert memory_kill_places(tmp_path / "rows", tmp_path) == [Path("/proc/vmstat")]
    (tmp_path / "machine").write_text("oom_kill 5\n")
    assert memory_kills([tmp_path / "none", tmp_path / "machine"]) == 5
    assert memory_kills([tmp_path / "none"]) == 0


def test_a_step_that_dies_without_a_word_is_our_bug(container):
    container.processing()
    code, errors = container.launch("--step=tiny", "--crashes=1")

    assert code == 70
    assert "RuntimeError: no contract yet" in errors
    assert (container.root / "output/message").read_text().startswith("error: ended with exit code 1 and no message")


def test_sigterm_reaches_the_step_and_its_exit_code_comes_back(container):
    container.processing()
    process = container.start("--step=tiny", "--waits=1")
    wait_for(container.root / "processing/output/ready")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)

    assert process.returncode == 143
    assert (container.root / "output/message").read_text() == "error: stopped by SIGTERM"


def test_the_step_ends_when_the_process_that_started_launch_is_killed(container):
    container.processing()
    # A parent that starts launch.py and is killed, as a run on a laptop may be.
    script = (
        "import os, subprocess, sys; os.environ['LANGADAPT_PARENT_PROCESS'] = str(os.getpid()); "
        f"subprocess.run([*{LAUNCH!r}, '--step=tiny', '--waits=1'])"
    )
    environment = {"PATH": os.environ["PATH"], "OPT_ML": str(container.root)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    wait_for(container.root / "processing/output/ready")
    parent.kill()
    parent.wait()
    wait_for(container.root / "output/message")

    assert (container.root / "output/message").read_text() == "error: stopped by SIGTERM"


def test_the_step_ends_too_when_the_parent_was_gone_before_launch_looked(container):
    container.processing()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    code, _ = container.launch("--step=tiny", "--waits=1", LANGADAPT_PARENT_PROCESS=str(gone.pid))

    # Whether the step had its handler already or not.
    assert code == 128 + signal.SIGTERM
    (container.root / "output/message").unlink()
    code, errors = container.launch("--step=tiny", LANGADAPT_PARENT_PROCESS="nobody")
    assert code == 1
    assert "error: LANGADAPT_PARENT_PROCESS: nobody; limit the id of a process." in errors


def test_the_step_goes_on_while_its_parent_lives(container):
    container.processing()
    process = container.start("--step=tiny", "--waits=1", LANGADAPT_PARENT_PROCESS=str(os.getpid()))
    wait_for(container.root / "processing/output/ready")
    time.sleep(0.8)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


# --- the code archive -------------------------------------------------------------------------------------------------


def test_an_archive_whose_content_is_not_its_name_is_refused(container):
    digest = container.processing(name="0" * 64)
    code, errors = container.launch("--step=tiny")

    assert code == 1
    assert f"error: code: {'0' * 64}.zip has the sha256 {digest}. Upload the archive again." in errors
    assert not (container.root / "code").exists()


@pytest.mark.parametrize("path", ["../evil.py", "/evil.py", "steps/../../evil.py", "steps\\..\\evil.py", "C:evil.py"])
def test_paths_that_leave_the_folder_are_refused(container, path):
    container.processing(members=[("steps/tiny.py", STEP), (path, "print('evil')")])
    code, errors = container.launch("--step=tiny")

    assert code == 1
    assert "limit paths inside" in errors
    assert list((container.root / "code").iterdir()) == []


def test_two_archives_a_missing_one_and_a_strange_step_are_refused(container):
    container.processing()
    (container.root / "processing/input/code/second.zip").write_bytes(b"")
    assert "error: code: 2 archives in " in container.launch("--step=tiny")[1]
    for archive in (container.root / "processing/input/code").iterdir():
        archive.unlink()
    assert "error: code: 0 archives in " in container.launch("--step=tiny")[1]
    assert "error: step: '../tiny'; limit a module's name." in container.launch("--step=../tiny")[1]
    assert "error: step: None" in container.launch()[1]
