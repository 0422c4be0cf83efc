"""What one host has to compute with: its GPUs, and how many processes a training job starts on it."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from containers.instance_types import INSTANCE_TYPES
from containers.launch_errors import LaunchError
from containers.variables import whole_number

GPU_DEVICES = "/dev/nvidia[0-9]*"


def processes_per_host(variables: Mapping[str, str] = os.environ, pattern: str = GPU_DEVICES) -> int:
    """LANGADAPT_PROCESSES, else one for each GPU that CUDA_VISIBLE_DEVICES leaves, at least one.

    pattern: of the GPUs' device files.
    """
    if given := variables.get("LANGADAPT_PROCESSES"):
        if not (processes := whole_number(given)):
            raise LaunchError(f"LANGADAPT_PROCESSES: {given:.80}; limit a whole number from 1. Change the variable.")
        return processes
    return max(1, len(visible_gpus(variables, len(glob.glob(pattern)))))


def visible_gpus(variables: Mapping[str, str], gpus: int) -> list[str]:
    """The GPUs that CUDA shows, by the names that CUDA_VISIBLE_DEVICES gives them.

    As CUDA reads it: what comes behind the first name of no GPU is not visible; an empty text hides all.
    """
    given = variables.get("CUDA_VISIBLE_DEVICES")
    if given is None or gpus == 0:
        return [str(number) for number in range(gpus)]
    visible: list[str] = []
    for name in (word.strip() for word in given.split(",")):
        number = whole_number(name)
        if not (name.startswith(("GPU-", "MIG-")) or (number is not None and number < gpus)):
            break
        visible.append(name)
    return visible


def check_gpus(
    instance_type: str | None, variables: Mapping[str, str] = os.environ, pattern: str = GPU_DEVICES
) -> None:
    """Raises LaunchError where the host has fewer GPUs than its type: it would train at a fraction of its speed.

    Not where LANGADAPT_PROCESSES says how many processes there shall be, nor for types that the table lacks.
    """
    known = INSTANCE_TYPES.get(instance_type or "")
    if known is None or variables.get("LANGADAPT_PROCESSES"):
        return
    found = len(glob.glob(pattern))
    if found < known.gpus:
        raise LaunchError(
            f"GPUs: {found} in {pattern.rpartition('/')[0]}; limit {known.gpus} of {instance_type}. Start the job "
            "again on another instance, or set LANGADAPT_PROCESSES to train on those that are there."
        )
