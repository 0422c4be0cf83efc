"""Which blocks make which step: a pure function of (seed, step, rank), found without reading what came before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy
import torch

from steps.contract import ConfigError, StepError
from steps.modeling.block_order import blocks_at
from steps.text.packing import IGNORED_LABEL, PackedBlocks

# Streams of the order of blocks: the corpus and the replayed text go through their epochs each for itself.
CORPUS_STREAM, REPLAY_STREAM = 0, 1
SHARE_UNIT = 1_000_000

# What a model is called with, in one pass.
ModelInputs = dict[str, torch.Tensor | int]


@dataclass(frozen=True)
class BatchPlan:
    """Blocks in an order of their own for each epoch, or as they lie, cut into global batches.

    A batch may lie across two epochs.

    The global batch of a step is the same for any number of processes; each takes its share of it. Of a million blocks
    in a row `replay_share` * 1,000,000 come from `replay`, spread evenly; the two sequences know nothing of each other.
    one_row: for attention that wants the blocks of a pass one after another (steps/modeling/attention.py).
    """

    blocks: PackedBlocks
    blocks_per_step: int
    device_batch_blocks: int
    seed: int
    replay: PackedBlocks | None = None
    replay_share: float = 0.0
    one_row: bool = False
    sequential: bool = False

    @classmethod
    def of(
        cls,
        blocks: PackedBlocks,
        global_batch_tokens: int,
        device_batch_blocks: int,
        seed: int,
        world_size: int,
        *,
        replay: PackedBlocks | None = None,
        replay_share: float = 0.0,
        one_row: bool = False,
        sequential: bool = False,
    ) -> BatchPlan:
        """Raises ConfigError where processes or blocks do not divide the batch, StepError for too few blocks."""
        unit = blocks.block_tokens * world_size
        if global_batch_tokens % unit:
            raise ConfigError(
                "continued_pretraining.global_batch_tokens",
                global_batch_tokens,
                limit=f"a multiple of {unit} ({world_size} processes, blocks of {blocks.block_tokens} tokens)",
                remedy=f"Take {max(1, round(global_batch_tokens / unit)) * unit}.",
            )
        blocks_per_step = global_batch_tokens // blocks.block_tokens
        if len(blocks) < blocks_per_step:
            raise StepError(
                "training blocks",
                len(blocks),
                limit=f"at least one global batch of {blocks_per_step}",
                remedy="Give more text or lower continued_pretraining.global_batch_tokens.",
            )
        if replay is None or replay_share == 0:
            return cls(blocks, blocks_per_step, device_batch_blocks, seed, one_row=one_row, sequential=sequential)
        if len(replay) == 0 or replay.block_tokens != blocks.block_tokens:
            raise StepError(
                "source blocks",
                f"{len(replay)} blocks of {replay.block_tokens} tokens",
                limit=f"at least 1 block of {blocks.block_tokens} tokens",
                remedy="Run TokenizeCorpus again, or set data.source_replay_share to 0.",
            )
        return cls(blocks, blocks_per_step, device_batch_blocks, seed, replay, replay_share, one_row, sequential)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a global batch, padding included."""
        return self.blocks_per_step * self.blocks.block_tokens

    def blocks_read(self, steps: int) -> int:
        """Blocks of that many steps, replayed ones included."""
        return steps * self.blocks_per_step

    def epochs(self, steps: int) -> float:
        """How often that many steps go through the corpus."""
        return self.blocks_read(steps) * (1 - self.replay_share) / len(self.blocks)

    def steps_of(self, passes: float) -> int:
        """The fewest steps that go through the corpus that many times: a last batch goes on from its beginning."""
        # The tolerance keeps a product such as 10 * (1 - 0.1) from costing a step more.
        return math.ceil(passes * len(self.blocks) / (self.blocks_per_step * (1 - self.replay_share)) - 1e-9)

    def replay_passes(self, steps: int) -> float:
        """How often that many steps go through the replayed text."""
        return steps * self.blocks_per_step * self.replay_share / len(self.replay) if self.replay else 0.0

    def indices(self, step: int, rank: int, world_size: int) -> numpy.ndarray:
        """The blocks of one process in one step, int64 [blocks_per_step / world_size].

        Replayed blocks are numbered from the number of the corpus's blocks.
        """
        share = self.blocks_per_step // world_size
        places = step * self.blocks_per_step + rank * share + numpy.arange(share, dtype=numpy.int64)
        if self.replay is None:
            return self._in_order(places, len(self.blocks), CORPUS_STREAM)
        # In integers: a sum of fractions would drift over billions of blocks.
        weight = round(self.replay_share * SHARE_UNIT)
        replayed_before = places * weight // SHARE_UNIT
        is_replayed = (places + 1) * weight // SHARE_UNIT > replayed_before
        own = self._in_order(places - replayed_before, len(self.blocks), CORPUS_STREAM)
        replayed = self._in_order(replayed_before, len(self.replay), REPLAY_STREAM)
        return numpy.where(is_replayed, len(self.blocks) + replayed, own)

    def _in_order(self, places: numpy.ndarray, count: int, stream: int) -> numpy.ndarray:
        return places % count if self.sequential else blocks_at(places, count, self.seed, stream)

    def device_batches(self, step: int, rank: int, world_size: int) -> list[ModelInputs]:
        """What one process reads in one step, cut into passes of at most `device_batch_blocks` blocks.

        Each pass: input_ids, position_ids, labels, int64 [blocks, block_tokens]; with `one_row` what in_one_row gives.
        """
        passes = [self._read(part) for part in _parts(self.indices(step, rank, world_size), self.device_batch_blocks)]
        return [in_one_row(batch) if self.one_row else {**batch} for batch in passes]

    def _read(self, indices: numpy.ndarray) -> dict[str, torch.Tensor]:
        own = len(self.blocks)
        if self.replay is None or (indices < own).all():
            arrays = self.blocks.batch(indices.tolist())
        else:
            replay = self.replay
            rows = [self.blocks.batch([i]) if i < own else replay.batch([i - own]) for i in indices.tolist()]
            arrays = {name: numpy.concatenate([row[name] for row in rows]) for name in rows[0]}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _parts(values: numpy.ndarray, size: int) -> Iterator[numpy.ndarray]:
    for first in range(0, len(values), size):
        yield values[first : first + size]


def labelled_tokens(batch: Mapping[str, torch.Tensor | int]) -> int:
    """Tokens of a pass that the loss is taken over: the model predicts each position's label from the one before."""
    labels = batch["labels"]
    assert isinstance(labels, torch.Tensor)
    return int((labels[:, 1:] != IGNORED_LABEL).sum())


def on_device(batch: Mapping[str, torch.Tensor | int], device: torch.device) -> ModelInputs:
    """A pass whose tensors lie on a device."""
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def in_one_row(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | int]:
    """A pass of blocks [blocks, block_tokens] as one row [1, blocks * block_tokens], with its documents' bounds.

    No label crosses from one block to the next: each block starts with a document's first token, which has none.
    """
    positions = batch["position_ids"].flatten()
    starts = torch.nonzero(positions == 0).flatten()
    bounds = torch.cat([starts, starts.new_tensor([len(positions)])]).to(torch.int32)
    longest = int(bounds.diff().max())
    row: dict[str, torch.Tensor | int] = {name: tensor.reshape(1, -1) for name, tensor in batch.items()}
    return {**row, "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": longest, "max_length_k": longest}
