"""Looks at an execution again and again until it ends, and shows it as a run of this machine is shown."""

from __future__ import annotations

import time

from pipeline.execution_record import RunResult
from pipeline.progress import Progress
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.execution_view import ExecutionView

# Between two looks: as given while something happens, slower while nothing does.
MAX_WAIT_SECONDS = 60.0
SLOWER = 1.5
# Looks in a row that get no answer; each of them has been tried several times.
MAX_TROUBLES = 30
REFRESH_SECONDS = 0.2


def follow(view: ExecutionView, progress: Progress, wait_seconds: float) -> RunResult:
    """Until the execution has ended. What may pass (throttling, no network, faults of the service) is waited for.

    wait_seconds: between the first looks. Raises AwsError for what does not pass.
    """
    result, wait, troubles, told = view.result, wait_seconds, 0, 0
    progress.start(result.steps, {})
    try:
        while True:
            before = [step.state for step in result.steps.values()]
            try:
                view.look()
                troubles = 0
            except AwsError as error:
                troubles += 1
                if not error.may_pass or troubles > MAX_TROUBLES:
                    raise
                progress.line(f"{error} Looking again in {wait:.0f} s.")
            progress.refresh()
            for note in view.notes[told:]:
                progress.line(note)
            told = len(view.notes)
            if result.exit_code is not None:
                return result
            has_changed = before != [step.state for step in result.steps.values()]
            wait = wait_seconds if has_changed and not troubles else min(wait * SLOWER, MAX_WAIT_SECONDS)
            sleep_shown(progress, wait)
    finally:
        progress.stop()


def sleep_shown(progress: Progress, seconds: float) -> None:
    """Waits while the times of the steps at work go on."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(REFRESH_SECONDS, left))
        progress.refresh()
