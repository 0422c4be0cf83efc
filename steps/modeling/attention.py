"""Attention over packed blocks: which implementation, and the proof that no document reads another.

All implementations are transformers' own and are told where documents start by the positions that begin at 0 again.
Three things switch that off without a word: an attention mask, even one of ones; a cache (`use_cache` left at its
default); a model that looks at no positions. So every training begins with `check_isolation`.

    flash   flash-attn's kernels for sequences of any lengths; CUDA of compute capability 8 and above, bfloat16. The
            blocks of a pass lie in one row, and the documents' bounds go along: with several rows, or without the
            bounds, transformers would look for them anew in every layer, or not at all.
    flex    torch's flex_attention, which skips what the mask hides; CUDA alone, as its backward pass is
    sdpa    torch's scaled_dot_product_attention with a mask of block_tokens * block_tokens a block
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask
from transformers.utils import is_flash_attn_2_available

from steps.contract import ConfigError, StepError
from steps.modeling.batches import in_one_row, on_device
from steps.modeling.parallel import Processes, compute_precision, reshard

# transformers' names.
IMPLEMENTATIONS = {"flash": "flash_attention_2", "flex": "flex_attention", "sdpa": "sdpa", "eager": "eager"}
# From here on sdpa's mask, which grows with the square of the block, weighs more than flex's compilation.
FLEX_BLOCK_TOKENS = 8_192
FLASH_CAPABILITY = (8, 0)
# A document that another one changes by more than this share of that one's own change reads it.
LARGEST_LEAK = 1e-3
CHECKED_TOKENS = 16


def choose_attention(
    model: PreTrainedModel, setting: str, device: torch.device, precision: str, block_tokens: int
) -> str:
    """Sets the model's attention and returns its name, a key of IMPLEMENTATIONS.

    auto: flash where it can be, else flex for blocks of FLEX_BLOCK_TOKENS and more where it can be, else sdpa, else
    eager. Raises ConfigError for a setting that this model, machine or precision cannot follow.
    """
    hindrances = {name: _hindrance(name, model, device, precision) for name in IMPLEMENTATIONS}
    if setting == "auto":
        possible = [name for name, hindrance in hindrances.items() if hindrance is None]
        chosen = next(name for name in possible if name != "flex" or block_tokens >= FLEX_BLOCK_TOKENS)
    elif (hindrance := hindrances[setting]) is not None:
        raise ConfigError("attention", f"{setting}, but {hindrance}", remedy="Set attention to auto.")
    else:
        chosen = setting
    model.set_attn_implementation(IMPLEMENTATIONS[chosen])
    assert model.config.get_text_config()._attn_implementation == IMPLEMENTATIONS[chosen], chosen
    return chosen


def _hindrance(name: str, model: PreTrainedModel, device: torch.device, precision: str) -> str | None:
    """Why an implementation cannot be used, None where it can."""
    supported: Any = {
        "flash": model._supports_flash_attn,
        "flex": model._supports_flex_attn,
        "sdpa": model._supports_sdpa,
    }
    if not supported.get(name, True):
        return f"transformers has none for a model of type {model.config.model_type}"
    if name in ("flash", "flex") and device.type != "cuda":
        return "no CUDA device" if name == "flash" else "no CUDA device, and its backward pass runs on no other"
    if name != "flash":
        return None
    if not is_flash_attn_2_available():
        return "the package flash-attn is not installed"
    if torch.cuda.get_device_capability(device) < FLASH_CAPABILITY:
        return f"{torch.cuda.get_device_name(device)} is older than compute capability 8.0"
    return "precision float32 is not bfloat16" if precision == "float32" else None


def wants_one_row(model: PreTrainedModel) -> bool:
    """True where the blocks of a pass must lie in one row, with their documents' bounds: no mask tells of them."""
    implementation = model.config.get_text_config()._attn_implementation
    return ALL_MASK_ATTENTION_FUNCTIONS[implementation] is flash_attention_mask


@torch.no_grad()
def check_isolation(model: PreTrainedModel, processes: Processes, precision: str) -> float:
    """Raises StepError where a document of a block reads the one before it; returns the leak that was measured.

    Two blocks differ in their first document alone. The leak is the largest change of a logit in the second document,
    over the largest in the first. All processes must call it.
    """
    was_training = model.training
    model.eval()
    half = CHECKED_TOKENS // 2
    tokens = torch.arange(CHECKED_TOKENS) % model.config.get_text_config().vocab_size
    other = torch.cat([tokens[:half].flip(0), tokens[half:]])
    positions = torch.arange(half).repeat(1, 2)
    logits = []
    for row in (tokens, other):
        batch = {"input_ids": row[None], "position_ids": positions}
        inputs = on_device(in_one_row(batch) if wants_one_row(model) else batch, processes.device)
        with compute_precision(processes, precision):
            logits.append(model(**inputs, use_cache=False).logits[0].float())
    reshard(model)
    model.train(was_training)
    change = (logits[0] - logits[1]).abs()
    first, second = float(change[:half].max()), float(change[half:].max())
    leak = second / first if first > 0 else 0.0
    if not leak <= LARGEST_LEAK:
        raise StepError(
            "attention",
            f"a document of a packed block reads the one before it (leak {leak:.2g})",
            limit=LARGEST_LEAK,
            remedy="Set continued_pretraining.attention to another implementation.",
        )
    return leak
