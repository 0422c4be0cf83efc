"""Greedy continuation, the same whatever a model folder's generation settings are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from steps.text.chat_template import END_OF_TURN_TOKEN


def stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that end a continuation: end of text and, where the tokenizer has it, end of turn."""
    known = tokenizer.get_vocab()
    names = [tokenizer.eos_token, END_OF_TURN_TOKEN]
    return list(dict.fromkeys(known[name] for name in names if name is not None and name in known))


def continue_greedily(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], *, new_tokens: int, stop_ids: Sequence[int]
) -> list[list[int]]:
    """The most probable continuation of each prompt, at most new_tokens long, its stop token (if any) included.

    Continuations end where the model's positions end, too, counted from the longest prompt.
    """
    longest = max((len(prompt) for prompt in prompts), default=0)
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None:
        new_tokens = min(new_tokens, limit - longest)
    if not prompts or new_tokens < 1:
        return [[] for _ in prompts]
    # Padding stands on the left, so that all continuations start at one position of the batch.
    inputs = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    attention = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    output = _generate(model, inputs.to(model.device), attention.to(model.device), new_tokens, stop_ids)
    return [_until_stop(row, stop_ids) for row in output[:, longest:].tolist()]


def _generate(
    model: PreTrainedModel, inputs: torch.Tensor, attention: torch.Tensor, new_tokens: int, stop_ids: Sequence[int]
) -> torch.Tensor:
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=stop_ids[0] if stop_ids else None,
    )
    with own_settings_aside(model), torch.inference_mode():
        return model.generate(  # type: ignore[operator]
            inputs, attention_mask=attention, generation_config=settings
        )


@contextmanager
def own_settings_aside(model: PreTrainedModel) -> Iterator[None]:
    """Within it a folder's sampling settings or penalties do not fill what a call of `generate` leaves open."""
    own_settings = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own_settings


def _until_stop(ids: list[int], stop_ids: Sequence[int]) -> list[int]:
    """Up to the first stop token: what follows it is padding of the batch."""
    ends = [index + 1 for index, token in enumerate(ids) if token in stop_ids]
    return ids[: ends[0]] if ends else ids
