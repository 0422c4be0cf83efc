"""The step's process: its command line, its variables, and the wait for its end."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
from pathlib import Path

from containers.failure_message import describe_end, write_message
from containers.host_devices import processes_per_host
from containers.job_configuration import Launch
from containers.launch_errors import LaunchError
from containers.memory_kills import memory_kills

DEFAULT_RENDEZVOUS_PORT = "7777"
WATCH_SECONDS = 0.5
# Between SIGTERM and SIGKILL the service gives a job so long; its workers have a little less.
STOP_GRACE_SECONDS, WORKERS_GRACE_SECONDS = 120, 115
# Kept for a step's last words before it starts: what fails it may be a full disk.
RESERVED_MESSAGE_BYTES = 4_096


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
