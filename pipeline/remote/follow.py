"""Looks at an execution again and again until it ends, and shows it as a run of this machine is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pipeline.progress import Progress
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.execution_view import ExecutionView

Answer = TypeVar("Answer")
# Between two looks: as given while something happens, slower while nothing does.
MAX_WAIT_SECONDS = 60.0
SLOWER = 1.5
# Looks in a row that get no answer; each of them has been tried several times.
MAX_TROUBLES = 30
REFRESH_SECONDS = 0.2


def follow(open_view: Callable[[], ExecutionView], progress: Progress, wait_seconds: float) -> ExecutionView:
    """Until the execution has ended. What may pass (throttling, no network, faults of the service) is waited for.

    open_view: makes the view. wait_seconds: between the first looks. Raises AwsError for what does not pass.
    """
    view = _answer(open_view, progress, wait_seconds)
    result, wait, told = view.result, wait_seconds, 0
    progress.start(result.steps, {})
    try:
        while True:
            before = [step.state for step in result.steps.values()]
            _answer(view.look, progress, wait_seconds)
            progress.refresh()
            for note in view.notes[told:]:
                progress.line(note)
            told = len(view.notes)
            if result.exit_code is not None:
                return view
            has_changed = before != [step.state for step in result.steps.values()]
            wait = wait_seconds if has_changed else min(wait * SLOWER, MAX_WAIT_SECONDS)
            sleep_shown(progress, wait)
    finally:
        progress.stop()


def _answer(ask: Callable[[], Answer], progress: Progress, wait_seconds: float) -> Answer:
    """What is asked for, asked again while there is hope, less and less often."""
    wait = wait_seconds
    for _ in range(MAX_TROUBLES):
        try:
            return ask()
        except AwsError as error:
            if not error.may_pass:
                raise
            progress.line(f"{error} Looking again in {wait:.0f} s.")
        sleep_shown(progress, wait)
        wait = min(wait * SLOWER, MAX_WAIT_SECONDS)
    return ask()


def sleep_shown(progress: Progress, seconds: float) -> None:
    """Waits while the times of the steps at work go on."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(REFRESH_SECONDS, left))
        progress.refresh()
