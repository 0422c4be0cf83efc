"""The fixed prompts on which two models, or two states of one, are compared."""

from __future__ import annotations

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from steps.contract import StepError

# Both languages of an adapted model, digits, and what a tokenizer may split in its own way.
CHECK_PROMPTS = (
    "Bakı Azərbaycanın paytaxtıdır və Xəzər dənizinin sahilində yerləşir.",
    "İnternet paketimi necə dəyişə bilərəm? Mobil tətbiqi açın, sonra Paketlər bölməsinə keçin.",
    "The capital of Azerbaijan lies on the western shore of the Caspian Sea.",
    "3 + 4 = 7; 12.50 AZN, 1 024 MB, 2026-11-30 08:45",
)
MAX_PROMPT_TOKENS = 256


def encode_check_prompts(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig | None = None) -> list[list[int]]:
    """The ids of each prompt by the model's own tokenizer, with the tokens that it puts around a text, cut where the
    model's positions end.

    config: the model's. Raises StepError where the tokenizer is another model's, with ids that this one lacks.
    """
    encoded = tokenizer(list(CHECK_PROMPTS))["input_ids"]
    text_config = None if config is None else config.get_text_config()
    rows, highest = getattr(text_config, "vocab_size", None), max(max(ids) for ids in encoded)
    if rows is not None and highest >= rows:
        remedy = "Give the tokenizer that belongs to the model."
        raise StepError("tokenizer", f"token id {highest}", limit=f"{rows} rows of the embedding", remedy=remedy)
    positions = getattr(text_config, "max_position_embeddings", None) or MAX_PROMPT_TOKENS
    return [ids[: min(positions, MAX_PROMPT_TOKENS)] for ids in encoded]
