"""Merges of larger adapters, and checkpoints damaged in a thousand ways."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from small_adapters import write_adapter
from workplace import prove

from steps.contract import StepError
from steps.modeling.adapter import merge_checked
from steps.modeling.checkpoint_metadata import METADATA_NAME
from steps.modeling.foreign_adapter import check_adapter
from steps.modeling.foreign_checkpoint import open_checkpoint, read_model_tensors, tensor_shapes
from steps.modeling.loading import empty_model, save_model
from steps.modeling.tensor_names import match_names
from steps.text.check_prompts import encode_check_prompts

pytestmark = pytest.mark.verify

LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
DAMAGED_LISTS = 1_000


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_on_all_layers_of_a_wider_model(make_tiny_llama, tiny_tokenizer, tmp_path: Path, tied: bool) -> None:
    model = make_tiny_llama(
        tied=tied, hidden_size=512, intermediate_size=1_408, num_hidden_layers=8, num_attention_heads=8,
        initializer_range=0.05,
    )  # fmt: skip
    save_model(model, tiny_tokenizer, tmp_path / "base")
    # What it adds to a weight is about a third of it, which is more than trainings do.
    adapter = write_adapter(model, tmp_path / "adapter", size=0.02, r=64, lora_alpha=128, target_modules=LAYERS)
    check_adapter(adapter, empty_model(tmp_path / "base"))
    merge = merge_checked(tmp_path / "base", adapter, encode_check_prompts(tiny_tokenizer), max_difference=1.0)
    kind = "tied" if tied else "untied"
    found = merge.difference
    prove(f"merged logits, {kind}, relative difference", f"{found.relative:.2g}", "1e-4", found.relative < 1e-4)
    prove(f"merged logits, {kind}, absolute difference", f"{found.absolute:.2g}", "1e-4", found.absolute < 1e-4)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, left out or put in."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 5])):
        place, kind = chance.randrange(len(changed)), chance.random()
        if kind < 0.6:
            changed[place] = chance.randrange(256)
        elif kind < 0.8:
            del changed[place : place + chance.randrange(1, 20)]
        else:
            changed[place:place] = chance.randbytes(chance.randrange(1, 6))
    return bytes(changed)


def test_a_thousand_damaged_lists(make_tiny_llama, tiny_tokenizer, tmp_path: Path) -> None:
    """Each is read to the values that were saved, or refused in one line; anything else fails here."""
    model = make_tiny_llama(num_hidden_layers=1)
    save_model(model, tiny_tokenizer, tmp_path / "model")
    empty, folder = empty_model(tmp_path / "model"), tmp_path / "checkpoint"
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    dcp.save({"model": weights, "optim": {"a": torch.ones(3)}, "text": "x"}, checkpoint_id=folder, no_dist=True)
    content, chance = (folder / METADATA_NAME).read_bytes(), random.Random(0)
    refused, sound = 0, 0
    for _ in range(DAMAGED_LISTS):
        (folder / METADATA_NAME).write_bytes(damaged(content, chance))
        try:
            reader = open_checkpoint(folder)
            match = match_names(folder, tensor_shapes(reader), empty)
            values = read_model_tensors(reader, reader.tensors, match, torch.float32)
        except StepError:
            refused += 1
        else:
            sound += all(torch.equal(values[name], weight) for name, weight in weights.items())
    prove("damaged lists refused in one line", refused, "most of 1000", refused > 900)
    prove("the others, read to the same values", sound, "the rest", refused + sound == DAMAGED_LISTS)
