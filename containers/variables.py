"""Numbers in the launcher's variables. An empty variable of a number is none."""

from __future__ import annotations

import os
import re

from containers.launch_errors import LaunchError


def whole_number(given: str) -> int | None:
    """The number that a text of at most nine digits is, None for any other text."""
    return int(given) if re.fullmatch(r"[0-9]{1,9}", given) else None


def port_variable(name: str, default: int) -> int:
    """A port. Raises LaunchError for what is none."""
    given = os.environ.get(name, str(default))
    port = whole_number(given)
    if port is None or not 0 < port < 65_536:
        raise LaunchError(f"{name}: {given:.80}; limit a port, 1 to 65535. Change the variable.")
    return port


def seconds_variable(name: str, default: float, *, at_least: float = 0.0) -> float:
    """A number of seconds, or of another unit. Raises LaunchError for what is none or less than `at_least`."""
    given = os.environ.get(name)
    if given is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", given) or float(given) < at_least:
        raise LaunchError(f"{name}: {given:.80}; limit a number from {at_least:g}. Change the variable.")
    return float(given)
