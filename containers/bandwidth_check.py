"""Whether the hosts of a training job reach each other fast enough: an all-reduce over all of them before the step.

A wrong security group or a missing EFA driver makes NCCL fall back to TCP without a word, and a job of days many times
longer. containers/all_reduce_check.py measures; here it is decided whether to, started, and judged: every host gets
every host's figure and comes to the same verdict.

LANGADAPT_ALL_REDUCE_CHECK: auto (several hosts that are no processes of one machine), on, off.
LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND: in place of the table's; 0 measures and refuses nothing.
LANGADAPT_ALL_REDUCE_SECONDS: the check's time limit, 300.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from containers.failure_message import say
from containers.host_devices import processes_per_host
from containers.instance_types import INSTANCE_TYPES
from containers.job_configuration import Launch
from containers.launch_errors import LaunchError
from containers.network_settings import LAUNCH_PREFIX
from containers.step_process import Watch, supervise, torchrun
from containers.variables import seconds_variable

SWITCH = "LANGADAPT_ALL_REDUCE_CHECK"
FLOOR = "LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND"
LIMIT = "LANGADAPT_ALL_REDUCE_SECONDS"
DEFAULT_LIMIT_SECONDS = 300.0
REMEDIES = (
    "See that the security group allows all traffic to itself both ways, that the image has the EFA driver's libraries "
    f"and that the hosts are in one zone; {SWITCH}=off leaves this check out."
)


def is_wanted(launch: Launch) -> bool:
    """Whether to check this job's network."""
    switch = os.environ.get(SWITCH, "auto")
    if switch not in ("auto", "on", "off"):
        raise LaunchError(f"{SWITCH}: {switch}; limit auto, on or off. Change the variable.")
    return launch.trains_together and switch != "off" and (switch == "on" or not launch.is_loopback)


def floor_gb_per_second(launch: Launch) -> float:
    """What is refused below: the variable's, else the table's for this type; 0 where neither tells."""
    known = INSTANCE_TYPES.get(launch.instance_type or "")
    return seconds_variable(FLOOR, (known.floor_gb_per_second if known else None) or 0.0)


def bus_gb_per_second(message_bytes: int, processes: int, call_seconds: float) -> float:
    """The bus bandwidth of an all-reduce as nccl-tests defines it (NVIDIA/nccl-tests, doc/PERFORMANCE.md), in GB/s.

    An all-reduce of S bytes over n processes moves at least 2 (n - 1) / n x S bytes over the slowest link, so that
    2 (n - 1) / n x S / seconds is what the hardware gives, whatever n is.
    """
    return 2 * (processes - 1) / processes * message_bytes / call_seconds / 1e9


def check_bandwidth(launch: Launch, folder: Path, environment: Mapping[str, str], watch: Watch) -> None:
    """Measures and tells; raises LaunchError where the network is too slow or gives no answer, on every host alike.

    folder: for the figure. Returns at once where the job ends meanwhile.
    """
    assert watch.hosts is not None
    floor, limit = floor_gb_per_second(launch), seconds_variable(LIMIT, DEFAULT_LIMIT_SECONDS)
    figure = folder / "all-reduce.json"
    figure.unlink(missing_ok=True)
    launcher = Path(__file__).parent
    path = os.pathsep.join(filter(None, [str(launcher.parent), os.environ.get("PYTHONPATH", "")]))
    command = [*torchrun(launch, processes_per_host()), str(launcher / "all_reduce_check.py"), str(figure)]
    code, news = supervise(command, folder, {**environment, "PYTHONPATH": path}, watch, limit_seconds=limit)
    if news is not None or watch.is_over():
        return
    if code != 0 or not figure.is_file():
        answer = f"no answer in {limit:g} s" if code < 0 else f"it ended with exit code {code}; the log has the cause"
        raise LaunchError(f"all-reduce check, {len(launch.hosts)} hosts: {answer}. {REMEDIES}")
    measured = json.loads(figure.read_text())
    own = bus_gb_per_second(measured["message_bytes"], measured["processes"], measured["call_seconds"])
    values = watch.hosts.meet("all-reduce check", own, watch.is_over)
    if not values:
        return
    slowest = min(values.values())
    told = f"{slowest:.3g} GB/s over {measured['processes']} processes on {len(launch.hosts)} hosts"
    if slowest < floor:
        of = f" of {launch.instance_type}" if launch.instance_type and FLOOR not in os.environ else ""
        raise LaunchError(f"all-reduce check: {told}; limit {floor:g} GB/s{of}. {REMEDIES}")
    say(f"{LAUNCH_PREFIX}all-reduce check: {told}, limit {floor:g}; {measured['seconds']:.1f} s")
