"""What a job's configuration files say: /opt/ml/config (processing), /opt/ml/input/config (training)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from containers.launch_errors import LaunchError
from containers.rendezvous import first_host
from containers.variables import whole_number

CONTAINER_ROOT = "/opt/ml"
# Where the service looks for a failure's line.
MESSAGE_FILES = {"processing": "output/message", "training": "output/failure"}
LOOPBACK_ADDRESSES = ("127.", "localhost", "::1")
# Below the root, the launcher's own: what it unpacks there replaces what was there.
OWN_FOLDER = "code"
TYPE_NAMES: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}


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
    instance_type: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """This host's name."""
        return self.hosts[self.host_index]

    @property
    def trains_together(self) -> bool:
        """True where this host is one of several that train one model."""
        return self.kind == "training" and len(self.hosts) > 1

    @property
    def is_loopback(self) -> bool:
        """True where the hosts are processes of one machine, such as a laptop."""
        by_interface = self.network_interface in ("lo", "lo0")
        return by_interface or first_host(self.hosts).startswith(LOOPBACK_ADDRESSES)

    @property
    def key(self) -> str:
        """What the hosts of this job have in common and a stranger's do not."""
        names = [os.environ.get(name, "") for name in ("TRAINING_JOB_ARN", "TRAINING_JOB_NAME")]
        return hashlib.sha256(json.dumps([*names, self.hosts, self.step]).encode()).hexdigest()


def job_kind(root: Path, arguments: list[str]) -> str:
    """processing or training. Where no configuration tells, the command line does: only processing jobs have one."""
    # Not Path's own question, which raises where the folder may not be looked into: reading it will say so.
    if os.path.isdir(root / "input/config"):
        return "training"
    return "processing" if os.path.isdir(root / "config") or arguments else "training"


def read_job(root: Path, kind: str, arguments: list[str]) -> Launch:
    """The job of this root. Raises LaunchError that names the file and what is wrong in it."""
    launch = read_training(root) if kind == "training" else read_processing(root, arguments)
    output = launch.folders.get("output")
    if output is not None:
        check_writable(output)
    return launch


def read_processing(root: Path, arguments: list[str]) -> Launch:
    """A processing job: folders by name from its configuration, settings from the command line."""
    path = root / "config/processingjobconfig.json"
    job = read_object(path)
    resources = root / "config/resourceconfig.json"
    hosts, host_index, _ = read_hosts(resources)
    folders: dict[str, Path] = {}
    for entry in optional(job, "ProcessingInputs", list, path) or []:
        if isinstance(entry, dict) and entry.get("S3Input") is None:
            continue
        add_folder(folders, root, entry, "InputName", "S3Input", path)
    outputs = optional(job, "ProcessingOutputConfig", dict, path) or {}
    for entry in optional(outputs, "Outputs", list, path) or []:
        add_folder(folders, root, entry, "OutputName", "S3Output", path)
    steps = [word.removeprefix("--step=") for word in arguments if word.startswith("--step=")]
    if len(steps) > 1:
        raise LaunchError(f"step: {', '.join(steps):.80}; limit one. Correct the job.")
    settings = [word for word in arguments if not word.startswith("--step=")]
    for word in settings:
        check_argument(word, folders)
    if len(hosts) > 1:
        settings += [f"--instance_index={host_index}", f"--instance_count={len(hosts)}"]
    return Launch("processing", step_name(steps[0] if steps else None), folders, settings, host_index, hosts)


def read_training(root: Path) -> Launch:
    """A training job: channels are the folders, hyperparameters the step and its settings."""
    configuration = root / "input/config"
    path = configuration / "hyperparameters.json"
    hyperparameters = read_object(path)
    hosts, host_index, resources = read_hosts(configuration / "resourceconfig.json")
    channels = read_object(configuration / "inputdataconfig.json")
    folders = {flag_name(name, configuration / "inputdataconfig.json"): root / "input/data" / name for name in channels}
    folders["output"] = root / "model"
    # There only where the job is given a place to keep checkpoints.
    if (root / "checkpoints").is_dir():
        folders["checkpoints"] = root / "checkpoints"
    step = step_name(hyperparameters.pop("step", None))
    settings = [setting(name, value, folders, path) for name, value in hyperparameters.items()]
    # Where the service picks TensorBoard's events up.
    environment = {"LANGADAPT_TENSORBOARD": str(root / "output/tensorboard")}
    interface, instance_type = (
        optional(resources, name, str, configuration / "resourceconfig.json")
        for name in ("network_interface_name", "current_instance_type")
    )
    return Launch("training", step, folders, settings, host_index, hosts, interface, instance_type, environment)


def read_hosts(path: Path) -> tuple[list[str], int, dict[str, Any]]:
    """The sorted hosts, this one's index, and all that the file says."""
    resources = read_object(path)
    hosts, current = required(resources, "hosts", list, path), required(resources, "current_host", str, path)
    if not hosts or not all(isinstance(host, str) and host for host in hosts):
        raise LaunchError(f"{path}, hosts: {hosts!r:.80}; limit a list of names. Correct the job.")
    if len(set(hosts)) != len(hosts):
        raise LaunchError(f"{path}, hosts: {hosts!r:.80}; limit each name once. Correct the job.")
    if current not in hosts:
        raise LaunchError(f"{path}, current_host: {current!r:.80}; limit one of {hosts!r:.80}. Correct the job.")
    hosts = sorted(hosts, key=host_number)
    return hosts, hosts.index(current), resources


def add_folder(folders: dict[str, Path], root: Path, entry: Any, name_key: str, place_key: str, path: Path) -> None:
    """Notes an input or output of a processing job by its name."""
    if not isinstance(entry, dict):
        raise LaunchError(f"{path}, {place_key}: {entry!r:.80}; limit an object. Correct the job.")
    name = flag_name(required(entry, name_key, str, path), path)
    if name in folders:
        raise LaunchError(f"{path}, {name_key}: {name} twice; limit each name once. Correct the job.")
    place = required(entry, place_key, dict, path)
    folders[name] = below(root, required(place, "LocalPath", str, path))


def check_argument(word: str, folders: Mapping[str, Path]) -> None:
    """Refuses a word of a processing job's command line that is no setting."""
    if word in ("-h", "--help"):
        raise LaunchError(f"arguments: {word}; limit settings, --name=value. Correct the job.")
    name = word.partition("=")[0].removeprefix("--")
    if word.startswith("--") and is_folder(name, folders):
        raise LaunchError(f"arguments: --{name} is a folder of this job; limit settings. Correct the job.")


def is_folder(name: str, folders: Mapping[str, Path]) -> bool:
    """True where a step would take a flag of this name for one of the job's folders: - and _ are alike to it."""
    return name.replace("-", "_") in {folder.replace("-", "_") for folder in folders}


def setting(name: str, value: Any, folders: Mapping[str, Path], path: Path) -> str:
    """A hyperparameter as a flag. The service gives texts alone."""
    if is_folder(flag_name(name, path), folders):
        raise LaunchError(f"{path}: {name} is a folder of this job; limit settings. Rename the hyperparameter.")
    if not isinstance(value, str):
        raise LaunchError(f"{path}, {name}: {value!r:.80}; limit a text. Put the value into quotation marks.")
    return f"--{name}={value}"


# --- files and values -------------------------------------------------------------------------------------------------


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises LaunchError in one line for whatever else lies there."""
    try:
        value = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=once_each)
        unfit = next((text for text in texts(value) if not can_be_told(text)), None)
    except FileNotFoundError as error:
        raise LaunchError(f"{path}: missing. Start this inside a job.") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise LaunchError(f"{path}: no file; limit a JSON file. Correct the job.") from error
    except UnicodeDecodeError as error:
        raise LaunchError(f"{path}: byte {error.start} is no UTF-8. Correct the job.") from error
    except (ValueError, RecursionError) as error:
        what = "empty" if not path.stat().st_size else f"no JSON ({str(error) or type(error).__name__})"
        raise LaunchError(f"{path}: {what}. Correct the job.") from error
    if unfit is not None:
        raise LaunchError(f"{path}: {unfit!r:.80}; limit characters that a command line takes. Correct the job.")
    if not isinstance(value, dict):
        raise LaunchError(f"{path}: {value!r:.80}; limit an object. Correct the job.")
    return value


def texts(value: Any) -> Iterator[str]:
    """All texts in a value of JSON, names among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from texts(part)


def can_be_told(text: str) -> bool:
    """Whether another process can be given a text: it holds no NUL, and no half of a character."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def once_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a name that is there twice: one of the values would be lost."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r:.80} twice")
        found[name] = value
    return found


def optional(values: Mapping[str, Any], name: str, kind: type, path: Path) -> Any:
    """A value of this kind, None where it is not there."""
    value = values.get(name)
    if value is not None and not isinstance(value, kind):
        raise LaunchError(f"{path}, {name}: {value!r:.80}; limit {TYPE_NAMES[kind]}. Correct the job.")
    return value


def required(values: Mapping[str, Any], name: str, kind: type, path: Path) -> Any:
    """A value of this kind. Raises LaunchError where it is not there."""
    value = optional(values, name, kind, path)
    if value is None:
        raise LaunchError(f"{path}, {name}: missing. Correct the job.")
    return value


def flag_name(name: str, path: Path) -> str:
    """A name that can be a flag of the step's command line."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise LaunchError(f"{path}, name: {name!r:.80}; limit letters, digits, - and _. Rename it.")
    return name


def below(root: Path, path: str) -> Path:
    """A path of the container, moved to the root that this job has."""
    place = PurePosixPath(path)
    if not place.is_relative_to(CONTAINER_ROOT) or ".." in place.parts or place == PurePosixPath(CONTAINER_ROOT):
        raise LaunchError(f"local path: {path:.200}; limit below {CONTAINER_ROOT}. Correct the job.")
    inside = place.relative_to(CONTAINER_ROOT)
    if inside.parts[0] == OWN_FOLDER:
        raise LaunchError(f"local path: {path:.200}; the launcher unpacks the step's code there. Name another place.")
    return root / inside


def check_writable(folder: Path) -> None:
    """Raises LaunchError where a job could not write its output: before hours of work, not after."""
    probe = folder / ".langadapt-probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except (FileExistsError, NotADirectoryError) as error:
        raise LaunchError(f"output: {folder} is a file; limit a folder. Correct the job.") from error
    except (PermissionError, FileNotFoundError) as error:
        what = f"{folder}: {error.strerror}"
        raise LaunchError(f"output: {what}; limit a folder that can be written. Correct the job.") from error


def step_name(name: Any) -> str:
    """A step's module. Raises LaunchError for what can be none."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise LaunchError(f"step: {name!r:.80}; limit a module's name. Give the job a setting `step`.")
    return name


def host_number(host: str) -> tuple[int, str]:
    """Sorts algo-2 before algo-10."""
    return (whole_number(host.rpartition("-")[2]) or 0, host)
