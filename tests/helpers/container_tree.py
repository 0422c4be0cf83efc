"""A folder in the shape of /opt/ml, a step of some lines in its code archive, and the launcher started on it."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from containers.process_tree import tree
from pipeline.local.environment import local_image

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
if "counts_stops" in words:
    stops = []
    signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
    open(os.path.join(words["output"], "ready"), "w").close()
    while not stops:
        time.sleep(0.05)
    # As a checkpoint that is being written.
    until = time.monotonic() + float(words["counts_stops"])
    while time.monotonic() < until:
        time.sleep(0.05)
    fail(f"error: stopped by SIGTERM {len(stops)} times", 143)
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

    def start(self, *arguments: str, before=None, stdout=None, wrapped_in=(), **variables: str) -> subprocess.Popen:
        """before: called in the new process before it becomes the launcher. wrapped_in: a command that starts it."""
        environment = {"PATH": os.environ["PATH"], "OPT_ML": str(self.root), "OMP_NUM_THREADS": "1", **variables}
        return subprocess.Popen(
            [*wrapped_in, *LAUNCH, *arguments], env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
            preexec_fn=before,
        )  # fmt: skip

    def launch(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def read(self, path: str):
        return json.loads((self.root / path).read_text())


def kill_host(launcher: subprocess.Popen) -> None:
    """SIGKILL to a launcher and all that it has started, at once."""
    for number in tree(launcher.pid):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def interrupt_as_the_service(launchers, grace_seconds: float = 120) -> list[int]:
    """What managed spot does to a job's containers: SIGTERM, so many seconds, SIGKILL to all that is left.

    launchers: those of all hosts. Gives their return codes; -9 for those that had to be killed.
    """
    for launcher in launchers:
        launcher.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(launcher.poll() is None for launcher in launchers) and time.monotonic() < deadline:
        time.sleep(0.05)
    for launcher in launchers:
        if launcher.poll() is None:
            kill_host(launcher)
    return [launcher.wait(30) for launcher in launchers]


def wait_for(condition, seconds=30) -> None:
    """condition: a path that is to appear, or what is to become true."""
    deadline = time.monotonic() + seconds
    while not (condition.exists() if isinstance(condition, Path) else condition()):
        assert time.monotonic() < deadline, f"{condition} never came"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def loopback_hosts(**more: str) -> dict[str, str]:
    """Variables with which hosts meet that are processes of this machine."""
    ports = free_ports(2)
    return {
        "LANGADAPT_PROCESSES": "1", "LANGADAPT_RENDEZVOUS_HOST": "127.0.0.1",
        "LANGADAPT_RENDEZVOUS_PORT": str(ports[0]), "LANGADAPT_HOSTS_PORT": str(ports[1]), **more,
    }  # fmt: skip
