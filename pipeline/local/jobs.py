"""Processing and training jobs on this machine: a folder in the shape of /opt/ml for each instance, and processes.

A job's tree is RUN/jobs/<step>/<key>/, with log.txt and opt/ml in it (algo-1/opt/ml, algo-2/opt/ml ... for several
instances), laid out with the files that the service writes: config/processingjobconfig.json and resourceconfig.json,
or input/config/hyperparameters.json, inputdataconfig.json and resourceconfig.json. The process gets the tree's place
in the variable OPT_ML; where its command, its environment or its hyperparameters name /opt/ml, they name that place.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pipeline.local.archives import pack
from pipeline.local.cache import all_files
from pipeline.local.failure_lines import line_without_message, with_own_paths
from pipeline.local.images import LocalImage, at_root, job_command
from pipeline.local.input_files import input_files
from pipeline.local.job_log import ATTEMPT_PREFIX
from pipeline.local.job_spec import OPT_ML, JobInput, JobSpec
from pipeline.local.orphans import PROCESSES_NAME
from pipeline.local.processes import (
    POLL_SECONDS,
    ROOT_VARIABLE,
    STOP_GRACE_SECONDS,
    end_all,
    job_processes,
    kill_all,
    record_processes,
    wait_until,
)
from pipeline.local.uri_folders import UriFolders
from steps.contract import ConfigError

# Taken over from the caller where set: what a process needs to start at all, and what chooses a GPU.
INHERITED_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")


class TimeLimitError(Exception):
    """An attempt went on for longer than it may, and was ended. Both in seconds."""

    def __init__(self, ran_seconds: float, limit_seconds: float) -> None:
        self.ran_seconds, self.limit_seconds = ran_seconds, limit_seconds
        # Rounded up: it is above the limit, and reads so.
        super().__init__(f"ran {math.ceil(ran_seconds * 10) / 10:,.1f} s; limit {limit_seconds:,.0f} s")


class Job:
    """One job in its folder: lay out, run, and find what it left."""

    def __init__(
        self, spec: JobSpec, folder: Path, image: LocalImage, uris: UriFolders, environment: Mapping[str, str]
    ) -> None:
        self.spec, self.folder, self.image, self._uris, self._environment = spec, folder, image, uris, environment
        self.hosts = [f"algo-{number + 1}" for number in range(spec.instance_count)]
        self.log = folder / "log.txt"

    def root(self, host: str) -> Path:
        """This instance's /opt/ml."""
        return self.folder / "opt/ml" if len(self.hosts) == 1 else self.folder / host / "opt/ml"

    def place(self, host: str, path: str) -> Path:
        """Where a path of the container lies for one instance."""
        if path != OPT_ML and not path.startswith(f"{OPT_ML}/"):
            remedy = "Place inputs and outputs below /opt/ml."
            raise ConfigError(f"{self.spec.step}, local path", path, limit=f"below {OPT_ML}", remedy=remedy)
        return self.root(host) / path[len(OPT_ML) :].strip("/")

    def lay_out(self) -> None:
        """A fresh tree: what an earlier attempt left half-written goes, the log and synced folders stay."""
        for host in self.hosts:
            if self.root(host).exists():
                shutil.rmtree(self.root(host))
            self.root(host).mkdir(parents=True)
            for entry in self.spec.inputs:
                self._link_input(host, entry)
            for output in self.spec.outputs:
                self.place(host, output.local_path).mkdir(parents=True, exist_ok=True)
            for folder in self.spec.synced:
                kept = self._uris.find(folder.uri)
                kept.mkdir(parents=True, exist_ok=True)
                _link(self.place(host, folder.local_path), kept)
            self._write_configuration(host)

    def _link_input(self, host: str, entry: JobInput) -> None:
        target = self.place(host, entry.local_path)
        files = list(input_files(entry, self._uris, f"{self.spec.step}, input {entry.name}").items())
        # Folders are real and files are links: a step that walks through its inputs sees them as in a container, and
        # a file that it adds does not get into what it reads from.
        if entry.sharded:
            files = files[self.hosts.index(host) :: len(self.hosts)]
        target.mkdir(parents=True, exist_ok=True)
        for name, file in files:
            _link(target / name, file)

    def _write_configuration(self, host: str) -> None:
        spec, root = self.spec, self.root(host)
        resources: dict[str, Any] = {"current_host": host, "hosts": self.hosts}
        if spec.kind == "Processing":
            request = {"ProcessingJobName": spec.job_name, **spec.request}
            _write(root / "config/processingjobconfig.json", request)
            _write(root / "config/resourceconfig.json", resources)
            return
        group = {"instance_group_name": "homogeneousCluster", "instance_type": spec.instance_type, "hosts": self.hosts}
        resources |= {
            "current_instance_type": spec.instance_type, "current_group_name": "homogeneousCluster",
            "instance_groups": [group], "network_interface_name": "lo0" if sys.platform == "darwin" else "lo",
        }  # fmt: skip
        settings = {name: at_root(value, root) for name, value in spec.hyperparameters.items()}
        _write(root / "input/config/resourceconfig.json", resources)
        _write(root / "input/config/hyperparameters.json", settings)
        _write(root / "input/config/inputdataconfig.json", {entry.name: entry.channel for entry in spec.inputs})

    def run(
        self, stop: threading.Event, kill: threading.Event | None = None, limit_seconds: float | None = None
    ) -> int:
        """Runs the processes of all instances and waits; when it returns, none of the job's processes is left.

        Returns 0, or the exit code of the first that failed, negative for the signal that killed it. `stop` ends
        them with SIGTERM, and after 45 s with SIGKILL; `kill` with SIGKILL at once.
        Raises TimeLimitError where they ran longer than limit_seconds, once they are ended as by `stop`.
        """
        ports = _free_ports(2)
        processes: list[subprocess.Popen[bytes]] = []
        began = time.monotonic()
        with self.log.open("a") as log:
            log.write(f"{ATTEMPT_PREFIX}{self.spec.job_name} {time.strftime('%Y-%m-%dT%H:%M:%S')}\n")
            log.flush()
            try:
                for host in self.hosts:
                    processes.append(self._start(host, ports, log))
                record_processes(self.folder / PROCESSES_NAME, [process.pid for process in processes])
                return _wait(processes, stop, began, limit_seconds)
            finally:
                self._end(processes, kill)

    def _start(self, host: str, ports: list[int], log: TextIO) -> subprocess.Popen[bytes]:
        root = self.root(host)
        command = [at_root(word, root) for word in job_command(self.spec, self.image)]
        environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        environment |= {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
        own = {name: at_root(value, root) for name, value in self.spec.environment.items()}
        environment |= {**self._environment, **own}
        environment |= {
            ROOT_VARIABLE: str(root), "LANGADAPT_PARENT_PROCESS": str(os.getpid()),
            "LANGADAPT_RENDEZVOUS_HOST": "127.0.0.1", "LANGADAPT_RENDEZVOUS_PORT": str(ports[0]),
            "LANGADAPT_HOSTS_PORT": str(ports[1]),
        }  # fmt: skip
        try:
            return subprocess.Popen(
                command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError) as error:
            remedy = "Map the image to a command that exists."
            raise ConfigError(f"{self.spec.step}, command", command[0], remedy=remedy) from error

    def _end(self, processes: list[subprocess.Popen[bytes]], kill: threading.Event | None) -> None:
        """Ends those that still run, SIGTERM first, so that a step may write a checkpoint; then what they left behind.

        A launcher that was killed leaves its step, and torchrun its workers: none may go on beside the next attempt.
        """

        def hurry() -> bool:
            return kill is not None and kill.is_set()

        def find() -> dict[int, str]:
            roots = [str(self.root(host)) for host in self.hosts]
            return job_processes([process.pid for process in processes], roots)

        for process in processes:
            if process.poll() is None:
                process.terminate()
        wait_until(lambda: hurry() or all(process.poll() is not None for process in processes), STOP_GRACE_SECONDS)
        if any(process.poll() is None for process in processes):
            kill_all(find)
        for process in processes:
            process.wait()
        end_all(find, STOP_GRACE_SECONDS, hurry)

    def output_folders(self) -> dict[str, list[Path]]:
        """The folders of each output, one an instance; an optional one that is empty is left out.

        An output that leaves as an archive is packed, and has the folder with the archive in it.
        """
        outputs: dict[str, list[Path]] = {}
        for output in self.spec.outputs:
            folders = [self.place(host, output.local_path) for host in self.hosts]
            if output.is_optional and not any(all_files(folder) for folder in folders):
                continue
            if output.archive:
                packed = self.folder / "archives" / output.name
                pack(folders, packed / output.archive, f"{self.spec.step}, output {output.name}")
                folders = [packed]
            outputs[output.name] = folders
        return outputs

    def failure_line(self, code: int) -> str:
        """Why the job failed, in one line with the user's own paths: its message, else the last line of its log."""
        name = "output/message" if self.spec.kind == "Processing" else "output/failure"
        for host in self.hosts:
            path = self.root(host) / name
            if path.is_file() and (text := " ".join(path.read_text(encoding="utf-8", errors="replace").split())):
                return with_own_paths(text, self._own_paths())
        return with_own_paths(line_without_message(code, self.log), self._own_paths())

    def _own_paths(self) -> dict[Path, Path]:
        """What the places of inputs in this job's tree stand for."""
        places: dict[Path, Path] = {}
        for host in self.hosts:
            for entry in self.spec.inputs:
                source, place = self._uris.find(entry.uri), self.place(host, entry.local_path)
                if entry.is_manifest:
                    continue
                places[place] = source
                if source.is_file():
                    places[place / source.name] = source
        return places


def _wait(
    processes: list[subprocess.Popen[bytes]], stop: threading.Event, began: float, limit_seconds: float | None
) -> int:
    while True:
        codes = [process.poll() for process in processes]
        failed = next((code for code in codes if code), None)
        if failed is not None:
            return failed
        if all(code == 0 for code in codes):
            return 0
        # The monotonic clock: a step is not ended because somebody sets the time.
        seconds = time.monotonic() - began
        if limit_seconds is not None and seconds > limit_seconds:
            raise TimeLimitError(seconds, limit_seconds)
        if stop.wait(POLL_SECONDS):
            return -signal.SIGTERM


def _link(target: Path, source: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.resolve())


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _free_ports(count: int) -> list[int]:
    """That many ports, each another: all are held before one is let go."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
