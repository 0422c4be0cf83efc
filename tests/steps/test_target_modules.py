"""The layers that docs/own-base-model.md names for each family: FineTune takes them, and refuses others by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
)

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import ConfigError
from steps.modeling.adapter import check_target_modules

PAGE = (Path(__file__).parents[2] / "docs" / "own-base-model.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| ([\w, -]+?) \| (?:none|`fine_tune\.target_modules=\[(.+)\]`) \|$", PAGE, re.MULTILINE))
DEFAULT = FineTuneConfig.model_fields["target_modules"].get_default()
SIZES = {
    "vocab_size": 320, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
CONFIGS = {
    "Llama": LlamaConfig(**SIZES),
    "Mistral": MistralConfig(**SIZES, num_key_value_heads=2),
    "Qwen": Qwen2Config(**SIZES, num_key_value_heads=2),
    "Gemma": Gemma3TextConfig(**SIZES, head_dim=8, num_key_value_heads=2),
    "Cohere": CohereConfig(**SIZES),
    "Granite": GraniteConfig(**SIZES),
    "Phi 3": Phi3Config(**SIZES, num_key_value_heads=2),
    "Phi": PhiConfig(**SIZES),
    "OPT": OPTConfig(
        vocab_size=320, hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, word_embed_proj_dim=16, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    ),
    "GPT-NeoX": GPTNeoXConfig(**SIZES),
}  # fmt: skip
NAMED = {family: row for row in ROWS for family in row.split(", ")}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_layers_of_the_page_are_those_of_the_family(family: str) -> None:
    named = ROWS[NAMED[family]]
    model = AutoModelForCausalLM.from_config(CONFIGS[family])
    check_target_modules(model, named.split(", ") if named else DEFAULT)
    if named:
        with pytest.raises(
            ConfigError, match=r"^fine_tune\.target_modules: \w+; limit linear layers inside the blocks: "
        ):
            check_target_modules(model, DEFAULT)


def test_every_family_of_the_page_is_here() -> None:
    assert set(NAMED) == set(CONFIGS)


def test_no_layer_of_gpt2_fits() -> None:
    model = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=320, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(ConfigError, match=r"limit linear layers inside the blocks: \. Name layers"):
        check_target_modules(model, ["c_attn"])
