"""What a training tells while it runs: a line in the log, a line of JSON, and TensorBoard's events."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from steps.contract import note_progress, peak_memory_bytes, report, report_progress
from steps.schemas.training import TelemetryRecord

TELEMETRY_NAME = "telemetry.jsonl"
TENSORBOARD_VARIABLE = "LANGADAPT_TENSORBOARD"


class Telemetry:
    """Prints each record as a line of metrics, what was not measured left out, and appends it to telemetry.jsonl.

    A checkpoint keeps the records, so the file of a resumed training has the lines of the attempts before it. Without a
    path, as in all processes but the first, nothing is told.
    """

    def __init__(self, path: Path | None, events: Any | None) -> None:
        self.path, self.events = path, events

    def begin(self, earlier: Sequence[TelemetryRecord]) -> None:
        """Writes the records of the attempts before this one."""
        if self.path is not None:
            self.path.write_text("".join(f"{record.model_dump_json()}\n" for record in earlier), encoding="utf-8")

    def __call__(self, record: TelemetryRecord) -> None:
        """Tells of a record."""
        if self.path is None:
            return
        measured = record.model_dump(exclude_none=True)
        report(**measured)
        with self.path.open("a", encoding="utf-8") as lines:
            lines.write(f"{record.model_dump_json()}\n")
        if self.events is not None:
            for name, value in measured.items():
                self.events.add_scalar(name, value, record.step)

    def tell(self, done: int, total: int, unit: str) -> None:
        """See `report_progress`."""
        if self.path is not None:
            report_progress(done, total, unit)
        else:
            note_progress()


@contextmanager
def telemetry_in(output: Path | None) -> Iterator[Telemetry]:
    """TensorBoard's events go to the folder that LANGADAPT_TENSORBOARD names. output: None for silence."""
    with ExitStack() as resources:
        events = None
        if output is not None and (folder := os.environ.get(TENSORBOARD_VARIABLE)):
            from torch.utils.tensorboard import SummaryWriter

            events = SummaryWriter(folder)
            resources.callback(events.close)
        yield Telemetry(None if output is None else output / TELEMETRY_NAME, events)


def peak_device_memory_bytes(device: torch.device) -> int:
    """Largest memory held so far: allocated on the GPU, or resident on the host."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory_bytes()
