"""The table of memory in docs/fine-tuning.md, made of Llama's own shapes, and what a training holds beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from steps.configs.fine_tune import FineTuneConfig
from steps.modeling.adapter import lora_config
from steps.modeling.adapter_training import train_adapter
from steps.modeling.fine_tuned_base import load_base
from steps.modeling.loading import save_model
from steps.text.assistant_mask import ExampleBuilder

PAGE = Path(__file__).parents[2] / "docs" / "fine-tuning.md"
GIB = 2**30
SHAPES = {
    "1B": {
        "hidden_size": 2_048,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 8_192,
        "tie_word_embeddings": True,
    },
    "8B": {
        "hidden_size": 4_096,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "tie_word_embeddings": False,
    },
}
# 4 bits, 8 bits of scale for 64 of them, and 32 for 256 of those.
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8


def sizes(shape: dict) -> tuple[int, int, int]:
    """(parameters, those in the matrices of the layers, those of the adapter)."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(vocab_size=99_968, num_attention_heads=32, **shape))
        whole = sum(parameter.numel() for parameter in model.parameters())
        matrices = sum(parameter.numel() for parameter in model.model.layers.parameters() if parameter.ndim == 2)
        config = FineTuneConfig()
        adapted = get_peft_model(model, lora_config(64, 128, 0.05, config.target_modules))
    return whole, matrices, sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("name", SHAPES)
def test_the_pages_table_follows_from_the_shapes(name):
    whole, matrices, adapter = sizes(SHAPES[name])
    assert abs(NF4_BYTES - 0.516) < 1e-3
    wanted = [
        ("float32", "float32", 4 * whole, 16 * adapter),
        ("bfloat16", "float32", 2 * whole, 16 * adapter),
        ("nf4", "bfloat16", NF4_BYTES * matrices + 2 * (whole - matrices), 8 * adapter),
    ]
    rows = re.findall(rf"^\| {name} \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (of_base, of_adapter, f"{base / GIB:.2f}", f"{state / GIB:.2f}", f"{(base + state) / GIB:.2f}")
        for of_base, of_adapter, base, state in wanted
    ]


@pytest.mark.parametrize(("precision", "bytes_a_weight"), [("float32", 4), ("bfloat16", 2)])
def test_base_and_optimizer_are_as_large_as_the_page_says(
    make_tiny_llama, tiny_tokenizer, tmp_path, precision, bytes_a_weight
):
    save_model(make_tiny_llama(), tiny_tokenizer, tmp_path / "base")
    config = FineTuneConfig(lora_rank=4, precision=precision, epochs=2, max_tokens=128, checkpoint_every_steps=1)
    model = load_base(tmp_path / "base", config, torch.device("cpu"), trust_remote_code=False)
    assert sum(p.nbytes for p in model.parameters()) == bytes_a_weight * sum(p.numel() for p in model.parameters())
    builder = ExampleBuilder(tiny_tokenizer, 128)
    turns = [{"role": "user", "content": "Salam"}, {"role": "assistant", "content": "Buyurun"}]
    example = builder.build(turns, "here")
    run = train_adapter(
        model, tiny_tokenizer, [example], [example], config, tmp_path / "adapter", tmp_path / "checkpoints"
    )
    (newest,) = (tmp_path / "checkpoints").glob("step-00000002")
    state = torch.load(newest / "optimizer.pt", weights_only=True)["state"]
    moments = [tensor for entry in state.values() for name, tensor in entry.items() if name.startswith("exp_avg")]
    assert sum(tensor.nbytes for tensor in moments) == 2 * 4 * run.trained_parameters
