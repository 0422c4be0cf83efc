"""What one host has to compute with: how many processes a training job starts on it."""

from __future__ import annotations

import glob
import os

from containers.launch_errors import LaunchError


def processes_per_host() -> int:
    """LANGADAPT_PROCESSES, else one for each GPU, at least one."""
    if given := os.environ.get("LANGADAPT_PROCESSES"):
        if not given.isdigit() or int(given) < 1:
            raise LaunchError(f"LANGADAPT_PROCESSES: {given}; limit a whole number from 1. Change the variable.")
        return int(given)
    return max(1, len(glob.glob("/dev/nvidia[0-9]*")))
