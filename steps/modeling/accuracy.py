"""Accuracy by log-likelihood: how often a model finds the right answer more probable than the others.

A choice is scored as the continuation of its question, behind one space. Two figures: `plain` takes the choice with the
largest log-likelihood, `by_byte` the one with the largest log-likelihood a byte, which does not prefer short choices.
Bytes, not tokens: the tokens of two models differ. A tie is not right: a model that says the same of everything knows
nothing.

A next word is right where each of its tokens was the most probable one in its place; that the word ends there is not
asked, so a model that goes on to a longer word is right, too. `plain` and `by_byte` are the same for it.

Scored are all tokens that have a byte behind the question, so where a tokenizer joins the space or a letter of the
question with the answer, that token counts as the answer's. Intervals are Wilson's, 95%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import StepError
from steps.modeling.bits_per_byte import check_positions, tokenise
from steps.modeling.token_losses import TokenScorer, Window
from steps.schemas.evaluation import ModelAccuracy, Proportion
from steps.text.accuracy_items import NEXT_WORD, AccuracyItem, AccuracyTask

NORMAL_QUANTILE = 1.959963984540054


@dataclass(frozen=True)
class ScoredChoice:
    """Nats of one continuation, the bytes of its text, whether greedy decoding would have written it."""

    nats: float
    text_bytes: int
    is_greedy: bool


def measure_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: AccuracyTask,
    *,
    context_bytes: int,
    batch_tokens: int,
    matmul_dtype: torch.dtype = torch.float32,
    tell: Callable[[float], None] | None = None,
) -> ModelAccuracy:
    """The accuracy of one model on one task.

    context_bytes: of question and choice together; of a longer one the question's beginning is left out. Raises
    StepError for text that the tokenizer does not spell and for figures that are not finite.
    """
    ids, windows, sizes = [], [], []
    pairs = [(item, choice) for item in task.items for choice in item.choices]
    texts = [f"{item.context} {choice}" for item, choice in pairs]
    for row, ((item, choice), (tokens, token_bytes)) in enumerate(zip(pairs, tokenise(tokenizer, texts), strict=True)):
        kept, scored = _cut(tokens, token_bytes, len(item.context.encode()), context_bytes)
        ids.append(kept)
        windows.append(Window(row, 0, scored, len(kept)))
        sizes.append(len(choice.encode()))
    check_positions(model, windows, "context_bytes")
    scorer = TokenScorer(model, matmul_dtype)
    scores = scorer.score(ids, windows, batch_tokens, tell=tell, with_most_probable=task.kind == NEXT_WORD)
    found = []
    for window, of_window, text_bytes in zip(windows, scores, sizes, strict=True):
        nats = float(of_window.nats.sum())
        if not math.isfinite(nats):
            raise StepError(f"accuracy of {task.name}", nats, limit="a finite number", remedy="Look at the model.")
        wanted = ids[window.row][window.scored : window.end]
        is_greedy = task.kind == NEXT_WORD and bool((of_window.most_probable == wanted).all())
        found.append(ScoredChoice(nats, text_bytes, is_greedy))
    return _count(task.kind, task.items, found)


def _cut(tokens: np.ndarray, token_bytes: np.ndarray, before: int, context_bytes: int) -> tuple[np.ndarray, int]:
    """The ids that are read, the first always the token before a text, and the place of the first scored one.

    before: bytes of the question. All tokens of the answer stay, however long.
    """
    ends = np.cumsum(token_bytes)
    scored = int(np.searchsorted(ends, before, side="right"))
    left_out = int(np.searchsorted(ends, ends[-1] - context_bytes, side="left")) if ends[-1] > context_bytes else 0
    left_out = min(left_out + (ends[-1] > context_bytes), scored)
    return np.concatenate([tokens[:1], tokens[1 + left_out :]]), 1 + scored - left_out


def _count(kind: str, items: Sequence[AccuracyItem], found: Sequence[ScoredChoice]) -> ModelAccuracy:
    plain = by_byte = at = 0
    for item in items:
        choices, at = found[at : at + len(item.choices)], at + len(item.choices)
        if kind == NEXT_WORD:
            plain += choices[0].is_greedy
            by_byte += choices[0].is_greedy
            continue
        plain += _is_best([-choice.nats for choice in choices], item.answer)
        by_byte += _is_best([-choice.nats / choice.text_bytes for choice in choices], item.answer)
    return ModelAccuracy(plain=proportion(plain, len(items)), by_byte=proportion(by_byte, len(items)))


def _is_best(values: Sequence[float], answer: int) -> bool:
    """True where the answer's value is above all others."""
    return all(values[answer] > value for index, value in enumerate(values) if index != answer)


def proportion(right: int, of: int) -> Proportion:
    """A share with Wilson's 95% interval (E. B. Wilson, 1927), which also holds near 0 and 1."""
    share, z2 = right / of, NORMAL_QUANTILE**2
    centre = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = NORMAL_QUANTILE / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    # At 0 and 1 the ends meet the share but for rounding.
    low, high = min(max(0.0, centre - half), share), max(min(1.0, centre + half), share)
    return Proportion(right=right, share=share, ci95=(low, high))
