"""What the initialiser and the first phase are worth, on real Azerbaijani: laws, web pages and fiction.

    python tests/bench/compare_training.py [--seeds 0 1 2] [--phase-1-steps 30] [--phase-2-steps 70] [--output FILE]

The sample's English base model gets a new vocabulary by each initialiser and is trained in two phases, measured before
the first step, at the end of phase 1 and at the end. Beside them, from the default initialiser, phase 2 alone: once
over as many tokens as both phases together, once for as much processor time. Each seed draws its own training text,
tokenizer, held-out documents, order of blocks and random rows; within a seed all trainings read the same blocks in the
same order. The figure is bits per byte of the held-out documents' blocks.

LANGADAPT_REAL_TEXT names the folder with az_laws.jsonl, az_web.jsonl and az_fiction.jsonl. About 20 minutes on
two cores; --seeds 0 --phase-1-steps 4 --phase-2-steps 8 --train-bytes 300000 shows in two that it works.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from small_trainings import ALONE, Material, Trained, train_here  # noqa: E402

from steps.configs.continued_pretraining import ContinuedPretrainingConfig  # noqa: E402
from steps.contract import write_json  # noqa: E402
from steps.make_sample import cached_sample, default_cache  # noqa: E402
from steps.modeling.batches import BatchPlan  # noqa: E402
from steps.modeling.validation import BlockValidation  # noqa: E402

REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))
FILES = ("az_laws.jsonl", "az_web.jsonl", "az_fiction.jsonl")
INITIALISERS = ("copy+subtoken_mean", "copy+mean", "focus", "normal")
DEFAULT = INITIALISERS[0]
VOCABULARY_SIZE = 4_096
BLOCK_TOKENS, STEP_BLOCKS = 256, 16
HELD_OUT_DOCUMENTS = 200
VALIDATION_BLOCKS = 64


@dataclass(frozen=True)
class Row:
    """One training: bits per byte by moment, its steps in each phase, its processor seconds."""

    name: str
    seed: int
    bits_per_byte: dict[str, float]
    steps: tuple[int, int]
    processor_seconds: float


def read_documents() -> list[str]:
    """The distinct documents of all files, NFC."""
    texts = set()
    for name in FILES:
        for line in (REAL_TEXT / name).read_text("utf-8").splitlines():
            texts.add(unicodedata.normalize("NFC", json.loads(line)["text"]))
    return sorted(texts)


def split(documents: Sequence[str], seed: int, train_bytes: int) -> tuple[list[str], list[str]]:
    """(training text of about so many bytes, held-out documents) in an order of the seed's own."""
    ordered = sorted(documents, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())
    train, size = [], 0
    for text in ordered[HELD_OUT_DOCUMENTS:]:
        if size >= train_bytes:
            break
        train.append(text)
        size += len(text.encode())
    return train, ordered[:HELD_OUT_DOCUMENTS]


def configure(seed: int, phase_1_steps: int, phase_2_steps: int) -> ContinuedPretrainingConfig:
    """The laptop preset's settings. Validation falls on the end of phase 1 and on the end."""
    return ContinuedPretrainingConfig(
        phase_1_steps=phase_1_steps, phase_1_learning_rate=0.003, phase_1_warmup_steps=min(3, phase_1_steps),
        phase_2_steps=phase_2_steps, phase_2_learning_rate=0.0015, phase_2_warmup_steps=min(5, phase_2_steps),
        global_batch_tokens=STEP_BLOCKS * BLOCK_TOKENS, device_batch_blocks=STEP_BLOCKS, precision="float32",
        liger="off", device="cpu", seed=seed, validate_every_steps=phase_1_steps or 10**9,
    )  # fmt: skip


def train_one(
    name: str, material: Material, validation: BlockValidation, seed: int, steps: tuple[int, int], initialiser: str
) -> tuple[Row, Trained]:
    config = configure(seed, *steps)
    plan = BatchPlan.of(material.blocks("train"), config.global_batch_tokens, STEP_BLOCKS, seed, 1)
    model = material.model(initialiser, seed)
    trained = train_here(model, plan, config, lambda model: validation(model, "float32"))
    figures = {"step 0": trained.bits_per_byte(0), "end": trained.bits_per_byte(sum(steps))}
    if steps[0]:
        figures["end of phase 1"] = trained.bits_per_byte(steps[0])
    first, second = median_seconds(trained, steps[0])
    row = Row(name, seed, figures, steps, steps[0] * first + steps[1] * second)
    moments = ", ".join(f"{moment} {value:.4f}" for moment, value in sorted(figures.items(), reverse=True))
    print(f"seed {seed}, {name}, {steps[0]} + {steps[1]} steps: {moments}; "
          f"{row.processor_seconds:.0f} processor seconds", flush=True)  # fmt: skip
    return row, trained


def median_seconds(trained: Trained, phase_1_steps: int) -> tuple[float, float]:
    """Processor seconds of the median step of each phase: a validation falls into some, and a busy machine has others.

    0 for a phase 1 of no steps.
    """
    first, second = trained.step_seconds[:phase_1_steps], trained.step_seconds[phase_1_steps:]
    return (statistics.median(first) if first else 0.0), statistics.median(second)


def steps_of_equal_time(trained: Trained, steps: tuple[int, int]) -> int:
    """Steps of phase 2 alone that cost what both phases cost."""
    first, second = median_seconds(trained, steps[0])
    return max(1, round(steps[1] + steps[0] * first / second))


def run_seed(seed: int, documents: Sequence[str], given: argparse.Namespace, folder: Path) -> list[Row]:
    train, held_out = split(documents, seed, given.train_bytes)
    base = cached_sample(default_cache()) / "base_model"
    material = Material.make(folder, base, train, VOCABULARY_SIZE, BLOCK_TOKENS)
    blocks = material.pack("validation", held_out)
    validation = BlockValidation(blocks, material.tokenizer, VALIDATION_BLOCKS, ALONE)
    tokens = material.blocks("train").tokens
    steps = (given.phase_1_steps, given.phase_2_steps)
    passes = sum(steps) * STEP_BLOCKS / len(material.blocks("train"))
    print(f"seed {seed}: {len(train):,} documents, {tokens:,} tokens, {passes:.2f} passes over them", flush=True)
    rows, of_default = [], None
    for initialiser in INITIALISERS:
        row, trained = train_one(initialiser, material, validation, seed, steps, initialiser)
        rows.append(row)
        of_default = of_default or trained
    assert of_default is not None
    for name, count in (
        ("phase 2 alone, equal tokens", sum(steps)),
        ("phase 2 alone, equal time", steps_of_equal_time(of_default, steps)),
    ):
        rows.append(train_one(name, material, validation, seed, (0, count), DEFAULT)[0])
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a Markdown table: mean over the seeds, smallest and largest."""
    moments = ("step 0", "end of phase 1", "end")
    lines = ["| training | " + " | ".join(moments) + " | end, beside the first row |", "| --- " * 5 + "|"]
    ends = {row.seed: row.bits_per_byte["end"] for row in rows if row.name == DEFAULT}
    for name in dict.fromkeys(row.name for row in rows):
        own = [row for row in rows if row.name == name]
        cells = [spread([row.bits_per_byte[m] for row in own if m in row.bits_per_byte]) for m in moments]
        # By seed: between seeds text and tokenizer differ, which says nothing of the training.
        cells.append(spread([row.bits_per_byte["end"] - ends[row.seed] for row in own], "+.4f"))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def spread(values: Sequence[float], form: str = ".4f") -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--phase-1-steps", type=int, default=30)
    parser.add_argument("--phase-2-steps", type=int, default=70)
    parser.add_argument("--train-bytes", type=int, default=3_000_000, help="training text of each seed")
    parser.add_argument("--output", type=Path, help="JSON file to write")
    given = parser.parse_args()
    if not REAL_TEXT.is_dir():
        print(f"error: LANGADAPT_REAL_TEXT: {REAL_TEXT} does not exist. Name a folder with {', '.join(FILES)}.")
        return 1
    began, documents, rows = time.monotonic(), read_documents(), []
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            rows += run_seed(seed, documents, given, Path(folder))
    lines = table(rows)
    print("\n".join(["", f"bits per byte, {len(given.seeds)} seeds: mean (smallest to largest)", *lines]))
    if given.output is not None:
        settings: dict[str, Any] = {name: value for name, value in vars(given).items() if name != "output"}
        write_json(
            given.output,
            {
                "settings": settings,
                "torch": torch.__version__,
                "threads": torch.get_num_threads(),
                "seconds": round(time.monotonic() - began),
                "table": lines,
                "rows": [vars(row) for row in rows],
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
