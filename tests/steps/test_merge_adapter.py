"""Adapters of PEFT's merged: the same answers, ties kept, and what cannot be merged refused in one line."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from small_adapters import write_adapter
from transformers import AutoModelForCausalLM, GenerationConfig, GPT2Config

from steps.configs.merge_adapter import MergeAdapterConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, StepError, read_seal, run_step
from steps.merge_adapter import FOLDERS, merge
from steps.modeling.adapter import check_merge, compare_merged, prompt_logits
from steps.modeling.foreign_adapter import SETTINGS_NAME, WEIGHTS_NAME
from steps.modeling.loading import load_model, save_model
from steps.text.check_prompts import encode_check_prompts

LORA_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, make_tiny_llama, tiny_tokenizer) -> dict[str, Path]:
    """Base models by name, tied and untied, and adapters made for both, by the base's name and their own."""
    root = tmp_path_factory.mktemp("merging")
    found = {}
    for name, tied in (("tied", True), ("untied", False)):
        model = make_tiny_llama(tied=tied)
        model.generation_config = GenerationConfig(eos_token_id=[315, 318], temperature=0.6, do_sample=True)
        save_model(model, tiny_tokenizer, root / name)
        found[name] = root / name
        found[f"{name} adapter"] = write_adapter(model, root / f"{name}-adapter")
    return found


def command(folders: dict[str, Path], **settings: Any) -> int:
    arguments = [f"--{name}={value}" for name, value in {**folders, **settings}.items()]
    return run_step(merge, MergeAdapterConfig, FOLDERS, arguments=arguments)


def logits(model: torch.nn.Module, tokenizer) -> list[torch.Tensor]:
    return [prompt_logits(model, prompt) for prompt in encode_check_prompts(tokenizer)]


def adapted_logits(base: Path, adapter: Path, tokenizer) -> list[torch.Tensor]:
    return logits(PeftModel.from_pretrained(load_model(base), str(adapter)).eval(), tokenizer)


def largest_difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return max(float((mine - theirs).abs().max()) for mine, theirs in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_merged_logits_are_the_adapters_and_the_weights_are_pefts(folders, tiny_tokenizer, tmp_path, capsys, kind):
    base, adapter, output = folders[kind], folders[f"{kind} adapter"], tmp_path / "merged"
    assert command({"model": base, "adapter": adapter, "output": output}) == EXIT_DONE
    expected = adapted_logits(base, adapter, tiny_tokenizer)
    merged = AutoModelForCausalLM.from_pretrained(output).eval()
    assert merged.dtype == torch.float32
    assert largest_difference(logits(merged, tiny_tokenizer), expected) < 1e-4
    assert largest_difference(logits(load_model(base), tiny_tokenizer), expected) > 0.5
    assert (merged.lm_head.weight is merged.model.embed_tokens.weight) == (kind == "tied")

    written = load_file(output / "model.safetensors")
    assert ("lm_head.weight" in written) == (kind == "untied")
    own = PeftModel.from_pretrained(load_model(base), str(adapter)).merge_and_unload().state_dict()
    for name, tensor in written.items():
        assert torch.equal(tensor, own[name]), name

    generation = json.loads((output / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["temperature"]) == ([315, 318], 0.6)
    metrics = read_seal(output).metrics
    assert metrics["lora_scaling"] == "2"
    assert metrics["merge_absolute_difference"] < 1e-4
    assert "lora_scaling=2 merge_relative_difference=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "scalings"),
    [
        ({"use_rslora": True, "rank_pattern": {"q_proj": 2}}, [8 / math.sqrt(4), 8 / math.sqrt(2)]),
        ({"use_dora": True, "alpha_pattern": {"v_proj": 2}}, [0.5, 2.0]),
        ({"target_modules": ["q_proj", "lm_head", "embed_tokens"]}, [2.0]),
        ({"modules_to_save": ["embed_tokens", "lm_head", "norm"]}, [2.0]),
    ],
    ids=["rslora", "dora", "embedding and head", "modules to save"],
)
def test_other_forms_that_merge_into_an_untied_model(
    folders, make_tiny_llama, tiny_tokenizer, tmp_path, settings, scalings
):
    adapter = write_adapter(make_tiny_llama(tied=False), tmp_path / "adapter", **settings)
    assert command({"model": folders["untied"], "adapter": adapter, "output": tmp_path / "merged"}) == EXIT_DONE
    told = [float(value) for value in str(read_seal(tmp_path / "merged").metrics["lora_scaling"]).split(",")]
    assert told == pytest.approx(scalings, rel=1e-5)
    expected = adapted_logits(folders["untied"], adapter, tiny_tokenizer)
    assert largest_difference(logits(load_model(tmp_path / "merged"), tiny_tokenizer), expected) < 1e-4


def test_layers_that_lie_the_other_way_round(tiny_tokenizer, tmp_path):
    """GPT-2's are [in, out]; its embedding and head are one matrix."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=512)
    )
    save_model(model, tiny_tokenizer, tmp_path / "base")
    adapter = write_adapter(model, tmp_path / "adapter", target_modules=["c_attn"], fan_in_fan_out=True)
    assert command({"model": tmp_path / "base", "adapter": adapter, "output": tmp_path / "merged"}) == EXIT_DONE
    expected = adapted_logits(tmp_path / "base", adapter, tiny_tokenizer)
    assert largest_difference(logits(load_model(tmp_path / "merged"), tiny_tokenizer), expected) < 1e-4


def test_the_dtype_may_be_another_than_the_bases(folders, tmp_path):
    place = {"model": folders["tied"], "adapter": folders["tied adapter"]}
    for name, settings in (("whole", {}), ("half", {"dtype": "bfloat16"})):
        assert command({**place, "output": tmp_path / name}, **settings) == EXIT_DONE
    whole, half = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "half"))
    for name, tensor in half.items():
        assert torch.equal(tensor, whole[name].to(torch.bfloat16)), name
    # The rounding of the cast, which is larger than this limit, is on both sides.
    checked = {**place, "merged": tmp_path / "half", "output": tmp_path / "checked"}
    assert command(checked, max_difference=1e-5) == EXIT_DONE
    assert read_seal(tmp_path / "checked").metrics["merge_relative_difference"] == 0.0
    assert {path.name for path in (tmp_path / "checked").iterdir()} == {"manifest.json"}


# --- broken merges ----------------------------------------------------------------------------------------------------


def test_a_model_merged_with_the_wrong_scaling_is_refused(folders, tiny_tokenizer, tmp_path, capsys):
    """The adapter is merged with twice its alpha; checked against the adapter as it is, the merge is refused."""
    doubled = copy_adapter(folders["tied adapter"], tmp_path / "doubled", lora_alpha=16)
    assert command({"model": folders["tied"], "adapter": doubled, "output": tmp_path / "merged"}) == EXIT_DONE
    given = {"model": folders["tied"], "adapter": folders["tied adapter"], "merged": tmp_path / "merged"}
    capsys.readouterr()
    assert command({**given, "output": tmp_path / "checked"}) == EXIT_USER_ERROR
    assert capsys.readouterr().err.startswith("error: merged model: logits differ by 1.14 of the largest")
    assert not (tmp_path / "checked" / "manifest.json").exists()

    prompts = encode_check_prompts(tiny_tokenizer)
    for adapter, holds in ((folders["tied adapter"], False), (doubled, True)):
        try:
            difference = compare_merged(folders["tied"], adapter, tmp_path / "merged", prompts, max_difference=1e-3)
        except StepError:
            assert not holds
        else:
            assert holds
            assert difference.difference.relative == 0.0


def test_what_the_check_of_a_merge_refuses():
    expected = [torch.tensor([[1.0, -2.0]]), torch.tensor([[-40.0, 3.0]])]
    moved = [expected[0], torch.tensor([[-40.0, 3.2]])]
    difference = check_merge(expected, moved, 0.0051)
    assert difference.absolute == pytest.approx(0.2)
    assert difference.relative == pytest.approx(0.005)
    for found, limit in (
        (moved, 0.0049),
        ([expected[0], torch.tensor([[math.nan, 3.0]])], 1.0),
        ([expected[0], torch.tensor([[-40.0, math.inf]])], 1.0),
        ([torch.tensor([[1.0, -2.0, 0.0]]), expected[1]], 1.0),
    ):
        with pytest.raises(StepError, match="merged model: logits"):
            check_merge(expected, found, limit)


# --- refused adapters -------------------------------------------------------------------------------------------------


def copy_adapter(source: Path, folder: Path, **settings: Any) -> Path:
    """The adapter with other settings than it was made with."""
    shutil.copytree(source, folder)
    path = folder / SETTINGS_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


def change_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS_NAME)
    change(tensors)
    save_file(tensors, folder / WEIGHTS_NAME)


def pickled(folder: Path) -> None:
    (folder / WEIGHTS_NAME).rename(folder / "adapter_model.bin")


def cut_short(folder: Path) -> None:
    content = (folder / WEIGHTS_NAME).read_bytes()
    (folder / WEIGHTS_NAME).write_bytes(content[:-8])


SPOILT = {
    "a pickle": (pickled, "adapter_model.bin, a pickle, which runs code when it is read; limit adapter_model.safe"),
    "no weights": (lambda folder: (folder / WEIGHTS_NAME).unlink(), "no adapter_model.safetensors"),
    "no settings": (lambda folder: (folder / SETTINGS_NAME).unlink(), "no adapter_config.json"),
    "no JSON": (lambda folder: (folder / SETTINGS_NAME).write_text("{"), "no JSON"),
    "cut short": (cut_short, "damaged:"),
    "NaN": (
        lambda folder: change_tensors(folder, lambda tensors: tensors[LORA_A].fill_(math.nan)),
        f"{LORA_A} has NaN or infinity; limit finite numbers",
    ),
    "a tensor missing": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.pop(LORA_A)), f"no {LORA_A}; limit the 8 tensors",
    ),
    "another shape": (
        lambda folder: change_tensors(folder, lambda tensors: tensors.update({LORA_A: torch.zeros(4, 64)})),
        f"{LORA_A} of shape [4, 64]; limit [4, 32] for this model",
    ),
    "a tensor too many": (
        lambda folder: change_tensors(
            folder, lambda tensors: tensors.update({LORA_A.replace("layers.0", "layers.7"): torch.zeros(4, 32)})
        ),
        "layers.7.self_attn.q_proj.lora_A.weight, which this model has no place for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", SPOILT)
def test_a_damaged_adapter_is_refused(folders, tmp_path, capsys, fault):
    spoil, line = SPOILT[fault]
    adapter = copy_adapter(folders["tied adapter"], tmp_path / "adapter")
    spoil(adapter)
    assert_refused({"model": folders["tied"], "adapter": adapter, "output": tmp_path / "out"}, line, capsys)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"peft_type": "IA3"}, "adapter_config.json: peft_type: 'IA3'"),
        ({"peft_type": None}, "adapter_config.json: peft_type: None"),
        ({"task_type": "SEQ_CLS"}, "adapter_config.json: task_type: 'SEQ_CLS'"),
        ({"bias": "all"}, "adapter_config.json: bias: 'all'"),
        ({"r": 0}, "adapter_config.json: r: 0"),
        ({"r": 3}, "of shape [4, 32]; limit [3, 32] for this model"),
        ({"target_modules": ["c_attn"]}, "adapter_config.json: refused (Target modules"),
        ({"target_modules": ["q_proj"]}, "which this model has no place for; limit the 4 tensors of its settings"),
        ({"target_modules": ["q_proj", "v_proj", "o_proj"]}, "o_proj.lora_A.weight; limit the 12 tensors"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: pissa, which changes the base"),
        ({"megatron_config": {"a": 1}}, 'megatron_config: {"a": 1}; limit LoRA'),
        ({"target_modules": "*proj"}, "adapter_config.json: refused (nothing to repeat"),
        ({"arrow_config": {}}, "arrow_config: {}; limit LoRA"),
        ({"layer_replication": [[0, 2]]}, "layer_replication: [[0, 2]]; limit LoRA"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens: [1]; limit LoRA"),
        ({"of_a_later_version": True}, "of_a_later_version: true; limit LoRA"),
    ],
)  # fmt: skip
def test_an_adapter_of_another_kind_is_refused(folders, tmp_path, capsys, settings, line):
    adapter = copy_adapter(folders["tied adapter"], tmp_path / "adapter", **settings)
    assert_refused({"model": folders["tied"], "adapter": adapter, "output": tmp_path / "out"}, line, capsys)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head.base_layer.weight"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "model.embed_tokens.base_layer.weight"),
        ({"modules_to_save": ["lm_head"]}, "lm_head.weight"),
        ({"modules_to_save": ["embed_tokens"]}, "model.embed_tokens.weight"),
    ],
)
def test_an_adapter_on_what_embedding_and_head_share_is_refused(
    folders, make_tiny_llama, tmp_path, capsys, settings, name
):
    adapter = write_adapter(make_tiny_llama(), tmp_path / "adapter", **settings)
    line = f"base_model.model.{name}: a change of the matrix that embedding and head share"
    assert_refused({"model": folders["tied"], "adapter": adapter, "output": tmp_path / "out"}, line, capsys)


def test_a_base_with_nan_is_refused(folders, make_tiny_llama, tiny_tokenizer, tmp_path, capsys):
    model = make_tiny_llama()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[0, 0] = math.nan
    save_model(model, tiny_tokenizer, tmp_path / "base")
    given = {"model": tmp_path / "base", "adapter": folders["tied adapter"], "output": tmp_path / "out"}
    assert_refused(given, "cannot be merged (NaNs detected in the merged weights", capsys)


def test_a_tokenizer_of_another_model_is_refused(folders, make_tiny_tokenizer, tmp_path, capsys):
    shutil.copytree(folders["tied"], tmp_path / "base")
    make_tiny_tokenizer(vocab_size=400).save_pretrained(tmp_path / "base")
    given = {"model": tmp_path / "base", "adapter": folders["tied adapter"], "output": tmp_path / "out"}
    assert_refused(given, "tokenizer: token id 394; limit 320 rows of the embedding", capsys)


def test_another_tokenizer_beside_the_adapter_is_warned_about(folders, tiny_tokenizer, tmp_path, capsys):
    adapter = copy_adapter(folders["tied adapter"], tmp_path / "adapter")
    tiny_tokenizer.save_pretrained(adapter)
    given = {"model": folders["tied"], "adapter": adapter}
    assert command({**given, "output": tmp_path / "same"}) == EXIT_DONE
    assert "warning: adapter-tokenizer" not in capsys.readouterr().err
    (adapter / "chat_template.jinja").write_text("{{ messages }}")
    assert command({**given, "output": tmp_path / "other"}) == EXIT_DONE
    assert "warning: adapter-tokenizer: the tokenizer or chat template beside adapter" in capsys.readouterr().err


def assert_refused(given: dict[str, Path], line: str, capsys) -> None:
    """In one line, with nothing sealed."""
    assert command(given) == EXIT_USER_ERROR
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1, told
    assert told[0].startswith("error: ")
    assert line in told[0]
    assert not (given["output"] / "manifest.json").exists()
