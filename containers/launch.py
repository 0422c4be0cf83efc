"""Starts a step inside a SageMaker container, or in a folder of the same shape on a laptop. Standard library only.

    python3 -m containers.launch [--step=NAME --field=value ...]

This package alone knows a SageMaker container's inside. It

  - reads /opt/ml/config (processing) or /opt/ml/input/config (training) for folders, settings and hosts; the variable
    OPT_ML names another root than /opt/ml
  - checks the code archive <sha256>.zip of the input `code` against its name and unpacks it
  - counts the GPUs, sets the network between several hosts up, and measures it (bandwidth_check.py)
  - runs `python -m steps.<step> --<input>=DIR ... --output=DIR --<field>=value`, under torchrun where a training job
    has more than one process
  - hands SIGTERM on, waits for the step, and ends with the step's exit code; ends the step where another host of the
    job is lost or has failed (host_connections.py)
  - says once a minute what a step does that tells no progress (heartbeat.py)
  - writes the one line of a failure to /opt/ml/output/message (processing) or /opt/ml/output/failure (training)

docs/containers.md lists the variables.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from containers.bandwidth_check import check_bandwidth, is_wanted
from containers.code_unpacking import check_step, unpack_code
from containers.failure_message import say, write_message
from containers.host_connections import Hosts, after_news
from containers.host_devices import check_gpus, processes_per_host
from containers.job_configuration import CONTAINER_ROOT, MESSAGE_FILES, OWN_FOLDER, Launch, job_kind, read_job
from containers.launch_errors import EXIT_BUG, EXIT_TERMINATED, EXIT_USER_ERROR, STOPPED_LINE, Ended, LaunchError
from containers.network_settings import network_line, network_variables
from containers.rendezvous import check_rendezvous
from containers.step_process import Watch, needs_torchrun, parent_process, run_step, step_environment
from containers.stop_signals import StopSignals

# What a full or read-only disk answers, which a person can mend.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)


def main(arguments: list[str]) -> int:
    """Runs the job and returns its exit code."""
    signals = StopSignals()
    signals.install()
    root = Path(os.environ.get("OPT_ML", CONTAINER_ROOT))
    kind = job_kind(root, arguments)
    ended = guarded(root, lambda: run_job(root, kind, arguments, signals))
    if ended.exit_code:
        tell(root / MESSAGE_FILES[kind], ended)
    return ended.exit_code


def guarded(root: Path, work: Callable[[], Ended]) -> Ended:
    """How the work ends, whatever it raises."""
    try:
        return work()
    except LaunchError as error:
        return Ended(EXIT_USER_ERROR, f"error: {error}")
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            return Ended(EXIT_BUG, f"error: {type(error).__name__}: {error}", traceback.format_exc())
        line = f"error: {error.filename or root}: {error.strerror}. Make space or name another place, then run again."
        return Ended(EXIT_USER_ERROR, line)
    except Exception as error:
        return Ended(EXIT_BUG, f"error: {type(error).__name__}: {error}", traceback.format_exc())


def tell(message: Path, ended: Ended) -> None:
    """Says why the job failed, in the log where the step has not, and where the service looks for it."""
    # The log may lie on the very disk that is full.
    with suppress(OSError):
        if not ended.is_told:
            print(ended.details or ended.line, file=sys.stderr, flush=True)
    write_message(message, ended.line)


def run_job(root: Path, kind: str, arguments: list[str], signals: StopSignals) -> Ended:
    """Reads the job and does this host's part of it. What fails it is told to the other hosts."""
    launch = read_job(root, kind, arguments)
    watch = Watch(signals, parent_process())
    if not launch.trains_together:
        return do_part(root, launch, watch)
    hosts = watch.hosts = Hosts(launch)
    ended = guarded(root, lambda: do_part(root, launch, watch))
    hosts.say_goodbye(ended)
    return ended


def do_part(root: Path, launch: Launch, watch: Watch) -> Ended:
    """This host's part: its code, its devices, the meeting with the others, and the step."""
    code_digest, code = unpack_code(launch.folders.pop("code", None), root / OWN_FOLDER)
    check_step(launch.step, code)
    if not launch.is_loopback:
        check_gpus(launch.instance_type)
    if watch.hosts is not None:
        say(network_line(launch, processes_per_host(), network_variables(launch), os.environ))
        watch.hosts.meet("start", None, watch.is_over)
    # With several hosts only now, so that the others hear of it.
    if needs_torchrun(launch, processes_per_host()) and not watch.is_over() and not watch.news():
        check_rendezvous(launch.hosts, launch.host_index)
    if watch.hosts is not None:
        if is_wanted(launch) and not watch.hosts.news and not watch.is_over():
            check_bandwidth(launch, root, step_environment(launch, code, code_digest), watch)
        if watch.hosts.news:
            # The step has not begun: what there is to say is the other host's.
            return after_news(Ended(EXIT_BUG), watch.hosts.news, False)
    if watch.is_over():
        return Ended(EXIT_TERMINATED, STOPPED_LINE)
    return run_step(launch, code, code_digest, watch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
