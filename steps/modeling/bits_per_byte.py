"""Bits per byte: how many bits a model needs for one byte of text it has not seen. It compares any two tokenizers.

    bits per byte = sum over all text tokens of -ln p(token | what stands before it) / ln 2 / UTF-8 bytes of the text

- One BOS stands before each document as context. It is never scored, nor is an end of document. A model without BOS
  (Qwen) has the token that ends a document in its place: in the stream that it was trained on, that is what stands
  before a document's first token, and leaving the first token out would leave out bits but not bytes.
- Every text token is scored exactly once. A document longer than the context is read in windows that overlap, so that
  each scored token has at least half a window of its own document behind it (or the document's start). Disjoint
  windows that skip each window's first token but count its bytes would flatter the result.
- The bytes are those of the source text; the bytes of the tokens must add up to exactly that text. A text that spells
  a special token is encoded as the letters that it is.
- Every model and tokenizer is measured by the same rule; how tokens are scored is in steps/modeling/token_losses.py.
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
from steps.modeling.token_losses import TokenScorer, Window
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import spelled_sizes, token_bytes_of


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


def cut_windows(sizes: np.ndarray, context: int, row: int = 0) -> list[Window]:
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
        windows.append(Window(row, start, scored, end))
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
    matmul_dtype: torch.dtype = torch.float32,
    tell: Callable[[float], None] | None = None,
) -> DocumentScores:
    """Bits, bytes and tokens of each document under a model (see the module's docstring).

    Exactly one context is given: context_bytes in UTF-8 bytes of text, context_tokens in tokens with BOS among them.
    batch_tokens bounds one forward pass, padding included; like the order of the documents it changes the result by
    rounding alone. matmul_dtype: of the model below its output layer. tell: gets the share of the work that is done,
    0 to 1, after each pass. Raises StepError for no or an empty document, one that its tokens do not spell, a window
    longer than the model's positions, a model that sees ahead, and figures that are not finite.
    """
    if (context_bytes is None) == (context_tokens is None):
        raise ValueError("give exactly one of context_bytes and context_tokens")
    if not documents:
        raise StepError("held-out documents", 0, limit="at least 1", remedy="Give more text.")
    rows = tokenise(tokenizer, documents)
    windows: list[Window] = []
    for index, (ids, token_bytes) in enumerate(rows):
        sizes = np.ones(len(ids), dtype=np.int64) if context_bytes is None else np.concatenate([[0], token_bytes])
        windows += cut_windows(sizes, context_bytes or context_tokens or 0, index)
    check_positions(model, windows, "context_tokens" if context_bytes is None else "context_bytes")
    was_training = model.training
    try:
        scorer = TokenScorer(model, matmul_dtype)
        nats = _nats_of_rows(scorer, [ids for ids, _ in rows], windows, batch_tokens, tell)
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


def context_token_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """What stands before a document: BOS, or the end of the document before it where a model has no BOS.

    Raises StepError for a tokenizer that has neither.
    """
    for token_id in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if token_id is not None:
            return int(token_id)
    raise StepError(
        "tokenizer", "no BOS and no EOS token", remedy="Set bos_token or eos_token in tokenizer_config.json."
    )


def tokenise(tokenizer: PreTrainedTokenizerBase, documents: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each document its ids after the token that gives context, [tokens + 1], and the bytes of each text token,
    [tokens]. Raises StepError for an empty document and for one that its tokens do not spell."""
    before, token_bytes = context_token_id(tokenizer), token_bytes_of(tokenizer)
    rows = []
    for index, (ids, text) in enumerate(zip(encode_plain(tokenizer, documents), documents, strict=True)):
        if not ids:
            raise StepError(f"held-out document {index}", "empty", remedy="Leave empty documents out.")
        sizes = spelled_sizes(token_bytes, ids, text)
        if sizes is None:
            raise StepError(
                f"held-out document {index}",
                f"its tokens do not spell it: {text[:40]!r}",
                remedy="Give a tokenizer that gives text back unchanged, and text in the form that it keeps (NFC).",
            )
        rows.append((np.array([before, *ids], dtype=np.int64), np.array(sizes, dtype=np.int64)))
    return rows


def check_positions(model: PreTrainedModel, windows: Sequence[Window], setting: str) -> None:
    """Raises StepError, which names the setting, for a window longer than the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(window.length for window in windows)
    if limit is not None and longest > limit:
        raise StepError(
            setting,
            f"the longest window has {longest} tokens",
            limit=f"{limit}, the model's max_position_embeddings",
            remedy=f"Lower {setting}.",
        )


def _nats_of_rows(
    scorer: TokenScorer,
    ids: Sequence[np.ndarray],
    windows: Sequence[Window],
    batch_tokens: int,
    tell: Callable[[float], None] | None,
) -> list[np.ndarray]:
    """Nats of each text token, one float64 array a document."""
    nats = [np.full(len(row) - 1, np.nan) for row in ids]
    scored_times = [np.zeros(len(row) - 1, dtype=np.int8) for row in ids]
    for window, scores in zip(windows, scorer.score(ids, windows, batch_tokens, tell=tell), strict=True):
        nats[window.row][window.scored - 1 : window.end - 1] = scores.nats
        scored_times[window.row][window.scored - 1 : window.end - 1] += 1
    assert all((times == 1).all() for times in scored_times), "a token was not scored exactly once"
    return nats
