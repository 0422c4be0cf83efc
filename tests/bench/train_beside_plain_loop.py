"""`make bench-train`: the training loop's speed on this CPU beside a bare PyTorch loop of the same work.

    python tests/bench/train_beside_plain_loop.py [--repeats 5] [--threads N] [--steps 30] [--shape sample]

Both train the same model from the same weights with the same optimizer, learning rates and clipping on the same packed
blocks in the same order, and must end at the same loss. Every measurement is a process of its own, the two take turns,
and what is compared is the median of the ratios of neighbours. Left out are the first steps, which warm up, and what
the bare loop does not do at all: validation and checkpoints. The exit status is 1 below the limit.

Wall seconds are what counts on a quiet machine; processor seconds, of all threads, tell more on a busy one.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2]))

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.modeling.batches import BatchPlan
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.parallel import Processes
from steps.modeling.schedule import Schedule
from steps.modeling.training import train
from steps.text.packing import PackedBlocks, Vocabulary, write_part

LEAST_RATIO = 0.95
WARM_UP_STEPS = 5
MOST_LINES = 30
# Hidden size, layers, vocabulary, tokens of a block, blocks of a step: `sample` is that of `langadapt run`.
SHAPES = {"sample": (128, 4, 2_048, 256, 16), "small": (256, 6, 8_192, 512, 8)}


def plain_loop(model, blocks, order, batch_blocks, rates, mark) -> float:
    """The bare loop. order: the blocks of each step. rates: the learning rate of each step."""
    backbone = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    decayed = {id(weight) for weight in backbone}
    others = [weight for weight in model.parameters() if id(weight) not in decayed]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": backbone, "weight_decay": 0.1}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)
    model.train()
    for step, indices in enumerate(order):
        total = 0.0
        for first in range(0, len(indices), batch_blocks):
            part = blocks.batch(indices[first : first + batch_blocks].tolist())
            batch = {name: torch.from_numpy(array) for name, array in part.items()}
            loss = model(**batch, use_cache=False).loss * len(batch["labels"]) / len(indices)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
        optimizer.zero_grad()
        mark(step + 1)
    return total


def build_model(shape: str) -> LlamaForCausalLM:
    """Random weights, the same in every process."""
    hidden, layers, vocabulary, block_tokens, _ = SHAPES[shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=max(1, hidden // 64),
        max_position_embeddings=block_tokens, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def write_blocks(folder: Path, shape: str) -> None:
    """200 blocks of documents of 10 to 400 tokens, drawn so that there is something to learn."""
    _, _, vocabulary, block_tokens, _ = SHAPES[shape]
    generator = numpy.random.default_rng(0)
    documents = [
        (generator.zipf(1.3, size=generator.integers(10, 400)) % (vocabulary - 3) + 3).tolist()
        for _ in range(200 * block_tokens // 200)
    ]
    known = Vocabulary(bos_token_id=0, eos_token_id=1, pad_token_id=2, size=vocabulary, tokenizer_sha256="")
    write_part(folder, "part-00000", [(ids, len(ids)) for ids in documents], block_tokens, known)


class Clock:
    """Wall and processor seconds from the end of the warm-up on."""

    def __init__(self) -> None:
        self.start = self.end = (0.0, 0.0)

    def mark(self, done: int) -> None:
        self.end = (time.perf_counter(), time.process_time())
        if done == WARM_UP_STEPS:
            self.start = self.end

    def seconds(self) -> tuple[float, float]:
        return self.end[0] - self.start[0], self.end[1] - self.start[1]


def measure(loop: str, shape: str, steps: int, folder: Path) -> dict[str, float]:
    """One training in this process."""
    blocks, model, clock = PackedBlocks(folder), build_model(shape), Clock()
    *_, block_tokens, step_blocks = SHAPES[shape]
    all_steps = WARM_UP_STEPS + steps
    config = ContinuedPretrainingConfig(
        phase_1_steps=0, phase_1_learning_rate=1e-3, phase_2_steps=all_steps, phase_2_learning_rate=1e-3,
        global_batch_tokens=step_blocks * block_tokens, device_batch_blocks=step_blocks, precision="float32",
        device="cpu", liger="off", validate_every_steps=10**9, checkpoint_every_steps=10**9,
    )  # fmt: skip
    plan = BatchPlan.of(blocks, config.global_batch_tokens, config.device_batch_blocks, config.seed, 1)
    if loop == "ours":
        alone = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
        store = CheckpointStore(None, "", 1, alone)
        tell: Callable[[int, int, str], None] = lambda done, total, unit: clock.mark(done)  # noqa: E731
        progress, _ = train(model, plan, config, alone, store, validate=lambda trained: 0.0, tell=tell)
        loss = progress.phases["phase_2"].last_loss
    else:
        schedule = Schedule(config, 0)
        order = [plan.indices(step, 0, 1) for step in range(all_steps)]
        rates = [schedule.learning_rate(step) for step in range(all_steps)]
        loss = plain_loop(model, blocks, order, config.device_batch_blocks, rates, clock.mark)
    assert loss is not None
    wall, processor = clock.seconds()
    tokens = steps * config.global_batch_tokens
    return {"wall": tokens / wall, "processor": tokens / processor, "loss": loss}


def measured_apart(loop: str, given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, __file__, "--measure", loop, "--blocks", str(folder), "--shape", given.shape]
    environment = {**os.environ, "OMP_NUM_THREADS": str(given.threads), "MKL_NUM_THREADS": str(given.threads)}
    done = subprocess.run(
        [*command, "--steps", str(given.steps)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare(given: argparse.Namespace, folder: Path) -> int:
    write_blocks(folder, given.shape)
    lines = len(inspect.getsource(plain_loop).splitlines())
    assert lines <= MOST_LINES, f"the bare loop has {lines} lines"
    print(f"shape {given.shape}, {given.threads} threads, {given.steps} steps after {WARM_UP_STEPS}, "
          f"torch {torch.__version__}; the bare loop has {lines} lines")  # fmt: skip
    runs: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(given.repeats):
        # Who goes first changes, too: the machine may grow busier or slower with time.
        names = ("ours", "plain") if number % 2 == 0 else ("plain", "ours")
        found = {name: measured_apart(name, given, folder) for name in names}
        runs.append((found["ours"], found["plain"]))
        print(f"run {number + 1}: ours {found['ours']['wall']:,.0f}, plain {found['plain']['wall']:,.0f} tokens/s; "
              f"losses {found['ours']['loss']:.6f}, {found['plain']['loss']:.6f}", flush=True)  # fmt: skip
    ratios = {}
    for kind in ("wall", "processor"):
        ours, plain = (statistics.median(run[place][kind] for run in runs) for place in (0, 1))
        ratios[kind] = statistics.median(run[0][kind] / run[1][kind] for run in runs)
        print(f"tokens a {kind} second, medians of {given.repeats}: ours {ours:,.0f}, plain {plain:,.0f}; "
              f"ratio of neighbours, median {ratios[kind]:.3f}, limit {LEAST_RATIO}")  # fmt: skip
    difference = max(abs(ours["loss"] - plain["loss"]) for ours, plain in runs)
    print(f"largest difference of the last losses {difference:.1e}, limit 0.01")
    return 0 if ratios["wall"] >= LEAST_RATIO and difference < 0.01 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", type=int, default=30, help="measured steps")
    parser.add_argument("--shape", choices=list(SHAPES), default="sample")
    parser.add_argument("--measure", choices=["ours", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.shape, given.steps, given.blocks)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return compare(given, Path(folder) / "blocks")


if __name__ == "__main__":
    sys.exit(main())
