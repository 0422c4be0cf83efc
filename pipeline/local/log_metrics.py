"""The metrics of a training job by its definition's MetricDefinitions, which the service reads from the log as well."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.local.job_log import newest_attempt


def final_metrics(log: Path, definitions: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """The last number that each definition finds in the newest attempt, by metric name.

    The first group of its expression is the number; a metric that is never found as a finite number is left out.
    """
    if not definitions or not log.is_file():
        return {}
    text = "\n".join(newest_attempt(log.read_text(encoding="utf-8", errors="replace").splitlines()))
    found: dict[str, float] = {}
    for definition in definitions:
        numbers = [
            number for match in re.finditer(definition["Regex"], text) if (number := _finite(match[1])) is not None
        ]
        if numbers:
            found[definition["Name"]] = numbers[-1]
    return found


def _finite(text: str | None) -> float | None:
    """The number that a text is; None for a group that took no part, a text that is no number, NaN and infinity."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
