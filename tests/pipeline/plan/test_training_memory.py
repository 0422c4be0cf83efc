"""The formula of memory, by hand and beside what PyTorch keeps for the way back."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline.plan.model_shapes import ModelShape, named_shape
from pipeline.plan.training_memory import GIB, TrainingMemory, layer_bytes

SHAPE = named_shape("llama-3.2-1b")
TOKENS = 128


def tiny(layers: int) -> ModelShape:
    return ModelShape("tiny", "", 512, 256, layers, 64, 1_024, True, 256)


def kept_bytes(layers: int, dtype: torch.dtype) -> int:
    """What a forward pass of a tiny Llama keeps for the way back, weights aside: each storage once."""
    shape = tiny(layers)
    config = LlamaConfig(vocab_size=512, hidden_size=shape.width, intermediate_size=shape.feed_forward_width,
                         num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=1,
                         tie_word_embeddings=True)  # fmt: skip
    model = LlamaForCausalLM(config).to(dtype)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    ids = torch.zeros((1, TOKENS), dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=ids, labels=ids, use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)


@pytest.mark.parametrize(("dtype", "element"), [(torch.bfloat16, 2), (torch.float32, 4)])
def test_a_layer_keeps_what_the_formula_says(dtype: torch.dtype, element: int) -> None:
    measured = (kept_bytes(2, dtype) - kept_bytes(1, dtype)) / TOKENS
    formula = layer_bytes(tiny(1), element, has_liger=False)
    print(f"{element} bytes an element: {measured:,.0f} kept a token and layer, {formula:,} by the formula")
    assert measured == pytest.approx(formula, rel=0.01)


def memory(**others: object) -> TrainingMemory:
    settings: dict[str, object] = {
        "shape": SHAPE, "rows": 99_968, "precision": "bfloat16", "parallelism": "fsdp", "gpus": 8,
        "block_tokens": 2_048, "has_liger": True,
    }  # fmt: skip
    return TrainingMemory(**{**settings, **others})  # type: ignore[arg-type]


def test_the_parts_by_hand() -> None:
    parameters = 99_968 * 2_048 + 16 * 60_821_504 + 2_048
    assert SHAPE.layer_parameters == 60_821_504
    assert memory().state == parameters
    assert memory(parallelism="ddp").state == memory(parallelism="none").state == 8 * parameters
    assert memory(parallelism="ddp").gathered == 0
    assert memory().gathered == 4 * (99_968 * 2_048 + 2 * 60_821_504)
    layer = 2 * (6 * 2_048 + 2 * 512 + 3 * 8_192)
    assert memory().block == 2_048 * 16 * layer
    assert memory(has_liger=False).block == 2_048 * (16 * (layer + 8 * 2_048 + 2 * 8_192) + 12 * 99_968)
    assert memory(is_checkpointed=True).block == 2_048 * (2 * 16 * 2_048 + layer)
    assert memory(precision="bfloat16_mixed").state == 2 * parameters
    assert memory().total(3) == memory().state + memory().gathered + 3 * memory().block


def test_the_largest_batch_is_the_last_that_fits() -> None:
    held = memory()
    blocks = held.largest_batch(40)
    assert held.total(blocks) <= 0.88 * 40 * GIB < held.total(blocks + 1)
    assert memory(parallelism="ddp", precision="float32").largest_batch(16) == 0
