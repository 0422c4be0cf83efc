"""Greedy continuation, the same whatever a model folder's generation settings are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from steps.text.chat_template import END_OF_TURN_TOKEN


def stop_token_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens that end a continuation: end of text and, where the tokenizer has it, end of turn."""
    known = tokenizer.get_vocab()
    names = [tokenizer.eos_token, END_OF_TURN_TOKEN]
    return list(dict.fromkeys(known[name] for name in names if name is not None and name in known))


def continue_greedily(
    model: PreTrainedModel, ids: Sequence[int], *, new_tokens: int, stop_ids: Sequence[int]
) -> list[int]:
    """The most probable continuation of one prompt, at most new_tokens long, its stop token (if any) included.

    It ends where the model's positions end, too: with a prompt that fills them it is empty.
    """
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None:
        new_tokens = min(new_tokens, limit - len(ids))
    if new_tokens < 1:
        return []
    own_settings = model.generation_config
    # A folder's sampling settings or penalties would fill whatever the settings below leave open.
    model.generation_config = GenerationConfig()
    settings = GenerationConfig(
        do_sample=False,
        max_new_tokens=new_tokens,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=stop_ids[0] if stop_ids else None,
    )
    prompt = torch.tensor([list(ids)], device=model.device)
    try:
        with torch.inference_mode():
            output = model.generate(  # type: ignore[operator]
                prompt, attention_mask=torch.ones_like(prompt), generation_config=settings
            )
    finally:
        model.generation_config = own_settings
    return output[0, len(ids) :].tolist()
