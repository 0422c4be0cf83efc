"""Starts a step inside a SageMaker container, or in a folder of the same shape on a laptop. Standard library only.

    python3 /opt/langadapt/launch.py [--step=NAME --field=value ...]

The only file that knows a SageMaker container's inside. It

  - reads /opt/ml/config (processing) or /opt/ml/input/config (training) for folders, settings and hosts; the variable
    OPT_ML names another root than /opt/ml
  - checks the code archive <sha256>.zip of the input `code` against its name and unpacks it
  - runs `python -m steps.<step> --<input>=DIR ... --output=DIR --<field>=value`, under torchrun where a training job
    has more than one process
  - hands SIGTERM on, waits for the step, and ends with the step's exit code
  - writes the one line of a failure to /opt/ml/output/message (processing) or /opt/ml/output/failure (training)

Variables: LANGADAPT_PROCESSES, processes of one host (default: one a GPU, at least one);
LANGADAPT_RENDEZVOUS_HOST and LANGADAPT_RENDEZVOUS_PORT, where several processes meet (default: the first host, 7777);
LANGADAPT_PARENT_PROCESS, the id of the process that starts this one, set where the step is to stop when that ends (a
laptop's run may be killed).
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

CONTAINER_ROOT = "/opt/ml"
EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 70, 130, 143
DEFAULT_RENDEZVOUS_PORT = "7777"
# The service shows this much of a failure.
LONGEST_MESSAGE_BYTES = 1_024
WATCH_SECONDS = 0.5
# Between SIGTERM and SIGKILL the service gives a job so long; its workers have a little less.
STOP_GRACE_SECONDS, WORKERS_GRACE_SECONDS = 120, 115
# An archive that unpacks to more than this is none of ours.
LARGEST_CODE_BYTES = 64 * 1024 * 1024
# Kept for a step's last words before it starts: what fails it may be a full disk.
RESERVED_MESSAGE_BYTES = 4_096
# What a full or read-only disk answers, which a person can mend.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
# Settings that memory grows with; a step that is killed for want of it is told those that it was given.
MEMORY_SETTINGS = ("device_batch_blocks", "batch_conversations", "batch_tokens", "max_training_bytes", "max_documents",
                   "max_tokens", "block_tokens")  # fmt: skip
# Where the kernel tells how much memory these processes may have: cgroup v2, v1.
CONTROL_GROUPS = "/sys/fs/cgroup"
# How often it killed a process of the whole machine for want of memory, other people's among them.
MACHINE_MEMORY_KILLS = "/proc/vmstat"


class LaunchError(Exception):
    """The job was put together wrongly; the text is the one line that a person sees."""


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


def main(arguments: list[str]) -> int:
    """Runs the job and returns its exit code."""
    root = Path(os.environ.get("OPT_ML", CONTAINER_ROOT))
    is_training = (root / "input/config/hyperparameters.json").is_file()
    message = root / ("output/failure" if is_training else "output/message")
    try:
        launch = read_training(root) if is_training else read_processing(root, arguments)
        code_digest, code = unpack_code(launch.folders.pop("code", None), root / "code")
        return run(launch, code, code_digest, message)
    except LaunchError as error:
        return fail(message, f"error: {error}", EXIT_USER_ERROR)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            return fail(message, f"error: {type(error).__name__}: {error}", EXIT_BUG, traceback.format_exc())
        line = f"error: {error.filename or root}: {error.strerror}. Make space or name another place, then run again."
        return fail(message, line, EXIT_USER_ERROR)
    except Exception as error:
        return fail(message, f"error: {type(error).__name__}: {error}", EXIT_BUG, traceback.format_exc())


def fail(message: Path, line: str, exit_code: int, details: str = "") -> int:
    """Leaves the line of a failure that is not the step's, and gives the exit code back."""
    # The log may lie on the very disk that is full.
    with suppress(OSError):
        print(details or line, file=sys.stderr, flush=True)
    write_message(message, line)
    return exit_code


# --- the job's configuration ------------------------------------------------------------------------------------------


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


# --- the step's code --------------------------------------------------------------------------------------------------


def unpack_code(folder: Path | None, target: Path) -> tuple[str, Path]:
    """The archive's sha256 and the folder that it was unpacked into. Raises LaunchError for a wrong or missing one."""
    if folder is None:
        raise LaunchError("code: no input of this name. Give the job the step's code archive.")
    archives = sorted(path for path in folder.rglob("*.zip") if path.is_file())
    if len(archives) != 1:
        raise LaunchError(f"code: {len(archives)} archives in {folder}; limit exactly 1. Name one archive.")
    archive, named = archives[0], archives[0].stem
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != named:
        raise LaunchError(f"code: {archive.name} has the sha256 {digest}. Upload the archive again.")
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    with zipfile.ZipFile(archive) as bundle:
        members = bundle.infolist()
        for member in members:
            check_member(member, archive)
        if sum(member.file_size for member in members) > LARGEST_CODE_BYTES:
            raise LaunchError(
                f"code: {archive.name} is too large; limit {LARGEST_CODE_BYTES} bytes unpacked. Rebuild it."
            )
        bundle.extractall(target)
    return digest, target


def check_member(member: zipfile.ZipInfo, archive: Path) -> None:
    """Refuses whatever would be written outside of the folder, and links."""
    path = PurePosixPath(member.filename)
    is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename or is_link:
        raise LaunchError(
            f"code: {archive.name} holds {member.filename!r}; limit paths inside it. Rebuild the archive."
        )


# --- the process ------------------------------------------------------------------------------------------------------


def command_line(launch: Launch, processes: int) -> list[str]:
    """The step's command, under torchrun where all hosts together have more than one training process."""
    folders = [f"--{name}={folder}" for name, folder in launch.folders.items()]
    step = [f"steps.{launch.step}", *folders, *launch.arguments]
    if launch.kind == "processing" or processes * len(launch.hosts) == 1:
        return [sys.executable, "-m", *step]
    host = os.environ.get("LANGADAPT_RENDEZVOUS_HOST", launch.hosts[0])
    port = os.environ.get("LANGADAPT_RENDEZVOUS_PORT", DEFAULT_RENDEZVOUS_PORT)
    return [
        sys.executable, "-m", "torch.distributed.run",
        f"--nnodes={len(launch.hosts)}", f"--node-rank={launch.host_index}", f"--nproc-per-node={processes}",
        "--rdzv-backend=static", f"--master-addr={host}", f"--master-port={port}",
        # Without `--` torchrun takes a step's flags for abbreviations of its own.
        "-m", "--", *step,
    ]  # fmt: skip


def processes_per_host() -> int:
    """LANGADAPT_PROCESSES, else one for each GPU, at least one."""
    if given := os.environ.get("LANGADAPT_PROCESSES"):
        if not given.isdigit() or int(given) < 1:
            raise LaunchError(f"LANGADAPT_PROCESSES: {given}; limit a whole number from 1. Change the variable.")
        return int(given)
    return max(1, len(glob.glob("/dev/nvidia[0-9]*")))


def step_environment(launch: Launch, code: Path, code_digest: str, error_file: Path) -> dict[str, str]:
    """The step's variables: where its code is and where its error goes; the network between several hosts."""
    environment = {**os.environ, **launch.environment}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH", "")]))
    environment["LANGADAPT_CODE_SHA256"] = code_digest
    environment["LANGADAPT_ERROR_FILE"] = str(error_file)
    environment["PYTHONUNBUFFERED"] = "1"
    # torchrun's own 30 s are too few for a large checkpoint.
    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(WORKERS_GRACE_SECONDS))
    # Where transformers copies a model's own code to: nothing of one job is left for another.
    environment["HF_MODULES_CACHE"] = str(code.parent / "remote-code")
    if len(launch.hosts) > 1 and launch.network_interface:
        environment.setdefault("NCCL_SOCKET_IFNAME", launch.network_interface)
        environment.setdefault("GLOO_SOCKET_IFNAME", launch.network_interface)
        if glob.glob("/dev/infiniband/uverbs*"):
            environment.setdefault("FI_PROVIDER", "efa")
    return environment


def run(launch: Launch, code: Path, code_digest: str, message: Path) -> int:
    """Starts the step, waits for it, and leaves its one line where the service looks for it."""
    error_file = code.parent / "error.json"
    error_file.write_bytes(b" " * RESERVED_MESSAGE_BYTES)
    kills_before = memory_kills()
    command = command_line(launch, processes_per_host())
    environment = step_environment(launch, code, code_digest, error_file)
    parent = parent_process()
    stopped: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def stop(number: int, frame: object) -> None:
        stopped.append(number)
        for process in child:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    # A terminal sends SIGINT to the step as well: it ends in its own way, and this process waits for it.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    child.append(subprocess.Popen(command, cwd=code, env=environment))
    if stopped:
        child[0].send_signal(signal.SIGTERM)
    ended = wait(child[0], parent)
    exit_code, line = describe_end(
        ended,
        error_file,
        was_stopped=bool(stopped),
        was_short=memory_kills() > kills_before,
        arguments=launch.arguments,
    )
    if exit_code:
        write_message(message, line)
    return exit_code


def parent_process() -> int | None:
    """The id in LANGADAPT_PARENT_PROCESS, None where no parent is watched.

    Not os.getppid(): where the parent ended before this line ran, that is already somebody else.
    """
    given = os.environ.get("LANGADAPT_PARENT_PROCESS")
    if given is None:
        return None
    if not given.isdigit():
        raise LaunchError(f"LANGADAPT_PARENT_PROCESS: {given}; limit the id of a process. Change the variable.")
    return int(given)


def wait(child: subprocess.Popen[bytes], parent: int | None) -> int:
    """The child's return code. Ends it where the process `parent` is not, or no more, the one that this belongs to."""
    while True:
        try:
            return child.wait(WATCH_SECONDS)
        except subprocess.TimeoutExpired:
            if parent is None or os.getppid() == parent:
                continue
        child.terminate()
        try:
            return child.wait(STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()


def describe_end(
    code: int, error_file: Path, *, was_stopped: bool, was_short: bool = False, arguments: Sequence[str] = ()
) -> tuple[int, str]:
    """Exit code and line of a step's end. What the step wrote itself comes first; a signal becomes 128 + its number.

    was_short: the kernel has killed a process for want of memory meanwhile. The error file is gone afterwards: its
    place on the disk is for the message.
    """
    words = error_file.read_text(encoding="utf-8", errors="replace").strip() if error_file.is_file() else ""
    error_file.unlink(missing_ok=True)
    if code == 0:
        return 0, ""
    with suppress(ValueError):
        written = json.loads(words)
        return int(written["exit_code"]), str(written["line"])
    if was_stopped:
        return EXIT_TERMINATED, "error: stopped by SIGTERM"
    if code == -signal.SIGKILL or (code > 0 and was_short):
        # torchrun ends with 1 whatever has ended its workers.
        return 128 + signal.SIGKILL, f"error: {memory_line(was_short, arguments)}"
    if code < 0:
        name = signal.Signals(-code).name
        exit_code = EXIT_INTERRUPTED if -code == signal.SIGINT else 128 - code
        return exit_code, f"error: killed by {name}; the log has what came before"
    # A step that ends by itself always says why: this one died before it could.
    return EXIT_BUG, f"error: ended with exit code {code} and no message; the log has the cause"


def memory_line(was_short: bool, arguments: Sequence[str]) -> str:
    """What to say of a step that SIGKILL ended. ru_maxrss, in KiB on Linux, is that of the largest process."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak, limit = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit, memory_limit()
    sizes = f"peak {peak / 1e9:.2f} GB; limit {limit / 1e9:.2f} GB"
    # The kernel does not count what other programs kill for want of memory, as systemd-oomd does: jobs that take much.
    if not was_short and peak * processes_per_host() < limit / 2:
        return f"killed (SIGKILL) from outside, not for want of memory: {sizes}. Give the same command again."
    certainty = "for want of memory" if was_short else "most likely for want of memory"
    given = [name for name in MEMORY_SETTINGS if any(word.startswith(f"--{name}=") for word in arguments)]
    lowered = f"Lower {' or '.join(given)}, or use" if given else "Use"
    return f"killed (SIGKILL), {certainty}: {sizes}. {lowered} a machine with more memory."


def memory_limit() -> int:
    """The memory that this job may use: the machine's, or its control group's where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in {place.parent for place in memory_kill_places()}:
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return min(limits)


def memory_kills(places: Iterable[Path] | None = None) -> int:
    """A count that grows when the kernel kills a process for want of memory; 0 where it does not tell.

    places: the first that tells counts; those of `memory_kill_places` where none are given.
    """
    for place in memory_kill_places() if places is None else places:
        found: list[str] = []
        with suppress(OSError):
            found = re.findall(r"^oom_kill (\d+)$", place.read_text(), re.MULTILINE)
        if found:
            return sum(map(int, found))
    return 0


def memory_kill_places(own_groups: Path = Path("/proc/self/cgroup"), root: Path = Path(CONTROL_GROUPS)) -> list[Path]:
    """Where the kernel counts such kills: in this process's control group, and for the whole machine where it has none.

    own_groups: rows of number, controllers and path. A container may show its own group at the root and tell a path
    that only the machine outside has.
    """
    places: list[Path] = []
    with suppress(OSError):
        for row in own_groups.read_text().splitlines():
            _, controllers, path = row.split(":", 2)
            if controllers == "":
                places += [root / path.strip("/") / "memory.events", root / "memory.events"]
            elif "memory" in controllers.split(","):
                of_memory = root / "memory"
                places += [of_memory / path.strip("/") / "memory.oom_control", of_memory / "memory.oom_control"]
    return [*places, Path(MACHINE_MEMORY_KILLS)]


def write_message(path: Path, line: str) -> None:
    """The line where the service reads a failure's reason, cut to what it shows."""
    content = " ".join(line.split()).encode()[:LONGEST_MESSAGE_BYTES]
    # Nothing more can be done on a disk that takes not even this: the exit code tells the kind of failure.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.decode(errors="ignore").encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
