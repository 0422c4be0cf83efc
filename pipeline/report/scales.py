"""Scales of charts: round ticks, how they are written, and long series thinned with their extremes kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]
MAX_POINTS = 500


@dataclass(frozen=True)
class Scale:
    """Values between low and high laid on pixels between start and end."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About so many round values from at most low to at least high; steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        half = abs(low) / 2 or 0.5
        low, high = low - half, high + half
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def tick_text(value: float, step: float) -> str:
    """A tick as short as its step allows: 0.002, 1,500, 20k, 1.5M; all ticks of an axis in one form."""
    if step < 1e-4:
        return f"{value:.0e}".replace("e-0", "e-") if value else "0"
    for limit, divided, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (5e3, 1e3, "k")):
        if step >= limit:
            return f"{value / divided:.10g}{unit}" if value else "0"
    decimals = max(0, -math.floor(math.log10(abs(step)) + 1e-9)) if step else 2
    return f"{value:,.{decimals}f}"


def thinned(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most so many of the points, in order: the first, the last, and of each stretch between the smallest and the
    largest, so that no peak is lost."""
    if len(points) <= limit:
        return list(points)
    inner = range(1, len(points) - 1)
    buckets = (limit - 2) // 2
    kept = {0, len(points) - 1}
    for bucket in range(buckets):
        part = inner[len(inner) * bucket // buckets : len(inner) * (bucket + 1) // buckets]
        kept |= {min(part, key=lambda index: points[index][1]), max(part, key=lambda index: points[index][1])}
    return [points[index] for index in sorted(kept)]
