"""Jobs of a local run, laid out anew as real copies and run in a container that sees nothing but /opt/ml."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Without a limit of its own runc asks for more than this kind of machine may give.
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
ENGINE = ("podman", "--runtime=runc", "--cgroup-manager=cgroupfs")
# What a job makes; all the rest of its tree is what the service lays out.
MADE_BY_THE_JOB = ("code", "output", "remote-code", "error.json", "progress", "all-reduce.json")


@dataclass(frozen=True)
class Ended:
    exit_code: int
    log: str
    seconds: float


class ContainerJob:
    """A folder in the shape of /opt/ml, as the service would have filled it for a step's job."""

    def __init__(self, root: Path, job: Path, user: int = 0) -> None:
        """job: /opt/ml of the same job on this machine.  user: who runs the container and owns the folder."""
        self.root, self.user, self.is_training = root, user, (job / "input/config").is_dir()
        # Links become what they point to: in a container there is no other place.
        shutil.copytree(job, root, ignore=lambda folder, names: {"checkpoints", *MADE_BY_THE_JOB} & set(names)
                        if Path(folder) == job else set())  # fmt: skip
        if self.is_training:
            (root / "checkpoints").mkdir()
        self.begin_another_attempt()

    def begin_another_attempt(self) -> None:
        """The tree as another instance gets it: nothing of what the job made but its checkpoints."""
        for made in (self.root / name for name in MADE_BY_THE_JOB):
            if made.exists():
                shutil.rmtree(made) if made.is_dir() else made.unlink()
        if self.output.is_dir():
            shutil.rmtree(self.output)
        for folder in (self.output, self.root / "output"):
            folder.mkdir(parents=True)
        self.give()

    def give(self) -> None:
        """Makes the user the owner of all that is there."""
        for place in (self.root, *self.root.rglob("*")):
            os.chown(place, self.user, self.user)

    @property
    def output(self) -> Path:
        return self.root / ("model" if self.is_training else "processing/output")

    @property
    def message(self) -> Path:
        return self.root / ("output/failure" if self.is_training else "output/message")

    def set_hyperparameters(self, **changed: Any) -> None:
        path = self.root / "input/config/hyperparameters.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))

    def arguments(self, *more: str) -> list[str]:
        """The command line after the image's name: `train`, or a processing job's own."""
        if self.is_training:
            return ["train", *more]
        job = json.loads((self.root / "config/processingjobconfig.json").read_text())
        return [*job["AppSpecification"]["ContainerArguments"], *more]

    def start(self, image: str, name: str, *more: str) -> subprocess.Popen[str]:
        closed = ["--network=none", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp", *LIMITS]
        who_and_where = [f"--user={self.user}:{self.user}", f"--volume={self.root}:/opt/ml"]
        command = [*ENGINE, "run", "--rm", "--pull=never", f"--name={name}", *closed, *who_and_where]
        command += [image, *self.arguments(*more)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, image: str, name: str, *more: str) -> Ended:
        began = time.monotonic()
        process = self.start(image, name, *more)
        log, _ = process.communicate()
        return Ended(process.returncode, log, time.monotonic() - began)

    def run_until(self, image: str, name: str, reached: Callable[[], bool], seconds: float = 180) -> Ended:
        """Stops the container as the service stops a job, SIGTERM and 120 s later SIGKILL, once `reached` holds."""
        began = time.monotonic()
        process = self.start(image, name)
        while not reached():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() - began < seconds, "not reached"
            time.sleep(0.1)
        stopped_at = time.monotonic()
        stop = subprocess.run([*ENGINE, "stop", "--time=120", name], capture_output=True, text=True)
        log, _ = process.communicate()
        assert stop.returncode == 0 or process.returncode is not None, stop.stderr
        return Ended(process.returncode, log, time.monotonic() - stopped_at)
