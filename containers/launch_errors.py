"""How a launch ends: exit codes, the error that a person sees as one line, and what is told of an end."""

from __future__ import annotations

from dataclasses import dataclass

EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 70, 130, 143
STOPPED_LINE = "error: stopped by SIGTERM"


class LaunchError(Exception):
    """The job was put together wrongly, or cannot go on; the text is the one line that a person sees."""


@dataclass(frozen=True)
class Ended:
    """How a job has ended on one host.

    line: for a failure, the one that the service shows. details: for the log, where they are more than the line.
    is_told: the step itself has printed the line. is_consequence: another host's end has most likely caused this one.
    """

    exit_code: int
    line: str = ""
    details: str = ""
    is_told: bool = False
    is_consequence: bool = False


STOPPED = Ended(EXIT_TERMINATED, STOPPED_LINE)
INTERRUPTED = Ended(EXIT_INTERRUPTED, "error: interrupted")
