"""What was published of the run that this project follows, and how near the plan's formulas come to each figure when
the constants are calibrated without it: the table in docs/plan.md.

`python tests/helpers/published_run.py` writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from pipeline.plan.gpus import GPUS  # noqa: E402
from pipeline.plan.model_shapes import named_shape  # noqa: E402
from pipeline.plan.throughput import flops_per_token, unfused_bytes_per_token  # noqa: E402
from pipeline.plan.training_memory import GIB, TrainingMemory  # noqa: E402

PAGE = ROOT / "docs" / "plan.md"
SHAPE = named_shape("llama-3.2-1b")
# The comparison of ways to train was published with Llama's own vocabulary: its state of 9.23 GB says so.
BASE_ROWS, NEW_ROWS = SHAPE.vocabulary_rows, 99_968
BLOCK_TOKENS, INSTANCE_GPUS = 2_048, 8
STEP_TOKENS, RUN_GPUS = 224 * BLOCK_TOKENS, 16
PHASE_STEPS = {1: 5_000, 2: 15_000}
PHASE_SECONDS = {1: 11_400, 2: 43_000}
# Tokens a second and GPU on p5 under FSDP, by whether Liger is on.
TOKENS_PER_SECOND = {False: 63_771, True: 78_319}
# GB a GPU at the peak on p5 under FSDP, for the batch that both ways hold.
PEAK_GB, PEAK_BLOCKS = {False: 64, True: 27}, 10
STATE_GIB = {"ddp": 9.23, "fsdp": 1.17}
BATCHES = {
    ("p4d", "ddp", False): 2, ("p4d", "fsdp", False): 4, ("p4d", "fsdp", True): 14,
    ("p5", "ddp", False): 4, ("p5", "fsdp", False): 10, ("p5", "fsdp", True): 18,
}  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """One published figure and what comes out without it."""

    name: str
    published: float
    planned: float
    digits: int = 0

    @property
    def error(self) -> float:
        return self.planned / self.published - 1

    @property
    def row(self) -> str:
        published, planned = (f"{value:,.{self.digits}f}" for value in (self.published, self.planned))
        return f"| {self.name} | {published} | {planned} | {round(100 * self.error):+d}% |"


def memory(parallelism: str, has_liger: bool, rows: int = BASE_ROWS) -> TrainingMemory:
    """Of one GPU of one instance, in bfloat16."""
    return TrainingMemory(SHAPE, rows, "bfloat16", parallelism, INSTANCE_GPUS, BLOCK_TOKENS, has_liger)


def implied_utilisations() -> dict[str, float]:
    """The share of the peak that each published time or speed comes to, by the plan's formula."""
    found = {}
    for phase, seconds in PHASE_SECONDS.items():
        flops = PHASE_STEPS[phase] * STEP_TOKENS * flops_per_token(SHAPE, NEW_ROWS, phase)
        found[f"phase {phase}"] = flops / RUN_GPUS / seconds / GPUS["p4d"].bfloat16_flops
    for has_liger, speed in TOKENS_PER_SECOND.items():
        moved = 0.0 if has_liger else unfused_bytes_per_token(SHAPE, BASE_ROWS) / GPUS["p5"].bandwidth
        found[f"liger {has_liger}"] = (
            flops_per_token(SHAPE, BASE_ROWS, 2) / (1 / speed - moved) / GPUS["p5"].bfloat16_flops
        )
    return found


def hours() -> list[Compared]:
    """Times of both phases and speeds with and without Liger, each by the utilisation of the other of its pair."""
    implied = implied_utilisations()
    rows = []
    for phase, seconds in PHASE_SECONDS.items():
        planned = seconds * implied[f"phase {phase}"] / implied[f"phase {3 - phase}"]
        rows.append(Compared(f"hours of phase {phase}, 2 x ml.p4d.24xlarge", seconds / 3_600, planned / 3_600, 2))
    for has_liger, speed in TOKENS_PER_SECOND.items():
        other = implied[f"liger {not has_liger}"]
        planned = flops_per_token(SHAPE, BASE_ROWS, 2) / (other * GPUS["p5"].bfloat16_flops)
        planned += 0.0 if has_liger else unfused_bytes_per_token(SHAPE, BASE_ROWS) / GPUS["p5"].bandwidth
        # As hours, so that an error means the same in every row.
        name = f"hours a billion tokens and GPU, p5, FSDP{' and Liger' if has_liger else ''}"
        rows.append(Compared(name, 1e9 / speed / 3_600, 1e9 * planned / 3_600, 2))
    return rows


def implied_share(key: tuple[str, str, bool]) -> float:
    """Of the GPU's memory, what a published batch takes by the formula."""
    family, parallelism, has_liger = key
    return memory(parallelism, has_liger).total(BATCHES[key]) / (GPUS[family].memory_gib * GIB)


def batches() -> list[Compared]:
    """Largest batches, each with the usable share that the other five come to: what they took did fit."""
    rows = []
    for key, published in BATCHES.items():
        family, parallelism, has_liger = key
        share = max(implied_share(other) for other in BATCHES if other != key)
        held = memory(parallelism, has_liger)
        planned = int((share * GPUS[family].memory_gib * GIB - held.state - held.gathered) // held.block)
        way = {"ddp": "DDP", "fsdp": "FSDP"}[parallelism] + (" and Liger" if has_liger else "")
        rows.append(Compared(f"largest batch a GPU, {family}, {way}", published, planned))
    return rows


def peaks() -> list[Compared]:
    """Nothing is calibrated on these."""
    return [
        Compared(f"GB at the peak, p5, FSDP{' and Liger' if has_liger else ''}, {PEAK_BLOCKS} blocks", peak,
                 memory("fsdp", has_liger).total(PEAK_BLOCKS) / 1e9, 1)
        for has_liger, peak in PEAK_GB.items()
    ]  # fmt: skip


def states() -> list[Compared]:
    """Nor on these."""
    return [
        Compared(f"GiB of state a GPU, {name.upper()}", state, memory(name, True).state / GIB, 2)
        for name, state in STATE_GIB.items()
    ]


def table() -> str:
    parts: Sequence[Callable[[], Sequence[Compared]]] = (states, peaks, batches, hours)
    rows = [row.row for part in parts for row in part()]
    return "\n".join(["| figure | published | planned without it | error |", "| --- | --- | --- | --- |", *rows])


def page_with_table(text: str) -> str:
    """The page's text with the table as it is now."""
    return re.sub(r"(?<=<!-- errors -->\n).*?(?=\n<!-- end -->)", lambda match: table(), text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text("utf-8")), "utf-8")
    print(table())
