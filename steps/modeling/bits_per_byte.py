"""Bits per byte: how many bits a model needs for one byte of text it has not seen. It compares any two tokenizers.

    bits per byte = sum over all text tokens of -ln p(token | what stands before it) / ln 2 / UTF-8 bytes of the text

- One BOS stands before each document as context. It is never scored, nor is an end of document.
- Every text token is scored exactly once. A document longer than the context is read in windows that overlap, so that
  each scored token has at least half a window of its own document behind it (or the document's start). Disjoint
  windows that skip each window's first token but count its bytes would flatter the result.
- The bytes are those of the source text; the bytes of the tokens must add up to exactly that text. A text that spells
  a special token is encoded as the letters that it is.
- All sums are in float64, over all documents, with one division at the end: never a mean of means.

The context is given in tokens or in bytes. At equal tokens the tokenizer with longer tokens sees more text, so models
with different tokenizers are compared at equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import StepError
from steps.modeling.loading import encode_plain
from steps.text.token_bytes import TokenBytes

# Logits computed at once: 64 MiB in float32, whatever the vocabulary.
CHUNK_LOGITS = 2**24
# The output layer on the last hidden state must give the model's own logits, relative to their size.
HEAD_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DocumentScores:
    """One entry a document, in the order given: `bits` float64, `bytes` (UTF-8, of the source) and `tokens` int64."""

    bits: np.ndarray
    bytes: np.ndarray
    tokens: np.ndarray

    @property
    def bits_per_byte(self) -> float:
        """All bits over all bytes."""
        return float(self.bits.sum() / self.bytes.sum())

    @property
    def documents(self) -> int:
        """How many documents were scored."""
        return len(self.bytes)

    @property
    def bytes_scored(self) -> int:
        """UTF-8 bytes of all of them."""
        return int(self.bytes.sum())


@dataclass(frozen=True)
class Window:
    """Positions start..end (end excluded) of one document; those from `scored` on are scored here. start < scored."""

    document: int
    start: int
    scored: int
    end: int

    @property
    def length(self) -> int:
        """Tokens that the model reads: the last position is a target alone."""
        return self.end - 1 - self.start


def cut_windows(sizes: np.ndarray, context: int, document: int = 0) -> list[Window]:
    """Windows over one document whose positions have these sizes; the sum of sizes in a window is at most `context`.

    Position 0 is BOS. Each position from 1 on is scored in exactly one window, with sizes of at least context / 2
    before it in the window, or with everything back to BOS. A position larger than context / 2 may overrun a window;
    it is still scored once, with at least that half before it.
    """
    ends = np.concatenate([[0], np.cumsum(sizes)])
    windows = []
    scored = 1
    while scored < len(sizes):
        half_behind = ends[scored] - (context + 1) // 2
        start = int(np.searchsorted(ends, half_behind, side="right")) - 1 if half_behind > 0 else 0
        end = int(np.searchsorted(ends, ends[start] + context, side="right")) - 1
        end = max(end, scored + 1)
        windows.append(Window(document, start, scored, end))
        scored = end
    return windows


def score_documents(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[str],
    *,
    context_bytes: int | None = None,
    context_tokens: int | None = None,
    batch_tokens: int,
    tell: Callable[[float], None] | None = None,
) -> DocumentScores:
    """Bits, bytes and tokens of each document under a model (see the module's docstring).

    Exactly one context is given: context_bytes in UTF-8 bytes of text, context_tokens in tokens with BOS among them.
    batch_tokens bounds one forward pass, padding included; like the order of the documents it changes the result by
    rounding alone. tell: gets the share of the work that is done, 0 to 1, after each pass. Raises StepError for no or
    an empty document, one that its tokens do not spell, a window longer than the model's positions, and figures that
    are not finite.
    """
    if (context_bytes is None) == (context_tokens is None):
        raise ValueError("give exactly one of context_bytes and context_tokens")
    if not documents:
        raise StepError("held-out documents", 0, limit="at least 1", remedy="Give more text.")
    rows = _tokenize(tokenizer, documents)
    windows: list[Window] = []
    for index, (ids, token_bytes) in enumerate(rows):
        sizes = np.ones(len(ids), dtype=np.int64) if context_bytes is None else np.concatenate([[0], token_bytes])
        windows += cut_windows(sizes, context_bytes or context_tokens or 0, index)
    _check_positions(model, windows, "context_tokens" if context_bytes is None else "context_bytes")
    was_training = model.training
    model.eval()
    try:
        nats = _score_windows(model, [ids for ids, _ in rows], windows, batch_tokens, tell)
    finally:
        model.train(was_training)
    scores = DocumentScores(
        bits=np.array([row.sum() / math.log(2) for row in nats], dtype=np.float64),
        bytes=np.array([token_bytes.sum() for _, token_bytes in rows], dtype=np.int64),
        tokens=np.array([len(row) for row in nats], dtype=np.int64),
    )
    if not np.isfinite(scores.bits).all():
        raise StepError("bits per byte", scores.bits_per_byte, limit="a finite number", remedy="Look at the model.")
    return scores


def _tokenize(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each document its ids with BOS first, [tokens + 1], and the bytes of each text token, [tokens]."""
    if tokenizer.bos_token_id is None:
        raise StepError("tokenizer", "no BOS token", remedy="Set bos_token in tokenizer_config.json.")
    token_bytes = TokenBytes(tokenizer)
    encoded = encode_plain(tokenizer, documents)
    rows = []
    for index, (ids, text) in enumerate(zip(encoded, documents, strict=True)):
        pieces = [token_bytes[token_id] for token_id in ids]
        if not pieces:
            raise StepError(f"held-out document {index}", "empty", remedy="Leave empty documents out.")
        if b"".join(pieces) != text.encode():
            raise StepError(
                f"held-out document {index}",
                f"its tokens do not spell it: {text[:40]!r}",
                remedy="Give a tokenizer that gives text back unchanged, and text in the form that it keeps (NFC).",
            )
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        rows.append((np.array([tokenizer.bos_token_id, *ids], dtype=np.int64), sizes))
    return rows


def _check_positions(model: PreTrainedModel, windows: Sequence[Window], setting: str) -> None:
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(window.length for window in windows)
    if limit is not None and longest > limit:
        raise StepError(
            setting,
            f"the longest window has {longest} tokens",
            limit=f"{limit}, the model's max_position_embeddings",
            remedy=f"Lower {setting}.",
        )


def _score_windows(
    model: PreTrainedModel,
    ids: Sequence[np.ndarray],
    windows: Sequence[Window],
    batch_tokens: int,
    tell: Callable[[float], None] | None,
) -> list[np.ndarray]:
    """Nats of each text token, one float64 array a document."""
    nats = [np.full(len(row) - 1, np.nan) for row in ids]
    scored_times = [np.zeros(len(row) - 1, dtype=np.int8) for row in ids]
    with torch.inference_mode():
        _check_output_layer(model, ids[0])
        total, done = sum(window.length for window in windows), 0
        for batch in _batches(windows, batch_tokens):
            losses = _score_batch(model, ids, batch)
            for window, values in zip(batch, losses, strict=True):
                nats[window.document][window.scored - 1 : window.end - 1] = values
                scored_times[window.document][window.scored - 1 : window.end - 1] += 1
            done += sum(window.length for window in batch)
            if tell is not None:
                tell(done / total)
    assert all((times == 1).all() for times in scored_times), "a token was not scored exactly once"
    return nats


def _batches(windows: Sequence[Window], batch_tokens: int) -> list[list[Window]]:
    """Windows of similar length together, longest first; at least one a batch."""
    ordered = sorted(windows, key=lambda window: (-window.length, window.document, window.start))
    batches: list[list[Window]] = []
    for window in ordered:
        if batches and (len(batches[-1]) + 1) * batches[-1][0].length <= batch_tokens:
            batches[-1].append(window)
        else:
            batches.append([window])
    return batches


def _score_batch(model: PreTrainedModel, ids: Sequence[np.ndarray], batch: Sequence[Window]) -> list[np.ndarray]:
    """Nats of the scored tokens of each window."""
    # Padding stands on the right, where causal attention never looks, so its value is of no account.
    inputs = np.zeros((len(batch), batch[0].length), dtype=np.int64)
    for row, window in enumerate(batch):
        inputs[row, : window.length] = ids[window.document][window.start : window.end - 1]
    decoder = model.get_decoder()
    hidden = decoder(input_ids=torch.from_numpy(inputs).to(model.device), use_cache=False).last_hidden_state
    # The state at a position predicts the token after it.
    states = torch.cat(
        [hidden[row, window.scored - 1 - window.start : window.length] for row, window in enumerate(batch)]
    )
    targets = np.concatenate([ids[window.document][window.scored : window.end] for window in batch])
    values = token_nats(model.get_output_embeddings(), states, torch.from_numpy(targets).to(model.device))
    ends = np.cumsum([window.end - window.scored for window in batch])
    return np.split(values, ends[:-1])


def token_nats(head: torch.nn.Module, states: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """-ln softmax(head(states))[targets], [tokens] float64: logits in float32, sums in float64, chunk by chunk."""
    rows = max(1, CHUNK_LOGITS // head.weight.shape[0])  # type: ignore[index]
    values = []
    for chunk, wanted in zip(states.split(rows), targets.split(rows), strict=True):
        logits = head(chunk).float()
        shifted = logits - logits.max(dim=-1, keepdim=True).values
        log_sum = shifted.exp().sum(dim=-1, dtype=torch.float64).log()
        values.append(log_sum - shifted.gather(1, wanted[:, None])[:, 0].double())
    return torch.cat(values).cpu().numpy()


def _check_output_layer(model: PreTrainedModel, ids: np.ndarray) -> None:
    """Raises StepError for a model that changes its logits after the output layer (a cap, a scale)."""
    inputs = torch.from_numpy(ids[None, :8]).to(model.device)
    expected = model(input_ids=inputs, use_cache=False).logits.float()
    hidden = model.get_decoder()(input_ids=inputs, use_cache=False).last_hidden_state
    difference = float((model.get_output_embeddings()(hidden).float() - expected).abs().max())
    limit = HEAD_TOLERANCE * max(1.0, float(expected.abs().max()))
    # Written so that NaN passes: the check on the figures names it.
    if difference > limit:
        raise StepError(
            "model",
            f"its logits differ by {difference:.3g} from its output layer's",
            limit=f"{limit:.3g}",
            remedy="Give a model of the Llama, Mistral or Qwen form.",
        )


def paired_bootstrap(
    bits_a: np.ndarray, bits_b: np.ndarray, document_bytes: np.ndarray, resamples: int, seed: int
) -> tuple[float, float]:
    """95% interval of (bits of a - bits of b) / bytes, documents drawn with replacement, both models on the same ones.

    bits_a, bits_b and document_bytes are [documents]. The ends are the 2.5% and 97.5% quantiles of the resamples.
    """
    if not len(bits_a) == len(bits_b) == len(document_bytes):
        raise ValueError("one entry a document in each array")
    generator = np.random.default_rng(seed)
    difference = np.asarray(bits_a, dtype=np.float64) - np.asarray(bits_b, dtype=np.float64)
    values = np.empty(resamples)
    for index in range(resamples):
        drawn = generator.integers(0, len(difference), len(difference))
        values[index] = difference[drawn].sum() / document_bytes[drawn].sum()
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
