"""The embeddings of a causal language model, rebuilt for a new tokenizer.

A new token that the base tokenizer has too (the same bytes, or a special token of the same name) keeps its row. The
others are composed by an initialiser:

- copy+subtoken_mean: the mean of the rows of the base tokens that the new token's bytes fall into,
- copy+mean: the mean of all base rows,
- normal: nothing is copied, all rows are drawn from N(0, initializer_range^2).

Rows beyond the tokenizer's tokens pad the vocabulary to a multiple of 64; they hold the mean of the base rows, and no
text reaches them. transformers' resize_token_embeddings is not used: it re-initialises rows by a rule of its own
(transformers#33325, #35141).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import StepError
from steps.modeling.generation import stop_token_ids
from steps.modeling.loading import check_tie, encode_plain, is_tied
from steps.text.bbpe import VOCABULARY_MULTIPLE
from steps.text.token_bytes import TokenBytes, byte_of_character


@dataclass(frozen=True)
class VocabularyPlan:
    """Where each row of the new vocabulary comes from.

    rows: rows of the new matrices, a multiple of 64; tokens: those that the new tokenizer uses.
    base_tokens: rows of the base matrices that stand for a token; the mean is taken over them.
    copied: base id by new id. composed: base ids of the sub-tokens by new id, empty for a special token.
    """

    rows: int
    tokens: int
    base_tokens: int
    copied: dict[int, int]
    composed: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class BaseRows:
    """Copies of the base model's input embedding and, where it is not tied, its head: [base rows, hidden] each."""

    embedding: torch.Tensor
    head: torch.Tensor | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> BaseRows:
        """The rows as they are now. Raises StepError for a head with a bias."""
        head = model.get_output_embeddings()
        if getattr(head, "bias", None) is not None:
            raise StepError("base model", "its output head has a bias", remedy="Give a model of the Llama family.")
        embedding = input_matrix(model).clone()
        return cls(embedding, None if is_tied(model) else head.weight.detach().clone())


def input_matrix(model: PreTrainedModel) -> torch.Tensor:
    """The input embedding, [rows, hidden], without its gradient."""
    matrix = model.get_input_embeddings().weight
    assert isinstance(matrix, torch.Tensor)
    return matrix.detach()


def plan_vocabulary(base: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, base_rows: int) -> VocabularyPlan:
    """The origin of every new row. `base_rows` is the height of the base model's embedding.

    Raises StepError where a tokenizer is not byte-level, or the base model has fewer rows than its tokenizer tokens.
    """
    if len(base) > base_rows:
        raise StepError(
            "base model",
            f"{base_rows} embedding rows",
            limit=f"{len(base)} tokens of its tokenizer",
            remedy="Give the tokenizer that belongs to the model.",
        )
    base_bytes, new_bytes = TokenBytes(base), TokenBytes(new)
    base_added = {token.content: index for index, token in base.added_tokens_decoder.items()}
    new_added = {index: token.content for index, token in new.added_tokens_decoder.items()}
    base_id = {base_bytes[index]: index for index in range(len(base)) if index not in base.added_tokens_decoder}
    copied: dict[int, int] = {}
    composed: dict[int, tuple[int, ...]] = {}
    missing: list[int] = []
    for index in range(len(new)):
        if index in new_added:
            origin = base_added.get(new_added[index], _id_of_role(base, new, index))
        else:
            origin = base_id.get(new_bytes[index])
        if origin is not None:
            copied[index] = origin
        elif index in new_added:
            composed[index] = ()
        else:
            missing.append(index)
    pieces = subtokens(base, base_bytes, [new_bytes[index] for index in missing])
    composed.update(zip(missing, pieces, strict=True))
    rows = -(-len(new) // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    return VocabularyPlan(rows=rows, tokens=len(new), base_tokens=len(base), copied=copied, composed=composed)


def _id_of_role(base: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, index: int) -> int | None:
    """The base's begin or end of text where the new token has that role under another name."""
    if index == new.bos_token_id:
        return base.bos_token_id
    return base.eos_token_id if index == new.eos_token_id else None


def subtokens(
    tokenizer: PreTrainedTokenizerBase, token_bytes: TokenBytes, texts: Sequence[bytes]
) -> list[tuple[int, ...]]:
    """The ids that each byte string falls into. Bytes that end inside a character have no text to tokenise: the merges
    are applied to them directly."""
    decoded = [text.decode("utf-8", errors="replace") for text in texts]
    encoded = encode_plain(tokenizer, decoded)
    character_of_byte = {byte: character for character, byte in byte_of_character().items()}
    found = []
    for text, ids in zip(texts, encoded, strict=True):
        if b"".join(token_bytes[index] for index in ids) != text:
            spelling = "".join(character_of_byte[byte] for byte in text)
            ids = [token.id for token in tokenizer.backend_tokenizer.model.tokenize(spelling)]
            assert b"".join(token_bytes[index] for index in ids) == text, f"{text!r} falls into other bytes"
        found.append(tuple(ids))
    return found


def compose_rows(base: torch.Tensor, plan: VocabularyPlan, initialiser: str, spread: float, seed: int) -> torch.Tensor:
    """The new matrix [plan.rows, hidden] from the base's [base rows, hidden], in the same dtype.

    spread: standard deviation of the initialiser `normal`. Means are taken in float32.
    """
    source = base.float()
    mean = source[: plan.base_tokens].mean(dim=0)
    rows = mean.repeat(plan.rows, 1)
    if initialiser == "normal":
        generator = torch.Generator().manual_seed(seed)
        rows[: plan.tokens] = spread * torch.randn(plan.tokens, source.shape[1], generator=generator)
        return rows.to(base.dtype)
    rows[list(plan.copied)] = source[list(plan.copied.values())]
    if initialiser == "copy+subtoken_mean":
        for index, pieces in plan.composed.items():
            if pieces:
                rows[index] = source[list(pieces)].mean(dim=0)
    elif initialiser != "copy+mean":
        raise ValueError(f"unknown initialiser {initialiser}")
    return rows.to(base.dtype)


def replace_vocabulary(
    model: PreTrainedModel,
    base: BaseRows,
    plan: VocabularyPlan,
    tokenizer: PreTrainedTokenizerBase,
    *,
    initialiser: str,
    seed: int = 0,
) -> None:
    """Gives the model new embeddings, head and special token ids, in place. May be called again with another
    initialiser: all rows are made from `base`."""
    spread = float(getattr(model.config.get_text_config(), "initializer_range", 0.02))
    rows = compose_rows(base.embedding, plan, initialiser, spread, seed)
    embedding = torch.nn.Embedding(
        rows.shape[0], rows.shape[1], padding_idx=tokenizer.pad_token_id, _weight=rows.clone()
    )
    head = torch.nn.Linear(rows.shape[1], rows.shape[0], bias=False, device="meta")
    if base.head is None:
        head.weight = embedding.weight
    else:
        head.weight = torch.nn.Parameter(compose_rows(base.head, plan, initialiser, spread, seed + 1))
    model.set_input_embeddings(embedding.to(model.device))
    model.set_output_embeddings(head.to(model.device) if base.head is not None else head)
    text_config = model.config.get_text_config()
    text_config.vocab_size = model.config.vocab_size = plan.rows
    if hasattr(model, "vocab_size"):
        model.vocab_size = plan.rows
    model.tie_weights()
    check_tie(model)
    set_special_tokens(model, tokenizer)


def set_special_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Begin, end and padding ids of the new tokenizer in config and generation config.

    Generation ends at the end of a text and at the end of a turn. Raises StepError where the padding token is one of
    them: a model trained so never learns to stop (transformers#23530).
    """
    ends = stop_token_ids(tokenizer)
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in ends:
        raise StepError(
            "pad_token",
            tokenizer.pad_token,
            limit="a token that ends nothing",
            remedy="Give a token for padding alone.",
        )
    for config in (model.config, model.config.get_text_config()):
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
        config.pad_token_id = tokenizer.pad_token_id
    generation = model.generation_config
    generation.bos_token_id = tokenizer.bos_token_id
    generation.eos_token_id = ends
    generation.pad_token_id = tokenizer.pad_token_id
