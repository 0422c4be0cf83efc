"""Processes that were killed for want of memory: whether the kernel counts one, and what to say of it."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from containers.host_devices import processes_per_host

# Settings that memory grows with; a step that is killed for want of it is told those that it was given.
MEMORY_SETTINGS = ("device_batch_blocks", "batch_conversations", "batch_tokens", "max_training_bytes", "max_documents",
                   "max_tokens", "block_tokens")  # fmt: skip
# Where the kernel tells how much memory these processes may have: cgroup v2, v1.
CONTROL_GROUPS = "/sys/fs/cgroup"
# How often it killed a process of the whole machine for want of memory, other people's among them.
MACHINE_MEMORY_KILLS = "/proc/vmstat"


def memory_line(was_short: bool, arguments: Sequence[str]) -> str:
    """What to say of a step that SIGKILL ended. ru_maxrss, in KiB on Linux, is that of the largest process."""
    unit = 1 if sys.platform == "darwin" else 1024
    peak, limit = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit, memory_limit()
    sizes = f"peak {peak / 1e9:.2f} GB; limit {limit / 1e9:.2f} GB"
    # The kernel does not count what other programs kill for want of memory, as systemd-oomd does: jobs that take much.
    if not was_short and peak * processes_per_host() < limit / 2:
        return f"killed (SIGKILL) from outside, not for want of memory: {sizes}. Give the same command again."
    certainty = "for want of memory" if was_short else "most likely for want of memory"
    given = [name for name in MEMORY_SETTINGS if any(word.startswith(f"--{name}=") for word in arguments)]
    lowered = f"Lower {' or '.join(given)}, or use" if given else "Use"
    return f"killed (SIGKILL), {certainty}: {sizes}. {lowered} a machine with more memory."


def memory_limit() -> int:
    """The memory that this job may use: the machine's, or its control group's where that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in {place.parent for place in memory_kill_places()}:
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return min(limits)


def memory_kills(places: Iterable[Path] | None = None) -> int:
    """A count that grows when the kernel kills a process for want of memory; 0 where it does not tell.

    places: the first that tells counts; those of `memory_kill_places` where none are given.
    """
    for place in memory_kill_places() if places is None else places:
        found: list[str] = []
        with suppress(OSError):
            found = re.findall(r"^oom_kill (\d+)$", place.read_text(), re.MULTILINE)
        if found:
            return sum(map(int, found))
    return 0


def memory_kill_places(own_groups: Path = Path("/proc/self/cgroup"), root: Path = Path(CONTROL_GROUPS)) -> list[Path]:
    """Where the kernel counts such kills: in this process's control group, and for the whole machine where it has none.

    own_groups: rows of number, controllers and path. A container may show its own group at the root and tell a path
    that only the machine outside has.
    """
    places: list[Path] = []
    with suppress(OSError):
        for row in own_groups.read_text().splitlines():
            _, controllers, path = row.split(":", 2)
            if controllers == "":
                places += [root / path.strip("/") / "memory.events", root / "memory.events"]
            elif "memory" in controllers.split(","):
                of_memory = root / "memory"
                places += [of_memory / path.strip("/") / "memory.oom_control", of_memory / "memory.oom_control"]
    return [*places, Path(MACHINE_MEMORY_KILLS)]
