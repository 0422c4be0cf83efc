"""The fixed prompts on which two models, or two states of one, are compared."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase

# Both languages of an adapted model, digits, and what a tokenizer may split in its own way.
CHECK_PROMPTS = (
    "Bakı Azərbaycanın paytaxtıdır və Xəzər dənizinin sahilində yerləşir.",
    "İnternet paketimi necə dəyişə bilərəm? Mobil tətbiqi açın, sonra Paketlər bölməsinə keçin.",
    "The capital of Azerbaijan lies on the western shore of the Caspian Sea.",
    "3 + 4 = 7; 12.50 AZN, 1 024 MB, 2026-11-30 08:45",
)
MAX_PROMPT_TOKENS = 256


def encode_check_prompts(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """The ids of each prompt by the model's own tokenizer, with the tokens that it puts around a text."""
    return [ids[:MAX_PROMPT_TOKENS] for ids in tokenizer(list(CHECK_PROMPTS))["input_ids"]]
