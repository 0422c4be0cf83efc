"""Shapes of base models: their parameters are those that transformers makes, what config.json has to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from pipeline.config import load_config
from pipeline.plan.model_shapes import base_model_shape, named_shape, planned_vocabulary, shape_names, shape_of_folder
from pipeline.plan.throughput import flops_per_token
from steps.contract import ConfigError
from steps.modeling.adapter import lora_config
from steps.modeling.utilisation import flops_per_token as counted_flops

HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA_1B: dict[str, Any] = {"hidden_size": 2_048, "num_hidden_layers": 16, "intermediate_size": 8_192,
                            "tie_word_embeddings": True, **HEADS}  # fmt: skip
LLAMA_8B: dict[str, Any] = {"hidden_size": 4_096, "num_hidden_layers": 32, "intermediate_size": 14_336,
                            "tie_word_embeddings": False, **HEADS}  # fmt: skip


def on_meta(settings: dict[str, Any], rows: int) -> LlamaForCausalLM:
    with torch.device("meta"):
        return LlamaForCausalLM(LlamaConfig(vocab_size=rows, **settings))


@pytest.mark.parametrize(("name", "settings"), [("llama-3.2-1b", LLAMA_1B), ("llama-3.1-8b", LLAMA_8B)])
@pytest.mark.parametrize("rows", [128_256, 99_968])
def test_parameters_and_flops_are_those_of_the_model(name: str, settings: dict[str, Any], rows: int) -> None:
    shape, model = named_shape(name), on_meta(settings, rows)
    assert shape.parameters(rows) == sum(parameter.numel() for parameter in model.parameters())
    for phase in (1, 2):
        assert flops_per_token(shape, rows, phase) == counted_flops(model, phase)
    if rows == 128_256:
        assert shape.vocabulary_rows == rows


def test_an_adapters_parameters_are_those_that_peft_makes() -> None:
    from peft import get_peft_model

    modules = load_config("azerbaijani-1b-p4d").fine_tune.target_modules
    with torch.device("meta"):
        adapted = get_peft_model(on_meta(LLAMA_1B, 256), lora_config(64, 28, 0.05, modules))
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    assert named_shape("llama-3.2-1b").adapter_parameters(64, modules) == trained


def written(folder: Path, **values: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(values), "utf-8")
    return folder


def test_a_folder_s_config_gives_the_shape(tmp_path: Path) -> None:
    LlamaConfig(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, tie_word_embeddings=True).save_pretrained(tmp_path)  # fmt: skip
    config = load_config("laptop", overrides=[f"data.base_model={tmp_path}"])
    shape = base_model_shape(config)
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(tmp_path))
    assert shape.parameters(320) == sum(parameter.numel() for parameter in model.parameters())
    assert (shape.is_tied, shape.is_like_llama, shape.name) == (True, True, tmp_path.name)


def test_heads_of_a_width_of_their_own_count(tmp_path: Path) -> None:
    config = Qwen3Config(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=32,
                         num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)  # fmt: skip
    config.save_pretrained(tmp_path)
    made = sum(parameter.numel() for parameter in Qwen3ForCausalLM(config).parameters())
    norms_of_heads = 2 * 2 * 32
    assert shape_of_folder(tmp_path).parameters(256) == made - norms_of_heads


def test_a_language_part_is_found_and_another_family_is_told(tmp_path: Path) -> None:
    inner = {"vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
             "intermediate_size": 16, "model_type": "other"}  # fmt: skip
    shape = shape_of_folder(written(tmp_path, model_type="both", text_config=inner))
    assert (shape.width, shape.key_value_width, shape.is_like_llama) == (8, 8, False)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "vocab_size missing"),
        ({"vocab_size": 0}, "vocab_size 0"),
        ({"vocab_size": "many"}, "vocab_size many"),
        ({"vocab_size": 64, "n_embd": 8}, "hidden_size missing"),
    ],
)
def test_a_config_that_is_of_no_use_is_refused(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        shape_of_folder(written(tmp_path, **values))


@pytest.mark.parametrize(
    ("overrides", "rows", "candidate"),
    [
        ([], 99_968, "bbpe-99968"),
        (["train_tokenizer.chosen=bbpe-50048"], 50_048, "bbpe-50048"),
        (["train_tokenizer.chosen=extended-24960"], 153_216, "extended-24960"),
        (["train_tokenizer.kinds=[extended]"], 153_216, "extended-24960"),
        (["train_tokenizer.kinds=[replaced]"], 128_256, "replaced"),
        (["train_tokenizer.kinds=[unigram,replaced]"], 99_968, "unigram-99968"),
    ],
)
def test_the_vocabulary_that_is_planned_with(overrides: list[str], rows: int, candidate: str) -> None:
    config = load_config("azerbaijani-1b-p4d", overrides=overrides)
    assert planned_vocabulary(config, base_model_shape(config)) == (rows, candidate)


def test_the_samples_shape_is_that_of_the_model_that_is_made() -> None:
    source = (Path(__file__).parents[3] / "steps" / "make_sample.py").read_text("utf-8")
    shape = named_shape("sample")
    for name, value in (("hidden_size", shape.width), ("intermediate_size", shape.feed_forward_width),
                        ("num_hidden_layers", shape.layers)):  # fmt: skip
        assert f"{name}={value}," in source
    assert "VOCABULARY_SIZE = 2_048" in source
    assert shape.vocabulary_rows == 2_048
    assert shape_names() == ["llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "sample"]
