"""`make bench-gpu`: a Llama 3.2 1B with a vocabulary of 100,000 on one GPU, eager against Liger, by batch.

    python tests/bench/gpu_throughput.py [--attention auto] [--precision bfloat16] [--steps 10] [--output FILE]

Random weights and random documents: nothing is downloaded, and speed and memory do not depend on either. The training
loop is the one that ContinuedPretraining runs, all weights trained. For each kind of kernels the batch doubles from one
block of 2,048 tokens until it no longer fits, then the largest that fits is searched in between. Every measurement is a
process of its own, so that none inherits another's memory. One table: tokens a second, utilisation, peak memory.

Without CUDA it says so and ends with status 0. --dry-run goes through all of it with a tiny model on the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from steps.configs.continued_pretraining import ContinuedPretrainingConfig  # noqa: E402
from steps.contract import ConfigError, write_json  # noqa: E402
from steps.modeling.attention import check_isolation, choose_attention, wants_one_row  # noqa: E402
from steps.modeling.batches import BatchPlan  # noqa: E402
from steps.modeling.checkpoints import CheckpointStore  # noqa: E402
from steps.modeling.fused_kernels import apply_liger  # noqa: E402
from steps.modeling.parallel import Processes, place_model  # noqa: E402
from steps.modeling.training import train  # noqa: E402
from steps.modeling.utilisation import Utilisation  # noqa: E402
from steps.schemas.training import TelemetryRecord  # noqa: E402
from steps.text.packing import PackedBlocks, Vocabulary, write_part  # noqa: E402

WARM_UP_STEPS = 3
LARGEST_BATCH = 512
# Exit status of a measurement that did not fit into memory, apart from those of Python and of signals.
DID_NOT_FIT = 3
TRAINING_DTYPES = {"float32": torch.float32, "bfloat16_mixed": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Shape:
    """Of the model and its blocks."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    vocabulary: int
    block_tokens: int
    device: str

    def build(self) -> LlamaForCausalLM:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=self.hidden, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.key_value_heads,
            intermediate_size=self.intermediate, max_position_embeddings=131_072, tie_word_embeddings=True,
            rms_norm_eps=1e-5,
        )  # fmt: skip
        return LlamaForCausalLM(config)


# Llama 3.2 1B but for its vocabulary; and what a CPU computes in seconds.
LLAMA_1B = Shape(2_048, 16, 32, 8, 8_192, 100_000, 2_048, "cuda")
TINY = Shape(64, 2, 4, 2, 128, 1_000, 64, "cpu")


@dataclass(frozen=True)
class Measurement:
    """One row of the table. utilisation: None where the device's peak is unknown."""

    kernels: str
    attention: str
    batch_blocks: int
    tokens_per_second: float
    utilisation: float | None
    peak_memory_bytes: int


def write_blocks(folder: Path, shape: Shape) -> None:
    """Documents of 20 tokens to three blocks; most are shorter than a block, as in the published corpus."""
    generator = numpy.random.default_rng(0)
    lengths = generator.integers(20, 3 * shape.block_tokens, size=LARGEST_BATCH)
    documents = [(generator.integers(3, shape.vocabulary, size=length).tolist(), int(length)) for length in lengths]
    known = Vocabulary(bos_token_id=0, eos_token_id=1, pad_token_id=2, size=shape.vocabulary, tokenizer_sha256="")
    write_part(folder, "part-00000", documents, shape.block_tokens, known)


def measure(shape: Shape, kernels: str, batch: int, given: argparse.Namespace) -> Measurement:
    """In this process. Raises torch.OutOfMemoryError."""
    device = torch.device(shape.device)
    alone = Processes(rank=0, local_rank=0, world_size=1, device=device)
    blocks = PackedBlocks(given.blocks)
    config = ContinuedPretrainingConfig(
        phase_1_steps=0, phase_1_learning_rate=1e-4, phase_2_steps=WARM_UP_STEPS + given.steps,
        phase_2_learning_rate=1e-4, global_batch_tokens=batch * shape.block_tokens, device_batch_blocks=batch,
        precision=given.precision, liger="on" if kernels == "liger" else "off", device=shape.device,
        attention=given.attention, log_every_steps=1, validate_every_steps=10**9, checkpoint_every_steps=10**9,
    )  # fmt: skip
    model = shape.build().to(TRAINING_DTYPES[given.precision])
    apply_liger(model, config.liger, alone, blocks.batch([0]), config.precision)
    attention = choose_attention(model, config.attention, device, config.precision, blocks.block_tokens)
    place_model(model, alone, config.precision)
    check_isolation(model, alone, config.precision)
    plan = BatchPlan.of(blocks, config.global_batch_tokens, batch, 0, 1, one_row=wants_one_row(model))
    records: list[TelemetryRecord] = []
    store = CheckpointStore(None, "", 1, alone)
    train(model, plan, config, alone, store, validate=lambda trained: 0.0, observe=records.append)
    speed = statistics.median(record.tokens_per_second_per_device for record in records[WARM_UP_STEPS:])
    utilisation = Utilisation(model, device, config.precision)
    return Measurement(kernels, attention, batch, speed, utilisation.of(speed, 2), records[-1].peak_memory_bytes)


def measured_apart(kernels: str, batch: int, given: argparse.Namespace) -> Measurement | None:
    """The same in a fresh process; None where it does not fit."""
    command = [sys.executable, __file__, "--measure", kernels, "--batch", str(batch), "--blocks", str(given.blocks)]
    command += ["--attention", given.attention, "--precision", given.precision, "--steps", str(given.steps)]
    command += ["--dry-run"] if given.dry_run else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode == DID_NOT_FIT:
        print(f"{kernels}, {batch} blocks: does not fit", flush=True)
        return None
    if done.returncode:
        raise SystemExit(f"error: the measurement of {kernels} with {batch} blocks ended with {done.returncode}")
    found = Measurement(**json.loads(done.stdout.splitlines()[-1]))
    print(row(found), flush=True)
    return found


def sweep(kernels: str, given: argparse.Namespace) -> list[Measurement]:
    """By batch: 1, 2, 4 and so on to the first that does not fit, then the largest that does."""
    found: dict[int, Measurement] = {}
    fits, fails = 0, given.largest_batch + 1
    while fails - fits > 1:
        batch = min(2 * fits, given.largest_batch) if fails > given.largest_batch else (fits + fails) // 2
        batch = max(1, batch)
        if (measurement := measured_apart(kernels, batch, given)) is None:
            fails = batch
        else:
            fits, found[batch] = batch, measurement
    return [found[batch] for batch in sorted(found)]


COLUMNS = ("kernels", "attention", "blocks", "tokens/s", "utilisation", "peak memory, GiB")
HEADER = f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|"


def row(found: Measurement) -> str:
    share = "unknown peak" if found.utilisation is None else f"{found.utilisation:.1%}"
    return (
        f"| {found.kernels} | {found.attention} | {found.batch_blocks} | {found.tokens_per_second:,.0f} | {share} | "
        f"{found.peak_memory_bytes / 2**30:.2f} |"
    )


def compare(given: argparse.Namespace, shape: Shape) -> int:
    name = "cpu, dry run" if shape.device == "cpu" else torch.cuda.get_device_name()
    write_blocks(given.blocks, shape)
    with torch.device("meta"):
        utilisation = Utilisation(shape.build(), torch.device(shape.device), given.precision)
    peak = "unknown" if utilisation.peak is None else f"{utilisation.peak / 1e12:,.0f} TFLOP/s"
    print(f"{name}, torch {torch.__version__}, {given.precision}; hidden {shape.hidden}, {shape.layers} layers, "
          f"vocabulary {shape.vocabulary:,}, blocks of {shape.block_tokens:,} tokens")  # fmt: skip
    print(f"utilisation = FLOPs a token * tokens/s / peak; FLOPs a token = 6 N = {utilisation.flops_per_token[2]:.4g}, "
          f"peak {peak} (steps/modeling/utilisation.py)", flush=True)  # fmt: skip
    # Liger's kernels are for GPUs.
    kinds = ("eager", "liger") if shape.device == "cuda" else ("eager",)
    print(HEADER)
    table = {kernels: sweep(kernels, given) for kernels in kinds}
    print("\n" + HEADER)
    for measurements in table.values():
        print("\n".join(row(found) for found in measurements))
    bests = {kernels: max(rows, key=lambda found: found.tokens_per_second) for kernels, rows in table.items() if rows}
    if len(bests) == 2:
        gain = bests["liger"].tokens_per_second / bests["eager"].tokens_per_second - 1
        batches = " against ".join(str(table[kernels][-1].batch_blocks) for kernels in ("liger", "eager"))
        print(f"Liger: {gain:+.1%} tokens/s, each at its best batch; largest batches {batches} blocks")
    if given.output is not None:
        rows: list[dict[str, Any]] = [asdict(found) for measurements in table.values() for found in measurements]
        write_json(
            given.output, {"device": name, "torch": torch.__version__, "precision": given.precision, "rows": rows}
        )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", choices=["auto", "sdpa", "flex", "flash"], default="auto")
    parser.add_argument("--precision", choices=list(TRAINING_DTYPES), default="bfloat16")
    parser.add_argument("--steps", type=int, default=10, help="measured steps of each batch")
    parser.add_argument("--largest-batch", type=int, default=LARGEST_BATCH)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--measure", choices=["eager", "liger"], help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    shape = TINY if given.dry_run else LLAMA_1B
    if shape.device == "cuda" and not torch.cuda.is_available():
        print("bench-gpu: skipped, no CUDA device here")
        return 0
    if given.measure is None:
        with tempfile.TemporaryDirectory() as folder:
            given.blocks = Path(folder) / "blocks"
            return compare(given, shape)
    try:
        print(json.dumps(asdict(measure(shape, given.measure, given.batch, given))))
    except torch.OutOfMemoryError:
        return DID_NOT_FIT
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
