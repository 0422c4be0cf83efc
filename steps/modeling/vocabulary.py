"""The embeddings and head of a causal language model, replaced in place for a new tokenizer.

The modules stay, their matrices are exchanged: some families do more in them than look up rows (Gemma 3's embedding
scales them). transformers' resize_token_embeddings is not used: it re-initialises rows by a rule of its own
(transformers#33325, #35141).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from steps.contract import StepError
from steps.modeling.initialisers import RowMixture, compose_rows
from steps.modeling.loading import check_tie, is_tied
from steps.modeling.vocabulary_plan import VocabularyPlan


@dataclass(frozen=True)
class BaseRows:
    """The base model's input embedding and, where it is not tied, its head, [base rows, width] each; a head's bias
    [base rows, 1]. They share storage with the model until its vocabulary is replaced."""

    embedding: torch.Tensor
    head: torch.Tensor | None
    bias: torch.Tensor | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> BaseRows:
        """The rows as they are now. Raises StepError for a model that has no head, or further rows by token id."""
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if head is None:
            raise StepError("base model", "no output head", remedy="Give a causal language model.")
        rows = len(input_matrix(model))
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Embedding) and module is not embedding and module.num_embeddings == rows:
                value = f"{name} has a row for each token too"
                raise StepError("base model", value, limit="one input embedding", remedy="Give another model.")
        bias = getattr(head, "bias", None)
        return cls(
            embedding=input_matrix(model),
            head=None if is_tied(model) else head.weight.detach(),
            bias=None if bias is None else bias.detach()[:, None],
        )


def input_matrix(model: PreTrainedModel) -> torch.Tensor:
    """The input embedding, [rows, width], without its gradient."""
    matrix = model.get_input_embeddings().weight
    assert isinstance(matrix, torch.Tensor)
    return matrix.detach()


def replace_vocabulary(
    model: PreTrainedModel,
    base: BaseRows,
    plan: VocabularyPlan,
    pad_token_id: int | None,
    *,
    initialiser: str,
    seed: int = 0,
    similar: RowMixture | None = None,
) -> None:
    """Gives the model new embeddings and head, in place. May be called again with another initialiser: all rows are
    made from `base`. similar: what the initialiser `focus` needs."""
    spread = float(getattr(model.config.get_text_config(), "initializer_range", 0.02))
    head: torch.nn.Linear = model.get_output_embeddings()
    embedding: torch.nn.Embedding = model.get_input_embeddings()  # type: ignore[assignment]
    before = len(input_matrix(model))

    def compose(matrix: torch.Tensor, seed: int, is_bias: bool = False) -> torch.nn.Parameter:
        rows = compose_rows(
            matrix, plan, initialiser, spread=spread, seed=seed, similar=similar, is_bias=is_bias
        )  # fmt: skip
        rows = rows[:, 0] if is_bias else rows
        return torch.nn.Parameter(rows.to(matrix.device, matrix.dtype))

    embedding.weight = compose(base.embedding, seed)
    embedding.num_embeddings = head.out_features = plan.rows
    if embedding.padding_idx is not None:
        embedding.padding_idx = pad_token_id
    head.weight = embedding.weight if base.head is None else compose(base.head, seed + 1)
    if base.bias is not None:
        head.bias = compose(base.bias, seed + 2, is_bias=True)
    for module in model.modules():
        if getattr(module, "vocab_size", None) == before:
            module.vocab_size = plan.rows  # type: ignore[assignment]
    model.config.get_text_config().vocab_size = plan.rows
    if hasattr(model.config, "vocab_size"):
        model.config.vocab_size = plan.rows
    model.tie_weights()
    check_tie(model)
