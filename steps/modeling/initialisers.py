"""First values of a new vocabulary's rows, made from the rows of a base matrix. Each matrix is treated alike: the input
embedding, an untied head, a head's bias.

- copy+subtoken_mean: copied tokens keep their rows; another has the mean of the rows of its sub-tokens.
- copy+mean: copied tokens keep their rows; another has the mean of all base rows.
- focus: copied tokens keep their rows; another has a weighted sum of them (steps/modeling/focus.py).
- extend: each base row stays where it is, for a tokenizer that adds tokens behind the base's; the added ones have the
  mean of their sub-tokens' rows.
- normal: nothing is copied, all rows are drawn from N(0, initializer_range^2).

Special tokens without a counterpart, and rows beyond the tokenizer's tokens that pad the vocabulary, have the mean of
the base rows. So has a token whose row would be all but zero: bases hold tokens that they never trained (Llama 3's
reserved and chat tokens), and a row of zeros gives training gradients that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from steps.contract import StepError
from steps.modeling.vocabulary_plan import VocabularyPlan

# Rows made at once: at 4,096 wide 64 MiB in float32, beside the two matrices.
CHUNK_ROWS = 4_096
# A row shorter than this share of the base rows' median length says nothing.
NEGLIGIBLE_LENGTH = 1e-3


@dataclass(frozen=True)
class RowMixture:
    """New rows as weighted sums of base rows: the row `ids[n]` is the sum over k in starts[n] .. starts[n + 1] of
    weights[k] x base row base_ids[k]. All int64 but weights, which are float32."""

    ids: torch.Tensor
    starts: torch.Tensor
    base_ids: torch.Tensor
    weights: torch.Tensor

    @classmethod
    def means(cls, pieces: Mapping[int, Sequence[int]]) -> RowMixture:
        """Each row the mean of base rows; those without any are left out."""
        named = {index: ids for index, ids in pieces.items() if ids}
        lengths = torch.tensor([len(ids) for ids in named.values()], dtype=torch.int64)
        return cls(
            ids=torch.tensor(list(named), dtype=torch.int64),
            starts=torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
            base_ids=torch.tensor([base_id for ids in named.values() for base_id in ids], dtype=torch.int64),
            weights=(1.0 / lengths.float()).repeat_interleave(lengths),
        )

    def write(self, base: torch.Tensor, rows: torch.Tensor) -> None:
        """Fills rows [new rows, width] from base [base rows, width], both float32, a chunk at a time."""
        for first in range(0, len(self.ids), CHUNK_ROWS):
            last = min(first + CHUNK_ROWS, len(self.ids))
            begin, end = int(self.starts[first]), int(self.starts[last])
            rows[self.ids[first:last]] = torch.nn.functional.embedding_bag(
                self.base_ids[begin:end],
                base,
                self.starts[first:last] - begin,
                mode="sum",
                per_sample_weights=self.weights[begin:end],
            )


def compose_rows(
    base: torch.Tensor,
    plan: VocabularyPlan,
    initialiser: str,
    *,
    spread: float,
    seed: int,
    similar: RowMixture | None = None,
    is_bias: bool = False,
) -> torch.Tensor:
    """The new matrix [plan.rows, width] from the base's [base rows, width], in float32 on the CPU.

    spread: standard deviation of the initialiser `normal`. similar: what `focus` needs. is_bias: the base is a head's
    bias, [base rows, 1], which may be zero; `normal` makes it so. Needs memory for the result and, where the base is in
    another dtype than float32, for a copy of it. Raises StepError for rows that are not finite, and for `extend` with a
    tokenizer that does not extend the base's.
    """
    source = base.detach().float().cpu()
    used = source[: plan.base_tokens]
    generator = torch.Generator().manual_seed(seed)
    rows = used.mean(dim=0).repeat(plan.rows, 1)
    if initialiser == "normal":
        rows[: plan.tokens].normal_(std=0.0 if is_bias else spread, generator=generator)
        return rows
    mixture = RowMixture.means(plan.composed)
    if initialiser == "focus":
        assert similar is not None, "focus needs the similar tokens"
        _draw_like_base(rows, used, _text_tokens(plan), generator)
        mixture = similar
    elif initialiser == "copy+mean":
        mixture = RowMixture.means({})
    elif initialiser not in ("copy+subtoken_mean", "extend"):
        raise ValueError(f"unknown initialiser {initialiser}")
    mixture.write(source, rows)
    RowMixture.means({new: (origin,) for new, origin in plan.copied.items()}).write(source, rows)
    kept = 0
    if initialiser == "extend":
        check_extends(plan)
        kept = plan.base_tokens
        rows[:kept] = used
        # Rows that no token uses stay too, where the new tokens leave any.
        rows[plan.tokens : len(source)] = source[plan.tokens :]
    if not is_bias:
        _fill_negligible(rows[kept : plan.tokens], used)
    if not torch.isfinite(rows).all():
        raise StepError("base model", "embedding rows that are not finite", remedy="Fetch the model again.")
    return rows


def check_extends(plan: VocabularyPlan) -> None:
    """Raises StepError where the new tokenizer is no extension of the base's."""
    if plan.not_extended:
        raise StepError(
            "initialiser extend",
            plan.not_extended,
            limit="a tokenizer that keeps every id of the base's",
            remedy="Choose an extended tokenizer or another initialiser.",
        )


def _text_tokens(plan: VocabularyPlan) -> list[int]:
    return [index for index in plan.composed if index not in plan.special]


def _draw_like_base(rows: torch.Tensor, used: torch.Tensor, ids: list[int], generator: torch.Generator) -> None:
    """Rows drawn from a normal distribution with the base rows' mean and spread of each component."""
    mean, spread = used.mean(dim=0), used.std(dim=0)
    for chunk in torch.tensor(ids, dtype=torch.int64).split(CHUNK_ROWS):
        rows[chunk] = mean + spread * torch.randn(len(chunk), rows.shape[1], generator=generator)


def _fill_negligible(rows: torch.Tensor, used: torch.Tensor) -> None:
    """Gives rows that are all but zero the mean of the base rows, in place."""
    negligible = rows.norm(dim=1) < NEGLIGIBLE_LENGTH * used.norm(dim=1).median()
    rows[negligible] = used.mean(dim=0)
