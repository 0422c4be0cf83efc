"""Which blocks make which step: a pure function of (seed, step, rank), found without reading what came before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy
import torch

from steps.contract import ConfigError, StepError
from steps.text.packing import IGNORED_LABEL, PackedBlocks


@lru_cache(maxsize=2)
def permutation(seed: int, epoch: int, blocks: int) -> numpy.ndarray:
    """The order of all blocks in one pass over them, int64 [blocks]."""
    return numpy.random.default_rng([seed, epoch]).permutation(blocks)


@dataclass(frozen=True)
class BatchPlan:
    """Blocks in an order of their own for each epoch, cut into global batches; a batch may lie across two epochs.

    The global batch of a step is the same for any number of processes; each takes its share of it.
    """

    blocks: PackedBlocks
    blocks_per_step: int
    device_batch_blocks: int
    seed: int

    @classmethod
    def of(
        cls, blocks: PackedBlocks, global_batch_tokens: int, device_batch_blocks: int, seed: int, world_size: int
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
        return cls(blocks, blocks_per_step, device_batch_blocks, seed)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a global batch, padding included."""
        return self.blocks_per_step * self.blocks.block_tokens

    def indices(self, step: int, rank: int, world_size: int) -> numpy.ndarray:
        """The blocks of one process in one step, int64 [blocks_per_step / world_size]."""
        share = self.blocks_per_step // world_size
        count = len(self.blocks)
        places = step * self.blocks_per_step + rank * share + numpy.arange(share)
        return numpy.array([permutation(self.seed, place // count, count)[place % count] for place in places.tolist()])

    def device_batches(self, step: int, rank: int, world_size: int) -> list[dict[str, torch.Tensor]]:
        """What one process reads in one step, cut into passes of at most `device_batch_blocks` blocks.

        Each pass: input_ids, position_ids, labels, int64 [blocks, block_tokens].
        """
        indices = self.indices(step, rank, world_size)
        return [
            {name: torch.from_numpy(array) for name, array in self.blocks.batch(part).items()}
            for part in _parts(indices.tolist(), self.device_batch_blocks)
        ]


def _parts(values: list[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(values), size):
        yield values[first : first + size]


def labelled_tokens(batch: dict[str, torch.Tensor]) -> int:
    """Tokens of a pass that the loss is taken over: the model predicts each position's label from the one before."""
    return int((batch["labels"][:, 1:] != IGNORED_LABEL).sum())
