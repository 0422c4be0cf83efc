"""Bits per byte on packed validation blocks: the figure that training watches.

    bits per byte = nats of the scored text tokens / ln 2 / UTF-8 bytes of those tokens

Scored is each text token that has context within its block: BOS, end of text, padding and the first token of a
document's piece are left out with their bytes. It is a yardstick within one training; Evaluate measures whole
documents.
"""

from __future__ import annotations

import math

import numpy
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.modeling.attention import wants_one_row
from steps.modeling.batches import in_one_row, on_device
from steps.modeling.parallel import Processes, compute_precision, reshard
from steps.text.packing import IGNORED_LABEL, PackedBlocks
from steps.text.token_bytes import TokenBytes

# Tokens of one forward pass: whole logits are kept here, unlike in training with a fused loss.
FORWARD_TOKENS = 4_096


class BlockValidation:
    """Measures a model on the first `max_blocks` validation blocks, spread over all processes."""

    def __init__(
        self, blocks: PackedBlocks, tokenizer: PreTrainedTokenizerBase, max_blocks: int, processes: Processes
    ) -> None:
        self.blocks, self.processes = blocks, processes
        self.count = min(max_blocks, len(blocks))
        token_bytes = TokenBytes(tokenizer)
        special = set(tokenizer.added_tokens_decoder)
        # Bytes of each text token, [tokens]; 0 for special ones, which are not text.
        self.bytes_of_token = numpy.array(
            [0 if index in special else len(token_bytes[index]) for index in range(len(tokenizer))], dtype=numpy.int64
        )

    @torch.no_grad()
    def __call__(self, model: PreTrainedModel, precision: str) -> float:
        """Bits per byte of the model as it is now. All processes must call it; each gets the same figure."""
        was_training = model.training
        model.eval()
        device_batch = max(1, FORWARD_TOKENS // self.blocks.block_tokens)
        stride = device_batch * self.processes.world_size
        nats = text_bytes = 0.0
        # Every process makes the same number of passes: a sharded model's forward is a collective operation.
        for first in range(0, self.count, stride):
            wanted = range(first + self.processes.rank * device_batch, first + (self.processes.rank + 1) * device_batch)
            batch = self.blocks.batch([min(index, self.count - 1) for index in wanted])
            labels = batch["labels"][:, 1:]
            scored = labels != IGNORED_LABEL
            sizes = numpy.where(scored, self.bytes_of_token[numpy.where(scored, labels, 0)], 0)
            sizes[[index >= self.count for index in wanted]] = 0
            nats += self._nats(model, batch, numpy.where(sizes > 0, labels, IGNORED_LABEL), precision)
            text_bytes += float(sizes.sum())
        reshard(model)
        model.train(was_training)
        nats, text_bytes = self.processes.sum(nats, text_bytes)
        return nats / math.log(2) / text_bytes

    def _nats(
        self, model: PreTrainedModel, batch: dict[str, numpy.ndarray], labels: numpy.ndarray, precision: str
    ) -> float:
        """Sum over the labels [blocks, block_tokens - 1], in float64. Without labels given, Liger keeps the logits."""
        device = self.processes.device
        inputs = {name: torch.from_numpy(batch[name]) for name in ("input_ids", "position_ids")}
        with compute_precision(self.processes, precision):
            logits = model(
                **on_device(in_one_row(inputs) if wants_one_row(model) else inputs, device), use_cache=False
            ).logits
        logits = logits.unflatten(1, (-1, self.blocks.block_tokens)).flatten(0, 1)[:, :-1]
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1),
            torch.from_numpy(labels).flatten().to(device),
            ignore_index=IGNORED_LABEL,
            reduction="none",
        )
        return float(losses.double().sum())
