"""The launcher with a real tiny code archive: a step of a dozen lines stands for the work."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from containers.memory_kills import MEMORY_SETTINGS, memory_kill_places, memory_kills
from pipeline.local.environment import local_image
from steps.contract import faults

ROOT = Path(__file__).parents[2]
LAUNCH = list(local_image().command)
STEP = """
import json, os, signal, sys, time
words = dict(word[2:].split("=", 1) for word in sys.argv[1:])
seen = {"arguments": words, "code": os.environ["LANGADAPT_CODE_SHA256"], "rank": os.environ.get("RANK"),
        "world": os.environ.get("WORLD_SIZE"), "file": __file__,
        "tensorboard": os.environ.get("LANGADAPT_TENSORBOARD"), "modules": os.environ["HF_MODULES_CACHE"],
        "grace": os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]}
name = "seen.json" if "RANK" not in os.environ else "seen-" + os.environ["RANK"] + ".json"
open(os.path.join(words["output"], name), "w").write(json.dumps(seen))
def fail(line, code):
    open(os.environ["LANGADAPT_ERROR_FILE"], "w").write(json.dumps({"line": line, "exit_code": code}))
    sys.exit(code)
if "fails" in words:
    fail(words["fails"], int(words["exit_code"]))
if "hoards" in words:
    hoard = [b"x" * 1_000_000 for _ in range(int(words["hoards"]))]
if "dies" in words:
    os.kill(os.getpid(), signal.SIGKILL)
if "crashes" in words:
    raise RuntimeError("no contract yet")
if "waits" in words:
    signal.signal(signal.SIGTERM, lambda number, frame: fail("error: stopped by SIGTERM", 143))
    open(os.path.join(words["output"], "ready"), "w").close()
    time.sleep(60)
"""


class Container:
    """A folder in the shape of /opt/ml."""

    def __init__(self, root: Path) -> None:
        self.root = root / "opt" / "ml"

    def write(self, path: str, value) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(value))

    def code(self, folder: str, members=(("steps/__init__.py", ""), ("steps/tiny.py", STEP)), name=None) -> str:
        target = self.root / folder
        target.mkdir(parents=True)
        with zipfile.ZipFile(target / "archive", "w") as archive:
            for path, content in members:
                archive.writestr(path, content)
        digest = hashlib.sha256((target / "archive").read_bytes()).hexdigest()
        (target / "archive").rename(target / f"{name or digest}.zip")
        return digest

    def processing(self, hosts=("algo-1",), host="algo-1", **code) -> str:
        place = "/opt/ml/processing"
        self.write(
            "config/processingjobconfig.json",
            {
                "ProcessingInputs": [
                    {"InputName": name, "S3Input": {"S3Uri": f"s3://b/{name}", "LocalPath": f"{place}/input/{name}"}}
                    for name in ("corpus", "code")
                ],
                "ProcessingOutputConfig": {
                    "Outputs": [{"OutputName": "output", "S3Output": {"LocalPath": f"{place}/output"}}]
                },
            },
        )
        self.write("config/resourceconfig.json", {"current_host": host, "hosts": list(hosts)})
        (self.root / "processing/output").mkdir(parents=True)
        return self.code("processing/input/code", **code)

    def training(self, hosts=("algo-1",), host="algo-1", **hyperparameters) -> str:
        self.write("input/config/hyperparameters.json", {"step": "tiny", **hyperparameters})
        self.write("input/config/inputdataconfig.json", {"blocks": {}, "code": {}})
        resources = {"current_host": host, "hosts": list(hosts), "network_interface_name": "lo"}
        self.write("input/config/resourceconfig.json", resources)
        (self.root / "model").mkdir(parents=True)
        return self.code("input/data/code")

    def start(self, *arguments: str, before=None, **variables: str) -> subprocess.Popen:
        """before: called in the new process before it becomes launch.py."""
        environment = {"PATH": os.environ["PATH"], "OPT_ML": str(self.root), "OMP_NUM_THREADS": "1", **variables}
        return subprocess.Popen(
            [*LAUNCH, *arguments], env=environment, stderr=subprocess.PIPE, text=True,
            preexec_fn=before,
        )  # fmt: skip

    def launch(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def read(self, path: str):
        return json.loads((self.root / path).read_text())


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


def test_two_hosts_meet_on_loopback_and_flags_like_torchruns_own_reach_the_step(tmp_path, free_port):
    containers = [Container(tmp_path / host) for host in ("algo-1", "algo-2")]
    processes = []
    for container, host in zip(containers, ("algo-1", "algo-2"), strict=True):
        # --n and --log are ambiguous abbreviations of torchrun's own flags.
        container.training(hosts=["algo-1", "algo-2"], host=host, n="5", log="x")
        meeting = {"LANGADAPT_RENDEZVOUS_HOST": "127.0.0.1", "LANGADAPT_RENDEZVOUS_PORT": str(free_port)}
        processes.append(container.start(LANGADAPT_PROCESSES="1", **meeting))
    for process in processes:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors

    for rank, container in enumerate(containers):
        seen = container.read(f"model/seen-{rank}.json")
        assert (seen["rank"], seen["world"]) == (str(rank), "2")
        assert (seen["arguments"]["n"], seen["arguments"]["log"]) == ("5", "x")


@pytest.fixture
def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


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
