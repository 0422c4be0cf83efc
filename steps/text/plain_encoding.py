"""Text as token ids, whatever it spells: no word of it is ever a control token."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase


def encode_plain(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text, without BOS. A text that spells a special token, such as <|eot_id|>, is text: read as
    the token itself it would end the turn that it talks about."""
    if not texts:
        return []
    encoded = tokenizer(
        list(texts), add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
    )
    return encoded["input_ids"]
