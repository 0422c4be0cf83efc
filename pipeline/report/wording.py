"""Numbers as a report writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

SHORT_DIGEST = 12
GIB = 1024**3


def time_text(seconds: float) -> str:
    """`0.4 s`, `45 s`, `3 min 12 s`, `2 h 05 min`, `15.1 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 10 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{seconds / 3600:.1f} h"


def memory_text(size: float) -> str:
    """`1.13 GiB`, `380 MiB`."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB else f"{size / 1024**2:,.0f} MiB"


def size_text(size: float) -> str:
    """`102 kB`, `2.4 MB`, of text and files."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= limit:
            return f"{size / limit:,.1f} {unit}"
    return f"{size:,.0f} B"


def share_text(share: float) -> str:
    return f"{share:.0%}" if share in (0, 1) or 0.1 <= share < 0.995 else f"{share:.1%}"


def interval_text(ci95: Sequence[float], digits: int = 4) -> str:
    """`95%: 6.0661 to 6.5165`."""
    return f"95%: {range_text(ci95, digits)}"


def range_text(ci95: Sequence[float], digits: int = 4) -> str:
    """`6.0661 to 6.5165`."""
    return f"{ci95[0]:.{digits}f} to {ci95[1]:.{digits}f}"


def counted(number: int, what: str, plural: str = "") -> str:
    """`1 step`, `12 steps`."""
    return f"{number:,} {what if number == 1 else plural or f'{what}s'}"


def short_digest(digest: str) -> str:
    return digest[:SHORT_DIGEST]


def date_text(seconds: float) -> str:
    """`2026-11-30 20:51 UTC`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def value_text(value: object) -> str:
    """A value of a configuration or a condition."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return "none" if value is None else str(value)
