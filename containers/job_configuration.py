"""What a job's configuration files say: /opt/ml/config (processing), /opt/ml/input/config (training)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from containers.launch_errors import LaunchError

CONTAINER_ROOT = "/opt/ml"


@dataclass
class Launch:
    """What a job's configuration says. host_index counts from 0; `arguments` are the step's settings as flags."""

    kind: str
    step: str
    folders: dict[str, Path]
    arguments: list[str]
    host_index: int
    hosts: list[str]
    network_interface: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def read_processing(root: Path, arguments: list[str]) -> Launch:
    """A processing job: folders by name from its configuration, settings from the command line."""
    job = read_json(root / "config/processingjobconfig.json")
    resources = read_json(root / "config/resourceconfig.json")
    folders = {
        entry["InputName"]: below(root, entry["S3Input"]["LocalPath"])
        for entry in job.get("ProcessingInputs") or []
        if entry.get("S3Input")
    }
    for output in (job.get("ProcessingOutputConfig") or {}).get("Outputs", []):
        folders[output["OutputName"]] = below(root, output["S3Output"]["LocalPath"])
    steps = [word.removeprefix("--step=") for word in arguments if word.startswith("--step=")]
    settings = [word for word in arguments if not word.startswith("--step=")]
    hosts = sorted(resources["hosts"], key=host_number)
    host_index = hosts.index(resources["current_host"])
    if len(hosts) > 1:
        settings += [f"--instance_index={host_index}", f"--instance_count={len(hosts)}"]
    return Launch("processing", step_name(steps[0] if steps else None), folders, settings, host_index, hosts)


def read_training(root: Path) -> Launch:
    """A training job: channels are the folders, hyperparameters the step and its settings."""
    configuration = root / "input/config"
    hyperparameters = read_json(configuration / "hyperparameters.json")
    resources = read_json(configuration / "resourceconfig.json")
    channels = read_json(configuration / "inputdataconfig.json")
    folders = {name: root / "input/data" / name for name in channels}
    folders["output"] = root / "model"
    # There only where the job is given a place to keep checkpoints.
    if (root / "checkpoints").is_dir():
        folders["checkpoints"] = root / "checkpoints"
    step = step_name(hyperparameters.pop("step", None))
    settings = [f"--{name}={value}" for name, value in hyperparameters.items()]
    hosts = sorted(resources["hosts"], key=host_number)
    host_index = hosts.index(resources["current_host"])
    interface = resources.get("network_interface_name")
    # Where the service picks TensorBoard's events up.
    environment = {"LANGADAPT_TENSORBOARD": str(root / "output/tensorboard")}
    return Launch("training", step, folders, settings, host_index, hosts, interface, environment)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LaunchError(f"{path}: missing. Start this inside a job.") from error


def below(root: Path, path: str) -> Path:
    """A path of the container, moved to the root that this job has."""
    place = PurePosixPath(path)
    if not place.is_relative_to(CONTAINER_ROOT) or ".." in place.parts:
        raise LaunchError(f"local path: {path}; limit below {CONTAINER_ROOT}. Correct the job.")
    return root / place.relative_to(CONTAINER_ROOT)


def step_name(name: str | None) -> str:
    if name is None or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise LaunchError(f"step: {name!r}; limit a module's name. Give the job a setting `step`.")
    return name


def host_number(host: str) -> tuple[int, str]:
    """Sorts algo-2 before algo-10."""
    number = host.rpartition("-")[2]
    return (int(number) if number.isdigit() else 0, host)
