"""`langadapt models export-bedrock`: the folder, each rule with a bad input; written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import torch
from served_folder import OURS, READ_BY_SERVERS, load_as_a_server, write_fine_tuned_folder
from talking_model import GREETED, GREETING
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pipeline.__main__ import command_code
from pipeline.bedrock_export import export_for_bedrock
from pipeline.bedrock_rules import ARCHITECTURES, SERVED_ROPE, rope_differences
from pipeline.registry import LocalRegistry

ROPE_31 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    **{name: float(value) for name, value in SERVED_ROPE.items()},
}
ROPE_32 = {**ROPE_31, "factor": 32.0}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory, make_tiny_llama, tiny_tokenizer) -> Path:
    """FineTune's output: a model that replies and stops."""
    return write_fine_tuned_folder(tmp_path_factory.mktemp("learnt") / "model", tiny_tokenizer, make_tiny_llama)


def register(folder: Path, model: Path, status: str = "Approved") -> LocalRegistry:
    """A registry in runs/registry of a folder, with the model as version 1."""
    registry = LocalRegistry(folder / "runs" / "registry")
    registry.register(group="langadapt", model=model, metadata={}, metrics={}, request={}, status=status)
    return registry


def unsealed_copy(model: Path, folder: Path) -> Path:
    """A model folder without its seal, to be changed and registered."""
    return shutil.copytree(model, folder / "model", ignore=shutil.ignore_patterns("manifest.json"))


@pytest.fixture
def place(tmp_path: Path, learnt: Path, monkeypatch) -> Path:
    """A user's folder with version 1, approved."""
    register(tmp_path, learnt)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(*words: str) -> int:
    return command_code(["models", "export-bedrock", "1", "--output", "out", *words], as_json="--json" in words)


def logits(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(torch.arange(200)[None]).logits


def test_the_folder_has_what_bedrock_reads_and_nothing_else(place: Path, learnt: Path, capsys) -> None:
    assert export() == 0
    told = capsys.readouterr()
    names = {path.name for path in (place / "out").iterdir()}
    assert names == {"config.json", "generation_config.json", "chat_template.jinja", "model.safetensors",
                     "tokenizer.json", "tokenizer_config.json"}  # fmt: skip
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        assert (place / "out" / name).read_bytes() == (learnt / name).read_bytes()
    assert torch.equal(logits(place / "out"), logits(learnt))
    config = json.loads((place / "out" / "config.json").read_text())
    assert (config["torch_dtype"], config["rope_theta"]) == ("bfloat16", 10_000.0)
    assert not {"dtype", "rope_parameters"} & config.keys()
    assert told.out.startswith("langadapt version 1: 6 files, ")
    assert "LlamaForCausalLM, BF16, 320 tokens in the vocabulary, context 4,096 tokens" in told.out
    assert told.err == ""


def test_a_server_loads_both_the_version_and_the_export(place: Path, learnt: Path) -> None:
    """From the folder alone, in a fresh process, offline, without the model's own code; and a reply ends by itself."""
    assert {path.name for path in learnt.iterdir()} <= READ_BY_SERVERS | OURS.keys()
    assert export() == 0
    for found in load_as_a_server(place / "runs" / "registry" / "langadapt" / "1" / "model", place / "out"):
        assert (found["config_dtype"], found["dtypes"]) == ("torch.bfloat16", ["torch.bfloat16"])
        assert (found["rows"], found["tokens"], found["left_over"]) == (320, 320, [])
        assert sorted(found["generation_ends"]) == sorted([found["end"], found["end_of_turn"]])
        assert found["pad"] not in found["generation_ends"]
        assert (found["begins"], found["prompt"].count(GREETING)) == (1, 1)
        assert found["prompt"].endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")
        assert found["reply"][-1] == found["end_of_turn"]
        assert found["reply_text"] == GREETED


def test_the_template_renders_alike_without_the_tag_of_training(place: Path, learnt: Path) -> None:
    assert export() == 0
    assert "{% generation" not in (template := (place / "out" / "chat_template.jinja").read_text())
    assert "{%- generation" not in template
    assert json.loads((place / "out" / "tokenizer_config.json").read_text())["chat_template"] == template
    turns = [{"role": role, "content": f" {role}: Bəli? "} for role in ("system", "user", "assistant", "user")]
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (learnt, place / "out"))
    for more in ({}, {"add_generation_prompt": True}):
        shown = [one.apply_chat_template(turns, tokenize=False, **more) for one in (before, after)]
        assert shown[0] == shown[1]


def test_shards_travel_with_their_index(tmp_path: Path, learnt: Path) -> None:
    folder = unsealed_copy(learnt, tmp_path)
    AutoModelForCausalLM.from_pretrained(learnt).save_pretrained(tmp_path / "shards", max_shard_size=50_000)
    (folder / "model.safetensors").unlink()
    for path in (tmp_path / "shards").glob("model*"):
        shutil.copy(path, folder)
    (folder / "model-from-elsewhere.safetensors").write_bytes(b"named by no index")
    registry = register(tmp_path, folder)
    files = export_for_bedrock(registry.show(1), tmp_path / "out").files
    named = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert {name for name in files if name.endswith(".safetensors")} == named
    assert len(named) > 1
    assert torch.equal(logits(tmp_path / "out"), logits(learnt))


def test_json_tells_a_program_what_was_written(place: Path, capsys) -> None:
    assert export("--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["status"], told["folder"], told["warnings"]) == (1, "Approved", "out", [])
    assert told["bytes"] == sum(path.stat().st_size for path in (place / "out").iterdir())
    assert told["files"].keys() == {path.name for path in (place / "out").iterdir()}
    assert export("--json") == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["subject"], error["value"], error["limit"]) == ("--output", "out exists", "a new folder")


@pytest.mark.parametrize("status", ["PendingManualApproval", "Rejected"])
def test_only_an_approved_version_leaves_unless_a_pending_one_is_asked_for(
    tmp_path, learnt, monkeypatch, capsys, status
):
    register(tmp_path, learnt, status)
    monkeypatch.chdir(tmp_path)
    assert export() == 1
    line = capsys.readouterr().err
    assert line.startswith(
        f"error: version: 1 is {status}; limit Approved. Approve it first: langadapt models approve 1"
    )
    assert ("--pending" in line) == (status == "PendingManualApproval")
    assert export("--pending") == (0 if status == "PendingManualApproval" else 1)


@pytest.mark.parametrize("make", [os.mkdir, lambda name: Path(name).touch(), lambda name: os.symlink("nowhere", name)])
def test_nothing_that_exists_is_written_over(place: Path, capsys, make: Callable[[str], Any]) -> None:
    make("out")
    assert export() == 1
    assert capsys.readouterr().err == "error: --output: out exists; limit a new folder. Name another one.\n"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["", "langadapt/", "langadapt/1/model/", "../../runs/registry/langadapt/1/"])
def test_nothing_is_written_into_the_registry(place: Path, capsys, name: str) -> None:
    before = content(place / "runs")
    output = f"runs/registry/{name}x"
    assert export("--output", output) == 1
    line = f"--output: {output}; limit a folder outside the registry {place / 'runs/registry'}. Name another one."
    assert capsys.readouterr().err == f"error: {line}\n"
    assert content(place / "runs") == before


def test_a_place_where_no_folder_can_be_is_one_line(place: Path, capsys) -> None:
    assert export("--output", "/proc/x") == 1
    assert capsys.readouterr().err == "error: /proc/x: cannot be made there. Name a place that can be written to.\n"


def test_the_command_that_is_told_takes_a_name_with_a_space(place: Path, capsys) -> None:
    assert export("--output", "my model") == 0
    assert "aws s3 cp --recursive 'my model' s3://BUCKET/PREFIX/" in capsys.readouterr().out


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_mode_that_the_umask_says(tmp_path, learnt, monkeypatch, umask: int, mode: int) -> None:
    """In the registry and in the export, whatever mode the run's files have."""
    model = shutil.copytree(learnt, tmp_path / "model")
    (model / "model.safetensors").chmod(0o600)
    (model / "config.json").chmod(0o644)
    monkeypatch.chdir(tmp_path)
    before = os.umask(umask)
    try:
        register(tmp_path, model)
        assert export() == 0
    finally:
        os.umask(before)
    written = [path for folder in ("runs/registry/langadapt/1", "out") for path in Path(folder).rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in written if path.is_file()} == {mode}


def test_a_damaged_version_is_refused(place: Path, capsys) -> None:
    path = place / "runs" / "registry" / "langadapt" / "1" / "model" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert export() == 1
    assert capsys.readouterr().err.startswith("error: damaged model version: ")
    assert not (place / "out").exists()


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_is_interrupted_leaves_nothing(place: Path, monkeypatch, fault: BaseException) -> None:
    """The disk, or somebody, stops it before the folder has its name."""

    def stopped(*arguments: object) -> None:
        raise fault

    monkeypatch.setattr(os, "rename", stopped)
    with pytest.raises(type(fault)):
        export_for_bedrock(LocalRegistry(place / "runs" / "registry").show(1), place / "below" / "out")
    assert list((place / "below").iterdir()) == []


# --- the rules --------------------------------------------------------------------------------------------------------


def with_config(**settings: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))

    return change


def with_tokenizer_class(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": name}))

    return change


def with_dtype(name: str, size: int) -> Callable[[Path], None]:
    """The weights' header says another dtype, and the file is as long as that asks for."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header, place = json.loads(content[8 : 8 + length]), 0
        for key in sorted(header.keys() - {"__metadata__"}, key=lambda key: header[key]["data_offsets"]):
            count = math.prod(header[key]["shape"])
            header[key] |= {"dtype": name, "data_offsets": [place, place + count * size]}
            place += count * size
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(place))

    return change


def with_huge_weights(folder: Path) -> None:
    """A header and a hole: 200 GB that take no room."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    header["more.weight"] = {"dtype": "BF16", "shape": [10**11], "data_offsets": [end, end + 2 * 10**11]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    os.truncate(path, 8 + len(text) + end + 2 * 10**11)


def with_one_token_too_many(folder: Path) -> None:
    path = folder / "tokenizer.json"
    settings = json.loads(path.read_text())
    settings["added_tokens"].append({**settings["added_tokens"][-1], "id": 320, "content": "<|one_more|>"})
    path.write_text(json.dumps(settings))


def with_pickles_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


RULES = {
    "another architecture": (with_config(architectures=["GemmaForCausalLM"]), "architecture GemmaForCausalLM; limit "),
    "no architecture": (with_config(architectures=[]), "architecture unnamed; limit "),
    "a longer context": (with_config(max_position_embeddings=131_073), "a context of 131,073 tokens; limit 131,072."),
    "weights too large": (with_huge_weights, "weights of 200.0 GB; limit below 200.0 GB."),
    "quantised weights": (with_config(quantization_config={"quant_method": "gptq"}), "quantized weights."),
    "weights in 8 bits": (with_dtype("F8_E4M3", 1), "weights of type F8_E4M3; limit BF16, F16, F32."),
    "pickles": (with_pickles_alone, "pickled weights only (pytorch_model.bin); limit *.safetensors."),
    "more tokens than rows": (with_one_token_too_many, "320 embedding rows; limit 321 tokens of its tokenizer."),
    "another tokenizer class": (with_tokenizer_class("GemmaTokenizer"), "class GemmaTokenizer; limit CodeLlama"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json."),
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json."),
    "broken settings": (lambda folder: (folder / "generation_config.json").write_text("{"), "no JSON of settings ("),
    "an adapter": (
        lambda folder: (folder / "adapter_config.json").touch(),
        "an adapter; limit a merged model. Merge it",
    ),
    "code of its own": (with_config(auto_map={"AutoModelForCausalLM": "own.Model"}), "own.Model"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_one_line_and_leaves_nothing(tmp_path, learnt, monkeypatch, capsys, name: str) -> None:
    change, words = RULES[name]
    registry = register(tmp_path, learnt)
    # In the registry itself: what was registered so is the same to the rules, which come before the digest.
    change(registry.show(1).model_folder)
    monkeypatch.chdir(tmp_path)
    assert export() == 1
    line = capsys.readouterr().err
    print(line)
    assert line.startswith("error: ")
    assert (words in line, line.count("\n")) == (True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_llama_31_keeps_the_rules_at_its_own_128k(tmp_path: Path, learnt: Path) -> None:
    """It is supported by name, and its config.json has exactly 131,072 positions."""
    folder = unsealed_copy(learnt, tmp_path)
    with_config(max_position_embeddings=131_072, rope_parameters=ROPE_31)(folder)
    exported = export_for_bedrock(register(tmp_path, folder).show(1), tmp_path / "out")
    assert (exported.model.context_tokens, exported.model.warnings) == (131_072, ())
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["rope_theta"] == 500_000.0
    assert config["rope_scaling"] == {name: value for name, value in ROPE_31.items() if name != "rope_theta"}


def test_other_rotary_positions_than_it_was_trained_with_are_told(tmp_path, learnt, monkeypatch, capsys) -> None:
    """Llama 3.2 has factor 32, Bedrock serves 8: how much that is shows in the logits of a model of its head width."""
    folder = unsealed_copy(learnt, tmp_path)
    with_config(max_position_embeddings=131_072, rope_parameters=ROPE_32)(folder)
    register(tmp_path, folder)
    monkeypatch.chdir(tmp_path)
    assert export() == 0
    line = capsys.readouterr().err
    assert line.startswith(
        "warning: rope-scaling-overridden: Bedrock sets the rotary scaling of every llama3 model itself"
    )
    assert "factor 32.0 (trained) to 8" in line
    early, late = (logit_change(tokens) for tokens in (64, 1_024))
    print(f"logits of factor 8 beside 32, as a share of the largest: {early:.4f} at 64 tokens, {late:.4f} at 1,024")
    assert 0 < early < 0.01 < late
    assert rope_differences({"rope_parameters": ROPE_31}) == {}
    assert rope_differences({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}) == {}


def logit_change(tokens: int) -> float:
    """Largest change of a logit of the last token between the factors 32 and 8, on a random model of Llama 3.2's head
    width."""
    found = []
    for factor in (32.0, 8.0):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=1_024, hidden_size=256, intermediate_size=896, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=131_072, initializer_range=0.06,
            rope_parameters={**ROPE_31, "factor": factor},
        )  # fmt: skip
        ids = torch.randint(1_024, (1, tokens), generator=torch.Generator().manual_seed(1))
        with torch.inference_mode():
            found.append(LlamaForCausalLM(config).eval()(ids, logits_to_keep=64).logits)
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


def test_float32_and_a_missing_end_are_told(tmp_path: Path, learnt: Path) -> None:
    folder = unsealed_copy(learnt, tmp_path)
    with_dtype("F32", 4)(folder)
    (folder / "generation_config.json").unlink()
    exported = export_for_bedrock(register(tmp_path, folder).show(1), tmp_path / "out")
    assert [warned.name for warned in exported.model.warnings] == ["float32-weights", "no-end-of-reply"]


PAGE = Path(__file__).parents[2] / "docs" / "serving.md"


def test_the_pages_aws_commands_have_operations_and_options_that_exist() -> None:
    """By botocore's own shapes: nothing is sent."""
    session = botocore.session.get_session()
    page = PAGE.read_text().replace("\\\n", " ")
    commands = re.findall(r"^    aws (sagemaker|bedrock) ([a-z-]+)(.*)$", page, re.MULTILINE)
    assert [command for _, command, _ in commands] == [
        "create-model", "create-endpoint-config", "create-endpoint", "create-model-import-job"
    ]  # fmt: skip
    for service, command, options in commands:
        model = session.get_service_model(service)
        name = "".join(part.capitalize() for part in command.split("-"))
        shape = model.operation_model(name).input_shape
        given = {
            "".join(part.capitalize() for part in option.split("-")) for option in re.findall(r"--([a-z-]+)", options)
        }
        members = {member[0].upper() + member[1:] for member in shape.members}
        required = {member[0].upper() + member[1:] for member in shape.required_members}
        assert required <= given <= members, command


def test_the_page_lists_the_architectures() -> None:
    page = PAGE.read_text()
    assert [name for name in ARCHITECTURES if f"`{name}`" not in page] == []
