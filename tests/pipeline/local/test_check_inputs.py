"""Conversations looked at before a run: what a person can mend comes as one line, and nothing else does."""

import os
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.local.check_inputs import check_inputs, check_target_modules
from pipeline.local.run import package_path
from steps.contract import ConfigError, StepError
from steps.contract.model_folder import StoredTensor


def test_conversations_in_a_place_that_the_system_refuses_are_the_users_error(tmp_path):
    path = tmp_path / ("x" * 300)
    with pytest.raises(StepError) as caught:
        check_inputs(load_config("laptop"), {"conversations": path}, package_path())
    assert str(caught.value).startswith(f"data.conversations: {path}: File name too long. ")


def test_a_check_that_dies_of_an_error_of_our_own_says_so(tmp_path):
    """Python's exit code for an error that nobody caught is that of a user's error: the package is broken here."""
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "check_data.py").write_text("raise KeyError('ours')")
    with pytest.raises(RuntimeError, match=r"ended with 1: (.|\n)*KeyError: 'ours'"):
        check_inputs(load_config("laptop"), {"conversations": tmp_path}, {**os.environ, "PYTHONPATH": str(tmp_path)})


def stored(*names: str) -> dict[str, StoredTensor]:
    return {name: StoredTensor("F32", (8, 8), Path("model.safetensors"), 0, 256) for name in names}


def test_layers_that_fine_tuning_would_not_find_are_told_before_anything_runs():
    blocks = ("model.layers.0.self_attn.qkv_proj.weight", "model.layers.1.mlp.down_proj.weight")
    tensors = stored("model.embed_tokens.weight", "lm_head.weight", *blocks)
    check_target_modules(["qkv_proj", "down_proj"], tensors)
    for target in ("q_proj", "lm_head", "embed_tokens"):
        with pytest.raises(ConfigError) as caught:
            check_target_modules(["qkv_proj", target], tensors)
        limit = "layers of the base model's blocks: down_proj, qkv_proj"
        expected = f"fine_tune.target_modules: {target}; limit {limit}. Name layers of this model."
        assert str(caught.value) == expected
    check_target_modules(["gate_up_proj"], stored(*blocks, "model.layers.0.mlp.experts.0.w1.weight"))
