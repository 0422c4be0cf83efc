"""ContinuedPretraining as a training job: its real code in an archive, a tiny model, and the launcher started on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from container_tree import LAUNCH, kill_host, loopback_hosts, wait_for
from small_pretraining import SETTINGS, PretrainingInputs

from containers.process_tree import tree
from pipeline.code_archive import STEPS_FOLDER, code_archive
from steps.contract import write_json

# Without end for what is stopped in the middle of; each step takes some hundredths of a second.
ENDLESS = {"phase_1_steps": 4, "phase_2_steps": 100_000, "validate_every_steps": 100_000, "checkpoint_every_steps": 25}


class LaunchedJob:
    """A job of one or more hosts on this machine, which keep their checkpoints in one folder.

    steps: the package that the code comes from.
    """

    def __init__(
        self, folder: Path, inputs: PretrainingInputs, hosts: int = 1, steps: Path = STEPS_FOLDER, **settings: Any
    ) -> None:
        self.folder, self.hosts = folder, [f"algo-{number + 1}" for number in range(hosts)]
        self.checkpoints = folder / "checkpoints"
        self.launchers: list[subprocess.Popen] = []
        self._known: set[int] = set()
        archive = code_archive("continued_pretraining", steps)
        values = {"step": "continued_pretraining", **SETTINGS, **settings}
        for host in self.hosts:
            root = self.root(host)
            resources = {"current_host": host, "hosts": self.hosts, "network_interface_name": "lo"}
            for name, content in (
                ("hyperparameters", {name: str(value) for name, value in values.items()}),
                ("resourceconfig", resources), ("inputdataconfig", {"model": {}, "blocks": {}, "code": {}}),
            ):  # fmt: skip
                (root / "input/config").mkdir(parents=True, exist_ok=True)
                write_json(root / f"input/config/{name}.json", content)
            (root / "input/data/code").mkdir(parents=True)
            (root / f"input/data/code/{archive.digest}.zip").write_bytes(archive.content)
            (root / "input/data/model").symlink_to(inputs.model)
            (root / "input/data/blocks").symlink_to(inputs.blocks)
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            (root / "checkpoints").symlink_to(self.checkpoints)

    def root(self, host: str) -> Path:
        return self.folder / host / "opt/ml"

    def start(self, **variables: str) -> None:
        """Another attempt: what the last one left behind goes, its checkpoints stay."""
        meeting = loopback_hosts(**variables)
        self.launchers = []
        for host in self.hosts:
            root = self.root(host)
            for made in ("model", "output", "code"):
                shutil.rmtree(root / made, ignore_errors=True)
            (root / "model").mkdir()
            environment = {"PATH": os.environ["PATH"], "OPT_ML": str(root), "OMP_NUM_THREADS": "1", **meeting}
            with self.log_file(host).open("w") as log:
                self.launchers.append(
                    subprocess.Popen(LAUNCH, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)
                )

    def log_file(self, host: str) -> Path:
        return self.folder / f"{host}.log"

    def log(self, host: str = "algo-1") -> str:
        return self.log_file(host).read_text(errors="replace")

    def message(self, host: str = "algo-1") -> str:
        return (self.root(host) / "output/failure").read_text()

    def steps_told(self) -> list[int]:
        """The steps of this attempt that a line of metrics tells of."""
        return [int(step) for step in re.findall(r"^metrics: step=(\d+) phase", self.log(), re.MULTILINE)]

    def resumed_from(self) -> int:
        found = re.search(r"^going on from the checkpoint of step (\d+)$", self.log(), re.MULTILINE)
        return int(found[1]) if found else 0

    def wait_for_training(self, text: str = "phase=2 ", seconds: float = 180) -> None:
        def is_there() -> bool:
            assert all(launcher.poll() is None for launcher in self.launchers), "".join(map(self.log, self.hosts))
            return text in self.log()

        wait_for(is_there, seconds)
        self._known |= {number for launcher in self.launchers for number in tree(launcher.pid)}

    def wait(self, seconds: float = 300) -> list[int]:
        return [launcher.wait(seconds) for launcher in self.launchers]

    def processes(self, index: int) -> list[int]:
        """Those of one host, the launcher first."""
        return tree(self.launchers[index].pid)

    def clean_up(self) -> None:
        """Ends all that an attempt may have left, processes that are nobody's children too."""
        for launcher in self.launchers:
            if launcher.poll() is None:
                kill_host(launcher)
                launcher.wait()
        send_all([number for number in self._known if is_of(number, self.folder)], 9)


def is_of(number: int, folder: Path) -> bool:
    """Whether a process was started for a job in this folder."""
    try:
        return str(folder).encode() in Path(f"/proc/{number}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def send_all(numbers: Sequence[int], signal_number: int) -> None:
    for number in numbers:
        try:
            os.kill(number, signal_number)
        except ProcessLookupError:
            continue
