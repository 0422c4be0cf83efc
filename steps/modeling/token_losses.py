"""Nats of single tokens under a causal model: windows of token ids in batches, log-softmax in float32, chunk by chunk.

Most of the memory of a forward pass is logits. So the model without its output layer reads whole windows, and the
output layer runs on the scored positions alone, a chunk of them at a time. Some models change their logits after the
output layer; what is done here is checked against the model's own logits before anything is scored, and a model that
does something else is asked for whole logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from steps.contract import StepError, warn

# Logits computed at once: 32 MiB in float32, whatever the vocabulary.
CHUNK_LOGITS = 2**23
# On a CPU larger batches are slower: what one layer hands to the next no longer fits into the cache.
CPU_BATCH_TOKENS = 2_048
# The output layer on the last hidden state must give the model's own logits, relative to their size.
HEAD_TOLERANCE = 1e-3
# Values that a cap or a scale of logits shows itself on; those of real models are rarely larger.
PROBED_LOGITS = 100.0
CHECKED_TOKENS = 8


@dataclass(frozen=True)
class Window:
    """Positions start..end (end excluded) of one row of ids; those from `scored` on are scored here. start < scored."""

    row: int
    start: int
    scored: int
    end: int

    @property
    def length(self) -> int:
        """Tokens that the model reads: the last position is a target alone."""
        return self.end - 1 - self.start


@dataclass(frozen=True)
class TokenScores:
    """Of the scored tokens of one window: -ln p as float64, and which token (an id) was the most probable in its place,
    empty where not asked for."""

    nats: np.ndarray
    most_probable: np.ndarray


class TokenScorer:
    """Scores tokens with one model, which it puts into evaluation mode.

    matmul_dtype: bfloat16 runs the matrix products below the output layer in bfloat16; the output layer and the
    log-softmax stay in float32. Raises StepError for a model that sees ahead.
    """

    def __init__(self, model: PreTrainedModel, matmul_dtype: torch.dtype = torch.float32) -> None:
        self._model = model.eval()
        self._matmul_dtype = matmul_dtype
        with torch.inference_mode():
            _check_causal(model)
            self._has_plain_head = has_plain_head(model)
        if not self._has_plain_head:
            warn(
                "whole-logits",
                f"{type(model).__name__} changes its logits in a way of its own: scored with whole logits, more slowly",
            )

    @property
    def vocabulary(self) -> int:
        """Rows of the input embedding."""
        return int(self._model.get_input_embeddings().weight.shape[0])

    def score(
        self,
        ids: Sequence[np.ndarray],
        windows: Sequence[Window],
        batch_tokens: int,
        *,
        tell: Callable[[float], None] | None = None,
        with_most_probable: bool = False,
    ) -> list[TokenScores]:
        """The scored tokens of each window, in the order of the windows; ids: int64, one array a row.

        batch_tokens bounds one forward pass, padding included. tell: gets the share done, 0 to 1, after each pass.
        """
        if self._model.device.type == "cpu":
            batch_tokens = min(batch_tokens, CPU_BATCH_TOKENS)
        if not self._has_plain_head:
            batch_tokens = min(batch_tokens, max(1, CHUNK_LOGITS // self.vocabulary))
        scores: list[TokenScores | None] = [None] * len(windows)
        total, done = sum(window.length for window in windows), 0
        with torch.inference_mode():
            for batch in _batches(windows, batch_tokens):
                found = self._score_batch(ids, [windows[index] for index in batch], with_most_probable)
                for index, of_window in zip(batch, found, strict=True):
                    scores[index] = of_window
                done += sum(windows[index].length for index in batch)
                if tell is not None:
                    tell(done / total)
        return [of_window for of_window in scores if of_window is not None]

    def _score_batch(
        self, ids: Sequence[np.ndarray], batch: Sequence[Window], with_most_probable: bool
    ) -> list[TokenScores]:
        # Padding stands on the right, where causal attention never looks, so its value is of no account.
        inputs = np.zeros((len(batch), batch[0].length), dtype=np.int64)
        for row, window in enumerate(batch):
            inputs[row, : window.length] = ids[window.row][window.start : window.end - 1]
        model, tensor = self._model, torch.from_numpy(inputs).to(self._model.device)
        # The caller's model may be in float32 on any device; without autocast nothing is cast.
        half = self._matmul_dtype == torch.bfloat16
        with torch.autocast(model.device.type, torch.bfloat16) if half else nullcontext():
            if self._has_plain_head:
                outputs = model.get_decoder()(input_ids=tensor, use_cache=False).last_hidden_state
            else:
                outputs = model(input_ids=tensor, use_cache=False).logits
        # The output at a position predicts the token after it.
        scored = torch.cat(
            [outputs[row, window.scored - 1 - window.start : window.length] for row, window in enumerate(batch)]
        )
        targets = np.concatenate([ids[window.row][window.scored : window.end] for window in batch])
        wanted = torch.from_numpy(targets).to(model.device)
        logits_of = output_layer(model) if self._has_plain_head else torch.nn.Identity()
        nats, most_probable = token_nats(logits_of, scored.float(), wanted, self.vocabulary, with_most_probable)
        ends = np.cumsum([window.end - window.scored for window in batch])[:-1]
        places = np.split(most_probable, ends) if with_most_probable else [most_probable] * len(batch)
        return [TokenScores(*pair) for pair in zip(np.split(nats, ends), places, strict=True)]


def _batches(windows: Sequence[Window], batch_tokens: int) -> list[list[int]]:
    """Indices of windows of similar length together, longest first; at least one a batch."""
    ordered = sorted(range(len(windows)), key=lambda index: (-windows[index].length, index))
    batches: list[list[int]] = []
    for index in ordered:
        if batches and (len(batches[-1]) + 1) * windows[batches[-1][0]].length <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def token_nats(
    logits_of: Callable[[torch.Tensor], torch.Tensor],
    states: torch.Tensor,
    targets: torch.Tensor,
    vocabulary: int,
    with_most_probable: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """-ln softmax(logits_of(states))[targets] as float64, and the ids of the largest logits or none: [tokens] each.

    logits_of maps [chunk, width] to [chunk, vocabulary]. The softmax is taken in float32, its logarithm in float64.
    May write over `states`.
    """
    rows = max(1, CHUNK_LOGITS // vocabulary)
    nats, most_probable = [], []
    for chunk, wanted in zip(states.split(rows), targets.split(rows), strict=True):
        logits = logits_of(chunk).float()
        if with_most_probable:
            most_probable.append(logits.argmax(dim=-1))
        # In place: each further tensor of this size would cost as much time as the sum itself.
        logits.sub_(logits.amax(dim=-1, keepdim=True))
        own = logits.gather(1, wanted[:, None])[:, 0].double()
        nats.append(logits.exp_().sum(dim=-1).double().log() - own)
    ids = torch.cat(most_probable) if most_probable else targets[:0]
    return torch.cat(nats).cpu().numpy(), ids.cpu().numpy()


def summed_nats(
    logits_of: Callable[[torch.Tensor], torch.Tensor], states: torch.Tensor, targets: torch.Tensor, vocabulary: int
) -> torch.Tensor:
    """The sum of -ln softmax(logits_of(states))[targets] to learn from, float32; arguments as of `token_nats`.

    In pieces whose logits are made again on the way back: those of all positions are never there at once.
    """
    rows = max(1, CHUNK_LOGITS // vocabulary)
    total = torch.zeros((), device=states.device)
    for chunk, wanted in zip(states.split(rows), targets.split(rows), strict=True):
        total = total + checkpoint(_chunk_nats, logits_of, chunk, wanted, use_reentrant=False)
    return total


def _chunk_nats(
    logits_of: Callable[[torch.Tensor], torch.Tensor], states: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits_of(states).float(), targets, reduction="sum")


# --- the output layer -------------------------------------------------------------------------------------------------


def output_layer(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """From last hidden states [tokens, hidden] to logits [tokens, vocabulary], caps and scales as configured."""
    head, finish = model.get_output_embeddings(), logit_finish(model)
    return lambda states: finish(head(states))


def logit_finish(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a model does to its logits after the output layer, by the names that configurations have for it.

    Gemma caps them: cap x tanh(logits / cap). Cohere multiplies them by logit_scale, Granite divides by logits_scaling.
    """
    config = model.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None)
    factor = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)

    def finish(logits: torch.Tensor) -> torch.Tensor:
        logits = logits if factor == 1.0 else logits * factor
        return logits if cap is None else torch.tanh(logits / cap) * cap

    return finish


def has_plain_head(model: PreTrainedModel) -> bool:
    """True where `output_layer` on the decoder's last hidden state gives the model's own logits.

    Looked at twice: on the model's own states, and with large logits put in the place of the output layer's, where a
    cap shows that hardly touches small ones. NaN passes: the check on the figures names it.
    """
    head, decoder = model.get_output_embeddings(), model.get_decoder()
    if head is None or decoder is None or decoder is model:
        return False
    inputs = _checked_inputs(model)
    expected = model(input_ids=inputs, use_cache=False).logits.float()
    states = decoder(input_ids=inputs, use_cache=False)
    if getattr(states, "last_hidden_state", None) is None or states.last_hidden_state.shape[-1] != head.weight.shape[1]:
        return False
    found = output_layer(model)(states.last_hidden_state).float()
    probe = torch.linspace(-PROBED_LOGITS, PROBED_LOGITS, expected.numel(), device=expected.device)
    probe = probe.reshape(expected.shape)
    hook = head.register_forward_hook(lambda module, arguments, output: probe.to(output.dtype))
    try:
        finished = model(input_ids=inputs, use_cache=False).logits.float()
    finally:
        hook.remove()
    return not _differ(found, expected) and not _differ(logit_finish(model)(probe), finished)


def _differ(found: torch.Tensor, expected: torch.Tensor) -> bool:
    found, expected = found.detach(), expected.detach()
    return float((found - expected).abs().max()) > HEAD_TOLERANCE * max(1.0, float(expected.abs().max()))


def _checked_inputs(model: PreTrainedModel) -> torch.Tensor:
    """A few token ids, [1, tokens]."""
    rows = int(model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    return (torch.arange(CHECKED_TOKENS, device=model.device) * 37 % rows)[None]


def _check_causal(model: PreTrainedModel) -> None:
    """Raises StepError where a later token changes what the model says before it."""
    inputs = _checked_inputs(model)
    whole = model(input_ids=inputs, use_cache=False).logits.float()
    half = model(input_ids=inputs[:, : CHECKED_TOKENS // 2], use_cache=False).logits.float()
    if _differ(half, whole[:, : CHECKED_TOKENS // 2]):
        raise StepError(
            "model",
            f"{type(model).__name__} looks at tokens that come later",
            limit="a causal language model",
            remedy="Give a model that is trained to predict the next token.",
        )
