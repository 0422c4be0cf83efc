"""The step's process: its command line, its variables, and the watch over it until its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from containers.failure_message import describe_end, say
from containers.heartbeat import DEFAULT_HEARTBEAT_SECONDS, Heartbeat
from containers.host_connections import Hosts, News, after_news
from containers.host_devices import processes_per_host
from containers.job_configuration import Launch
from containers.launch_errors import INTERRUPTED, STOPPED, Ended, LaunchError
from containers.memory_kills import memory_kills
from containers.network_settings import network_variables
from containers.process_tree import end_tree, kill_tree
from containers.rendezvous import rendezvous_host, rendezvous_port
from containers.stop_signals import StopSignals
from containers.variables import seconds_variable, whole_number

WATCH_SECONDS = 0.5
# Between SIGTERM and SIGKILL the service gives a job so long; its workers have a little less.
STOP_GRACE_SECONDS, WORKERS_GRACE_SECONDS = 120, 115
# After another host's end a step can do no more than end: no checkpoint is written by some of the hosts.
NEWS_GRACE_SECONDS = 15.0
# A step that lost its peer may end before the launcher hears why.
NEWS_SECONDS = 10.0
# Kept for a step's last words before it starts: what fails it may be a full disk.
RESERVED_MESSAGE_BYTES = 4_096


@dataclass
class Watch:
    """What ends a job from outside: signals, the end of the process that started it, and other hosts' ends.

    parent: the id of the process that the job belongs to. hosts: None for a job of one host.
    """

    signals: StopSignals
    parent: int | None = None
    hosts: Hosts | None = None

    def is_over(self) -> bool:
        """True once a signal to end has come or the parent has gone."""
        return self.stopped() is not None

    def stopped(self) -> Ended | None:
        """How a job ends that is over, None where it is not."""
        if self.signals.came or self.has_lost_parent():
            return STOPPED
        return INTERRUPTED if self.signals.was_interrupted else None

    def has_lost_parent(self) -> bool:
        """True where the process `parent` is not, or no more, the one that started this."""
        return self.parent is not None and os.getppid() != self.parent

    def news(self) -> News | None:
        """What another host's end has brought."""
        if self.hosts is None:
            return None
        self.hosts.poll()
        return self.hosts.news


def parent_process() -> int | None:
    """The id in LANGADAPT_PARENT_PROCESS, None where no parent is watched.

    Not os.getppid(): where the parent ended before this line ran, that is already somebody else.
    """
    if not (given := os.environ.get("LANGADAPT_PARENT_PROCESS")):
        return None
    if (parent := whole_number(given)) is None:
        raise LaunchError(f"LANGADAPT_PARENT_PROCESS: {given:.80}; limit the id of a process. Change the variable.")
    return parent


# --- command line and variables ---------------------------------------------------------------------------------------


def needs_torchrun(launch: Launch, processes: int) -> bool:
    """True where all hosts together have more than one training process. processes: of each host."""
    return launch.kind == "training" and processes * len(launch.hosts) > 1


def torchrun(launch: Launch, processes: int) -> list[str]:
    """torchrun on this host, for so many processes on each."""
    return [
        sys.executable, "-m", "torch.distributed.run",
        f"--nnodes={len(launch.hosts)}", f"--node-rank={launch.host_index}", f"--nproc-per-node={processes}",
        "--rdzv-backend=static", f"--master-addr={rendezvous_host(launch.hosts)}", f"--master-port={rendezvous_port()}",
    ]  # fmt: skip


def command_line(launch: Launch, processes: int) -> list[str]:
    """The step's command, under torchrun where all hosts together have more than one training process."""
    folders = [f"--{name}={folder}" for name, folder in launch.folders.items()]
    step = [f"steps.{launch.step}", *folders, *launch.arguments]
    if not needs_torchrun(launch, processes):
        return [sys.executable, "-m", *step]
    # Without `--` torchrun takes a step's flags for abbreviations of its own.
    return [*torchrun(launch, processes), "-m", "--", *step]


def files_of_step(code: Path) -> tuple[Path, Path]:
    """Beside the code: where a step leaves its error, and what it touches when it gets on."""
    return code.parent / "error.json", code.parent / "progress"


def step_environment(launch: Launch, code: Path, code_digest: str) -> dict[str, str]:
    """The step's variables: where its code is and where its error goes; the network between several hosts."""
    error_file, progress_file = files_of_step(code)
    environment = {**os.environ, **launch.environment}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), environment.get("PYTHONPATH", "")]))
    environment["LANGADAPT_CODE_SHA256"] = code_digest
    environment["LANGADAPT_ERROR_FILE"] = str(error_file)
    environment["LANGADAPT_PROGRESS_FILE"] = str(progress_file)
    environment["PYTHONUNBUFFERED"] = "1"
    # torchrun's own 30 s are too few for a large checkpoint.
    environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(WORKERS_GRACE_SECONDS))
    # Where transformers copies a model's own code to: nothing of one job is left for another.
    environment["HF_MODULES_CACHE"] = str(code.parent / "remote-code")
    for name, value in network_variables(launch).items():
        environment.setdefault(name, value)
    return environment


# --- start, watch, end ------------------------------------------------------------------------------------------------


def run_step(launch: Launch, code: Path, code_digest: str, watch: Watch) -> Ended:
    """Starts the step, waits for it, and tells how it ended."""
    error_file, progress_file = files_of_step(code)
    error_file.write_bytes(b" " * RESERVED_MESSAGE_BYTES)
    progress_file.write_bytes(b"")
    kills_before = memory_kills()
    heartbeat = Heartbeat(
        launch.host, progress_file, seconds_variable("LANGADAPT_HEARTBEAT_SECONDS", DEFAULT_HEARTBEAT_SECONDS)
    )
    command = command_line(launch, processes_per_host())
    environment = step_environment(launch, code, code_digest)
    code_of_end, news = supervise(command, code, environment, watch, heartbeat=heartbeat)
    was_short = memory_kills() > kills_before
    ended = describe_end(
        code_of_end, error_file, stopped=watch.stopped(), was_short=was_short, arguments=launch.arguments
    )
    was_ended = news is not None
    if watch.hosts is not None and ended.exit_code and (was_ended or ended.is_consequence):
        news = watch.hosts.wait_for_news(NEWS_SECONDS, watch.is_over)
    return after_news(ended, news, was_ended and not watch.is_over())


def supervise(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    watch: Watch,
    *,
    heartbeat: Heartbeat | None = None,
    limit_seconds: float | None = None,
) -> tuple[int, News | None]:
    """Runs a process until it ends or is ended: its return code, and the news that ended it.

    limit_seconds: after that it is killed, with all that it started.
    """
    process = subprocess.Popen(list(command), cwd=folder, env=dict(environment))
    watch.signals.hand_to(process)
    began = time.monotonic()
    try:
        while True:
            try:
                return process.wait(WATCH_SECONDS), None
            except subprocess.TimeoutExpired:
                pass
            if watch.has_lost_parent():
                return end_tree(process, STOP_GRACE_SECONDS, is_told=watch.signals.came), None
            if (news := watch.news()) and not (news.is_stop and watch.signals.came):
                grace = STOP_GRACE_SECONDS if news.is_stop else NEWS_GRACE_SECONDS
                return end_tree(process, grace, is_told=watch.signals.came), news
            if limit_seconds is not None and time.monotonic() - began > limit_seconds:
                return kill_tree(process), None
            if heartbeat is not None and (line := heartbeat.look(process.pid)):
                say(line)
    finally:
        watch.signals.hand_to(None)
        if process.poll() is None:
            # Something failed in here: the step does not go on with nobody to watch it.
            kill_tree(process)
