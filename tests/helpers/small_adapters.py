"""LoRA adapters as PEFT writes them, with weights that change a tiny model's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedModel


def write_adapter(model: PreTrainedModel, folder: Path, *, size: float = 0.1, **settings: Any) -> Path:
    """Adapter of rank 4 and scaling 2 on q_proj and v_proj unless settings say otherwise, drawn at random.

    size: standard deviation of what is added to each of its matrices.
    """
    kinds = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **settings}
    adapted = get_peft_model(model, LoraConfig(**kinds))
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * size)
    adapted.save_pretrained(folder)
    return folder
