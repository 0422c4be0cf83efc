"""The model that is fine-tuned: in the precision of the computation, or its linear layers in 4 bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import BitsAndBytesConfig, PreTrainedModel

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import ConfigError
from steps.modeling.loading import load_model

COMPUTE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_base(
    folder: Path, config: FineTuneConfig, device: torch.device, *, trust_remote_code: bool
) -> PreTrainedModel:
    """The base as its adapter is trained on it.

    Raises ConfigError where 4 bits are asked for and bitsandbytes is not installed.
    """
    dtype = COMPUTE_DTYPES[config.precision]
    if config.base_quantisation == "none":
        return load_model(folder, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            "fine_tune.base_quantisation",
            config.base_quantisation,
            limit="none without bitsandbytes",
            remedy="Install langadapt[gpu], or take none.",
        )
    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=config.base_quantisation,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    model = load_model(
        folder, dtype=dtype, device=device, trust_remote_code=trust_remote_code, quantization_config=quantisation
    )
    keep_trainable(model)
    return model


def keep_trainable(model: PreTrainedModel) -> None:
    """Keeps 4-bit layers in the layout that gradients go through.

    On a CPU with AVX512-BF16 bitsandbytes 0.50 packs a layer anew the first time that it is evaluated, for a kernel
    without gradients: every step after the first validation would train the last layers alone.
    """
    from bitsandbytes.nn import Linear4bit

    for module in model.modules():
        if isinstance(module, Linear4bit):
            module.support_avx512bf16_for_cpu = False
