"""Processes of a job that outlived the run that started them: ended before the next run of its folder begins.

So every file of a run folder has one writer, also where the step's key is another now and its old job is never laid
out again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from pipeline.local.processes import (
    STOP_GRACE_SECONDS,
    end_all,
    job_processes,
    process_identity,
    recorded_groups,
    recorded_processes,
    signal_all,
    wait_until,
)
from pipeline.local.stopping import Stopping
from steps.contract import StepError

PROCESSES_NAME = "processes.json"


def end_orphans(run_folder: Path, stopping: Stopping, say: Callable[[str], None]) -> None:
    """Ends what still runs of any job of the folder: SIGTERM to the leaders, which hand it on, then to what they left.

    The first signal to this run ends the waiting: what is left then has SIGTERM, and the next run looks again.
    Raises StepError where a process cannot be ended.
    """
    jobs = sorted(run_folder.glob("jobs/*/*"))
    # A run that is killed the moment its processes began has not recorded them: they are known by their folder, too.
    roots = [str(folder) for job in jobs for pattern in ("opt/ml", "algo-*/opt/ml") for folder in job.glob(pattern)]
    records = [record for job in jobs if (record := job / PROCESSES_NAME).is_file()]

    def leaders() -> dict[int, str | None]:
        return {number: process_identity(number) for record in records for number in recorded_processes(record)}

    def find() -> dict[int, str]:
        return job_processes([number for record in records for number in recorded_groups(record)], roots)

    def hurry() -> bool:
        return stopping.asked.is_set()

    if not jobs or not (found := find()):
        return
    say(f"Ending {len(found)} process{'' if len(found) == 1 else 'es'} that an earlier run in {run_folder} left")
    signal_all(leaders(), signal.SIGTERM)
    wait_until(lambda: hurry() or not leaders(), STOP_GRACE_SECONDS)
    if hurry() and not stopping.at_once.is_set():
        signal_all(find(), signal.SIGTERM)
        return
    end_all(find, STOP_GRACE_SECONDS, hurry)
    if leftovers := find():
        line = f"process {min(leftovers)} of an earlier run goes on"
        raise StepError(str(run_folder), line, remedy="End it and run again.")
