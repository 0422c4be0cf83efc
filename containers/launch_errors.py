"""How a launch ends that is not the step's own end: exit codes, and the error that a person sees as one line."""

from __future__ import annotations

EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 70, 130, 143


class LaunchError(Exception):
    """The job was put together wrongly; the text is the one line that a person sees."""
