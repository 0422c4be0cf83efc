"""Saved folders for readers with transformers 4: rotary positions and tokenizer class as both releases know them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from steps.contract.release_4 import in_form_of_release_4, readable_by_release_4, tokenizer_for_release_4
from steps.modeling.loading import save_model

SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}  # fmt: skip
SCALED = {"model_type": "llama", "dtype": "bfloat16", "rope_parameters": {**SCALING, "rope_theta": 500_000.0}}


@pytest.mark.parametrize(
    ("settings", "added"),
    [
        (SCALED, {"rope_theta": 500_000.0, "rope_scaling": SCALING}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, {"rope_theta": 1e4, "rope_scaling": None}),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
            {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "rope_scaling": None},
        ),
        # Layers that differ in them, and a model that has learnt its positions, have no former form.
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}, {}),
        ({"model_type": "gpt2", "n_positions": 1024}, {}),
    ],
)
def test_both_forms(settings: dict, added: dict) -> None:
    assert readable_by_release_4(settings) == {**settings, **added}
    assert readable_by_release_4(readable_by_release_4(settings)) == readable_by_release_4(settings)
    nested = {"model_type": "pair", "text_config": settings}
    assert readable_by_release_4(nested) == {"model_type": "pair", "text_config": {**settings, **added}}


def test_the_former_form_alone() -> None:
    former = {"model_type": "llama", "rope_scaling": SCALING, "rope_theta": 500_000.0, "torch_dtype": "bfloat16"}
    assert in_form_of_release_4(SCALED) == in_form_of_release_4(readable_by_release_4(SCALED)) == former
    assert in_form_of_release_4({"text_config": SCALED}) == {"text_config": former}
    differing = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}
    assert in_form_of_release_4(differing) == differing


def test_a_tokenizer_with_a_class_of_its_own_keeps_it() -> None:
    assert tokenizer_for_release_4({"tokenizer_class": "Qwen2Tokenizer"}) == {"tokenizer_class": "Qwen2Tokenizer"}
    plain = tokenizer_for_release_4({"tokenizer_class": "TokenizersBackend", "bos_token": "<s>"})
    assert plain == {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}


@pytest.mark.parametrize("form", ["as saved", "the former alone"])
def test_release_5_reads_a_saved_folder_as_before(form, make_tiny_llama, tiny_tokenizer, tmp_path: Path) -> None:
    rope = dict(SCALED["rope_parameters"])
    model = make_tiny_llama(max_position_embeddings=131_072, rope_parameters=rope)
    save_model(model, tiny_tokenizer, tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert (written["rope_theta"], written["rope_scaling"], written["rope_parameters"]) == (500_000.0, SCALING, rope)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"
    if form == "the former alone":
        (tmp_path / "config.json").write_text(json.dumps(in_form_of_release_4(written)))
    assert AutoConfig.from_pretrained(tmp_path).rope_parameters == rope
    ids = torch.arange(300)[None]
    with torch.inference_mode():
        assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.backend_tokenizer.to_str() == tiny_tokenizer.backend_tokenizer.to_str()
    assert tokenizer.chat_template == tiny_tokenizer.chat_template
