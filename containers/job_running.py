"""A job on this host, from its configuration to the step's end and the line of a failure."""

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
from containers.launch_errors import EXIT_BUG, EXIT_USER_ERROR, Ended, LaunchError
from containers.network_settings import network_line, network_variables
from containers.rendezvous import check_rendezvous
from containers.step_process import Watch, needs_torchrun, parent_process, run_step, step_environment
from containers.stop_signals import StopSignals

# What a disk answers that a person can mend, and how.
SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
ACCESS = (errno.EACCES, errno.EPERM)
IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EBUSY)


def run_to_its_end(arguments: list[str], signals: StopSignals) -> int:
    """Runs the job and returns its exit code."""
    # Absolute: the step has a folder of its own.
    root = Path(os.environ.get("OPT_ML") or CONTAINER_ROOT).absolute()
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
        if remedy := disk_remedy(error.errno):
            line = f"error: {error.filename or root}: {error.strerror}. {remedy}, then run again."
            return Ended(EXIT_USER_ERROR, line)
        return Ended(EXIT_BUG, f"error: {type(error).__name__}: {error}", traceback.format_exc())
    except Exception as error:
        return Ended(EXIT_BUG, f"error: {type(error).__name__}: {error}", traceback.format_exc())


def disk_remedy(number: int | None) -> str:
    """What a person can do about an error of the system, empty where that is nothing."""
    if number in ACCESS:
        return f"It cannot be read or written by user {os.geteuid()}: give that user access to it"
    if number in IN_THE_WAY:
        return "Remove what is in the way"
    return "Make space or name another place" if number in SPACE else ""


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
    if ended := ended_meanwhile(watch):
        return ended
    # With several hosts only now, so that the others hear of it.
    if needs_torchrun(launch, processes_per_host()):
        check_rendezvous(launch.hosts, launch.host_index)
    if is_wanted(launch):
        check_bandwidth(launch, root, step_environment(launch, code, code_digest), watch)
    return ended_meanwhile(watch) or run_step(launch, code, code_digest, watch)


def ended_meanwhile(watch: Watch) -> Ended | None:
    """How this host's part has ended before its step began, None where it goes on."""
    if news := watch.news():
        # What there is to say is the other host's.
        return after_news(Ended(EXIT_BUG), news, False)
    return watch.stopped()
