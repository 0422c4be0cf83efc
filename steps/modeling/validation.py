"""Bits per byte on packed validation blocks: the figure that training watches.

    bits per byte = nats of the scored text tokens / ln 2 / UTF-8 bytes of those tokens

Scored is each text token that has context within its block: BOS, end of text, padding and the first token of a
document's piece are left out with their bytes. It is a yardstick within one training; Evaluate measures whole
documents. A space that sentencepiece puts before a document is no byte of its text, though its bits count.
"""

from __future__ import annotations

import math

import numpy
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.modeling.attention import wants_one_row
from steps.modeling.batches import in_one_row, on_device
from steps.modeling.bits_per_byte import context_token_id
from steps.modeling.parallel import Processes, compute_precision, reshard
from steps.text.packing import IGNORED_LABEL, PackedBlocks
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import token_bytes_of

# Tokens of one forward pass: whole logits are kept here, unlike in training with a fused loss.
FORWARD_TOKENS = 4_096


class BlockValidation:
    """Measures a model on the first `max_blocks` validation blocks, spread over all processes."""

    def __init__(
        self, blocks: PackedBlocks, tokenizer: PreTrainedTokenizerBase, max_blocks: int, processes: Processes
    ) -> None:
        self.blocks, self.processes = blocks, processes
        self.count = min(max_blocks, len(blocks))
        token_bytes = token_bytes_of(tokenizer)
        special = [index for index, token in tokenizer.added_tokens_decoder.items() if token.special]
        self.is_text = numpy.ones(len(tokenizer), dtype=bool)
        self.is_text[special] = False
        # [tokens]; what stands for a special token is of no account.
        self.bytes_of_token = numpy.array([len(token_bytes[index]) for index in range(len(tokenizer))])
        (letter,) = encode_plain(tokenizer, ["a"])
        self.bytes_put_before = sum(self.bytes_of_token[letter]) - len("a")
        self.begin_token_id = context_token_id(tokenizer)

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
            scored &= self.is_text[numpy.where(scored, labels, 0)]
            scored[[index >= self.count for index in wanted]] = False
            labels = numpy.where(scored, labels, IGNORED_LABEL)
            nats += self._nats(model, batch, labels, precision)
            begins = (batch["input_ids"][:, :-1] == self.begin_token_id) & (batch["position_ids"][:, :-1] == 0)
            text_bytes += float(self.bytes_of_token[labels[scored]].sum())
            text_bytes -= float(self.bytes_put_before * (begins & scored).sum())
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
