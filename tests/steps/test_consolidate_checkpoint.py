"""Checkpoints made one model folder: every bit of them, whoever wrote them; what is damaged or hostile is refused."""

from __future__ import annotations

import enum
import json
import math
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from small_pretraining import ROOT, free_port, start
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata
from transformers import AutoModelForCausalLM, AutoTokenizer, GPTNeoXConfig, MixtralConfig

from steps.configs.consolidate_checkpoint import ConsolidateCheckpointConfig
from steps.consolidate_checkpoint import FOLDERS, consolidate
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, StepError, read_seal, run_step
from steps.contract.model_folder import INDEX_NAME
from steps.modeling.checkpoint_metadata import METADATA_NAME, read_tensor_list
from steps.modeling.checkpoints import CheckpointStore, training_state
from steps.modeling.loading import load_model, save_model
from steps.modeling.parallel import Processes

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def models(tmp_path_factory, make_tiny_llama, tiny_tokenizer) -> dict[str, Path]:
    """Model folders, tied and untied, in float32, and one without weights."""
    root = tmp_path_factory.mktemp("models")
    for name, tied in (("tied", True), ("untied", False)):
        save_model(make_tiny_llama(tied=tied), tiny_tokenizer, root / name)
    shutil.copytree(root / "tied", root / "bare")
    (root / "bare" / "model.safetensors").unlink()
    return {path.name: path for path in root.iterdir()}


def run(checkpoint: Path, model: Path, output: Path, **settings: Any) -> int:
    given = {"checkpoint": checkpoint, "model": model, "output": output, **settings}
    return run_step(
        consolidate, ConsolidateCheckpointConfig, FOLDERS,
        arguments=[f"--{name}={value}" for name, value in given.items()],
    )  # fmt: skip


def weights_of(model: Path) -> dict[str, torch.Tensor]:
    return load_file(model / "model.safetensors")


def assert_same(output: Path, expected: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> None:
    """As transformers loads it, bit for bit; and no other tensor is written."""
    loaded = AutoModelForCausalLM.from_pretrained(output).state_dict()
    written = {name for file in output.glob("*.safetensors") for name in load_file(file)}
    assert written == expected.keys()
    for name, tensor in expected.items():
        assert loaded[name].dtype == dtype
        assert torch.equal(loaded[name], tensor.to(dtype)), name


def save_dcp(folder: Path, state: dict[str, Any]) -> Path:
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    return folder


# --- whose checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_a_set_of_our_training(models, make_tiny_llama, tmp_path, tied):
    model = make_tiny_llama(tied=tied)
    optimizer = torch.optim.AdamW(model.parameters())
    store = CheckpointStore(tmp_path / "sets", "key", 2, ALONE)
    store.save(7, training_state(model, optimizer), {"step": 7})
    kind = "tied" if tied else "untied"
    assert run(store.folder / "step-00000007", models[kind], tmp_path / "out") == EXIT_DONE
    assert_same(tmp_path / "out", weights_of(models[kind]))
    metrics = read_seal(tmp_path / "out").metrics
    assert (metrics["prefix"], metrics["files"], metrics["tensors"]) == ("model.", 1, 20 if tied else 21)
    # The optimizer's three for each.
    assert metrics["passed_over"] == 3 * metrics["tensors"]
    assert AutoTokenizer.from_pretrained(tmp_path / "out").get_vocab()


def test_what_two_processes_saved(models, tmp_path, capsys):
    """Over gloo, sharded by FSDP2: a set of ours, a nested state of others, safetensors of torch's own writer."""
    command = [
        sys.executable,
        str(ROOT / "tests" / "helpers" / "sharded_saves.py"),
        str(models["untied"]),
        str(tmp_path),
    ]
    # What torchrun sets, without the seconds that it takes itself.
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [start(command, {**common, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    weights = weights_of(models["untied"])
    forms = {
        "sets/key/step-00000003": ("model.", "__1_0.distcp"),
        "dcp": ("state_dict.model.", "__1_0.distcp"),
        "shards": ("none", "shard-00002-model-00001-of-00001.safetensors"),
    }
    for number, (folder, (prefix, _)) in enumerate(forms.items()):
        output = tmp_path / f"out-{number}"
        assert run(tmp_path / folder, models["untied"], output) == EXIT_DONE
        assert_same(output, weights)
        assert read_seal(output).metrics["prefix"] == prefix

    # What the second process wrote gets lost: no tensor is whole.
    for folder, (_, second) in forms.items():
        (tmp_path / folder / second).unlink()
        (tmp_path / "in").unlink(missing_ok=True)
        (tmp_path / "in").symlink_to(tmp_path / folder)
        line = refused(tmp_path, models["untied"], capsys)
        assert line.startswith(
            ("in: incomplete: ", "in/__1_0.distcp: missing", "in: model.embed_tokens.weight of shape")
        )


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.", "state_dict.model.", "module._orig_mod."])
def test_a_prefix_of_others_is_found(models, tmp_path, prefix):
    weights = weights_of(models["tied"])
    more = {"optimizer.state.0.exp_avg": torch.zeros(3), "train_state.step": torch.tensor(3), "epoch": 4}
    save_dcp(tmp_path / "in", {**{prefix + name: tensor for name, tensor in weights.items()}, **more})
    assert run(tmp_path / "in", models["bare"], tmp_path / "out") == EXIT_DONE
    assert_same(tmp_path / "out", weights)


def test_wrappers_inside_the_names_are_no_hindrance(models, tmp_path):
    weights = weights_of(models["tied"])
    wrapped = {
        name.replace("layers.1.", "layers.1._checkpoint_wrapped_module."): tensor for name, tensor in weights.items()
    }
    assert wrapped.keys() != weights.keys()
    assert run(save_dcp(tmp_path / "in", wrapped), models["tied"], tmp_path / "out") == EXIT_DONE
    assert_same(tmp_path / "out", weights)


SIZES = {
    "vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 512,
}  # fmt: skip
FAMILIES = {
    # Another name for the head in files than in memory.
    "gpt-neox": (GPTNeoXConfig(**SIZES), "embed_out.weight"),
    # One tensor for all experts in memory.
    "mixtral": (
        MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=3),
        "model.layers.0.block_sparse_moe.experts.2.w1.weight",
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_names_in_files_and_in_memory_that_differ(tiny_tokenizer, tmp_path, family):
    config, only_in_files = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    save_model(model, tiny_tokenizer, tmp_path / "model")
    assert only_in_files in weights_of(tmp_path / "model")
    save_dcp(tmp_path / "memory", training_state(model, None))
    for form, prefix in (("model", "none"), ("memory", "model.")):
        assert run(tmp_path / form, tmp_path / "model", tmp_path / f"{form}-out") == EXIT_DONE
        assert read_seal(tmp_path / f"{form}-out").metrics["prefix"] == prefix
        written, expected = weights_of(tmp_path / f"{form}-out"), weights_of(tmp_path / "model")
        assert written.keys() == expected.keys()
        assert all(torch.equal(written[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("index", [True, False])
def test_sharded_safetensors_in_and_out(models, tmp_path, index):
    """Read from several files, with an index and without, and written into several that transformers loads."""
    model = AutoModelForCausalLM.from_pretrained(models["untied"])
    model.save_pretrained(tmp_path / "in", max_shard_size=20_000)
    if not index:
        (tmp_path / "in" / INDEX_NAME).unlink()
    limit_bytes = 30_000
    assert run(tmp_path / "in", models["bare"], tmp_path / "tied") == EXIT_USER_ERROR
    settings = {"max_file_gib": limit_bytes / 2**30, "dtype": "bfloat16"}
    assert run(tmp_path / "in", models["untied"], tmp_path / "out", **settings) == EXIT_DONE
    assert_same(tmp_path / "out", weights_of(models["untied"]), torch.bfloat16)
    files = {path.name: load_file(path) for path in (tmp_path / "out").glob("*.safetensors")}
    assert len(files) == read_seal(tmp_path / "out").metrics["files"] > 2
    assert all(sum(tensor.nbytes for tensor in tensors.values()) <= limit_bytes for tensors in files.values())
    weight_map = json.loads((tmp_path / "out" / INDEX_NAME).read_text())["weight_map"]
    assert weight_map == {name: file for file, tensors in files.items() for name in tensors}


def test_files_that_the_index_does_not_name_do_not_count(models, tmp_path):
    AutoModelForCausalLM.from_pretrained(models["tied"]).save_pretrained(tmp_path / "in", max_shard_size=20_000)
    save_file({"layers.0.attention.wq.weight": torch.zeros(3)}, tmp_path / "in" / "consolidated.safetensors")
    assert run(tmp_path / "in", models["tied"], tmp_path / "out") == EXIT_DONE
    assert_same(tmp_path / "out", weights_of(models["tied"]))


def test_a_given_prefix_chooses_among_two_models(models, make_tiny_llama, tmp_path, capsys):
    averaged = dict(make_tiny_llama(seed=3).named_parameters())
    state = {f"model.{name}": tensor for name, tensor in weights_of(models["tied"]).items()}
    state |= {f"ema.{name}": tensor.detach() for name, tensor in averaged.items()}
    save_dcp(tmp_path / "in", state)
    assert run(tmp_path / "in", models["tied"], tmp_path / "out") == EXIT_USER_ERROR
    assert "whole models under ema., model.; limit one. Say which with --prefix=" in capsys.readouterr().err
    assert run(tmp_path / "in", models["tied"], tmp_path / "out", prefix="ema.") == EXIT_DONE
    assert_same(tmp_path / "out", {name: tensor.detach() for name, tensor in averaged.items()})


def test_a_tied_matrix_may_have_both_names_or_either(models, tmp_path):
    weights = weights_of(models["tied"])
    head = {"lm_head.weight": weights[EMBEDDING]}
    only_head = {name: tensor for name, tensor in weights.items() if name != EMBEDDING} | head
    for name, state in (("both", weights | head), ("head", only_head)):
        assert run(save_dcp(tmp_path / name, state), models["tied"], tmp_path / f"{name}-out") == EXIT_DONE
        assert_same(tmp_path / f"{name}-out", weights)


# --- refused ----------------------------------------------------------------------------------------------------------


def refused(tmp_path: Path, model: Path, capsys, **settings: Any) -> str:
    """The one line of a refusal, with nothing sealed."""
    capsys.readouterr()
    assert run(tmp_path / "in", model, tmp_path / "out", **settings) == EXIT_USER_ERROR
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1, told
    assert not (tmp_path / "out" / "manifest.json").exists()
    return told[0].removeprefix(f"error: {tmp_path}/")


Weights = dict[str, torch.Tensor]
CHANGED: dict[str, tuple[Callable[[Weights], object], str]] = {
    "missing": (lambda weights: weights.pop("model.norm.weight"), "in: no model.norm.weight, one of 1 tensors missing"),
    "extra": (
        lambda weights: weights.update({"model.layers.2.mlp.up_proj.weight": torch.zeros(2)}),
        "in: model.layers.2.mlp.up_proj.weight, one of 1 tensors too many; limit the model's, with no prefix",
    ),
    "shape": (
        lambda weights: weights.update({"model.norm.weight": torch.zeros(16)}),
        "in: model.norm.weight of shape [16]; limit [32] by config.json",
    ),
    "an unequal head": (
        lambda weights: weights.update({"lm_head.weight": weights[EMBEDDING] + 1}),
        "in: lm_head.weight differs from model.embed_tokens.weight; limit one matrix",
    ),
    "NaN": (lambda weights: weights["model.norm.weight"].fill_(math.nan), "in: model.norm.weight has NaN or infinity"),
    "whole numbers": (
        lambda weights: weights.update({"model.norm.weight": torch.zeros(32, dtype=torch.int8)}),
        "in: model.norm.weight in torch.int8; limit weights in floating point",
    ),
    "other names": (
        lambda weights: [weights.update({f"tok.{name.split('.')[-2]}.{index}": weights.pop(name)})
                         for index, name in enumerate(list(weights))],
        "in: no tensor of the model; the first there is tok.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", CHANGED)
@pytest.mark.parametrize("form", ["dcp", "safetensors"])
def test_tensors_that_are_not_the_models_are_named(models, tmp_path, capsys, fault, form):
    change, line = CHANGED[fault]
    weights = weights_of(models["tied"])
    change(weights)
    if form == "dcp":
        save_dcp(tmp_path / "in", weights)
    else:
        (tmp_path / "in").mkdir()
        save_file(weights, tmp_path / "in" / "model.safetensors")
    assert refused(tmp_path, models["tied"], capsys).startswith(line)


def test_values_beyond_the_dtype_are_refused(models, tmp_path, capsys):
    weights = weights_of(models["tied"])
    weights["model.norm.weight"][0] = 1e6
    save_dcp(tmp_path / "in", weights)
    line = refused(tmp_path, models["tied"], capsys, dtype="float16")
    assert line.startswith("in: model.norm.weight has NaN or infinity; limit finite numbers of torch.float16")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2_000])


DAMAGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard missing": (lambda folder: (folder / "__0_0.distcp").unlink(), "in/__0_0.distcp: missing; limit the 1 fil"),
    "a shard cut short": (lambda folder: cut(folder / "__0_0.distcp"), "in/__0_0.distcp: cut short: "),
    "no list": (lambda folder: (folder / METADATA_NAME).unlink(), "in: no .metadata, the list of its tensors"),
    "a list cut short": (lambda folder: cut(folder / METADATA_NAME), "in/.metadata: damaged ("),
    "no list at all": (lambda folder: (folder / METADATA_NAME).write_bytes(b"\x80\x04N."), "in/.metadata: damaged ("),
    "noise": (
        lambda folder: (folder / "__0_0.distcp").write_bytes(bytes((folder / "__0_0.distcp").stat().st_size)),
        "in: cannot be read (",
    ),
    "a marker of another": (
        lambda folder: (folder / "complete.json").write_text('{"files": {"a": {"bytes": 1, "sha256": "0"}}}'),
        "in: incomplete: a is missing; limit complete.json",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_checkpoint_is_refused(models, tmp_path, capsys, fault):
    damage, line = DAMAGED[fault]
    damage(save_dcp(tmp_path / "in", weights_of(models["tied"])))
    assert refused(tmp_path, models["tied"], capsys).startswith(line)


def test_damaged_safetensors_are_refused(models, tmp_path, capsys):
    AutoModelForCausalLM.from_pretrained(models["tied"]).save_pretrained(tmp_path / "in", max_shard_size=20_000)
    shard = sorted((tmp_path / "in").glob("*.safetensors"))[1]
    cut(shard)
    assert refused(tmp_path, models["tied"], capsys).startswith(f"in/{shard.name}: damaged: ")
    shard.unlink()
    line = refused(tmp_path, models["tied"], capsys)
    assert line.startswith(f"in/{INDEX_NAME}: {shard.name} is missing; limit the ")


def test_a_folder_that_is_no_checkpoint_says_what_is(models, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    assert refused(tmp_path, models["tied"], capsys).startswith("in: no checkpoint; limit .metadata and its files, or")
    (tmp_path / "in" / "pytorch_model.bin").touch()
    assert refused(tmp_path, models["tied"], capsys).startswith("in: pytorch_model.bin, a pickle, which may run code")
    save_dcp(tmp_path / "in" / "step-00000004", weights_of(models["tied"]))
    assert refused(tmp_path, models["tied"], capsys).endswith("Name one of the 1 in it, such as step-00000004.")


# --- hostile ----------------------------------------------------------------------------------------------------------


class Hostile:
    """Pickled, a call of anything: here one that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def hostile_list(folder: Path, trace: Path) -> None:
    (folder / METADATA_NAME).write_bytes(pickle.dumps(Hostile(trace)))


def hostile_entry(folder: Path, trace: Path) -> None:
    """The list is sound but for one value deep in it."""
    metadata = FileSystemReader(folder).read_metadata()
    metadata.planner_data = {"a": Hostile(trace)}
    (folder / METADATA_NAME).write_bytes(pickle.dumps(metadata))


class AttributeOf:
    """Pickled, a getattr: of a module's function, and of one of a type that the list does name."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, self.arguments


def hostile_attribute(folder: Path, trace: Path) -> None:
    (folder / METADATA_NAME).write_bytes(pickle.dumps(AttributeOf(torch.Size, "__class__")))


def hostile_class(folder: Path, trace: Path) -> None:
    """Sets an attribute of a class, Metadata.hello = "world", which a pickle can without calling anything."""
    metadata_class, state = b"ctorch.distributed.checkpoint.metadata\nMetadata\n", b"N}\x8c\x05hello\x8c\x05worlds\x86"
    (folder / METADATA_NAME).write_bytes(b"\x80\x04" + metadata_class + state + b"b.")


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (hostile_list, "names pathlib.Path.touch; limit a list of tensors"),
        (hostile_entry, "names pathlib.Path.touch; limit a list of tensors"),
        (hostile_attribute, "names builtins.getattr; limit a list of tensors"),
        (hostile_class, "damaged (TypeError"),
    ],
)
def test_a_list_that_would_run_something_is_refused_and_nothing_runs(models, tmp_path, capsys, spoil, line):
    trace = tmp_path / "trace"
    spoil(save_dcp(tmp_path / "in", weights_of(models["tied"])), trace)
    assert refused(tmp_path, models["tied"], capsys).startswith(f"in/.metadata: {line}")
    assert not trace.exists()
    assert not hasattr(Metadata, "hello")


def test_the_hostile_list_is_one_that_torch_would_run(tmp_path):
    """Else the test above would show nothing."""
    (tmp_path / "in").mkdir()
    hostile_list(tmp_path / "in", tmp_path / "trace")
    with pytest.raises(AttributeError):
        FileSystemReader(tmp_path / "in").read_metadata()
    assert (tmp_path / "trace").exists()


def test_a_weight_that_is_said_to_be_an_object_is_never_read(models, tmp_path, capsys):
    """torch reads what is listed as an object by pickle, whatever is asked for: it must not be on the list."""
    weights = weights_of(models["tied"])
    weights["model.norm.weight"] = Hostile(tmp_path / "trace")
    save_dcp(tmp_path / "in", weights)
    assert isinstance(
        FileSystemReader(tmp_path / "in").read_metadata().state_dict_metadata["model.norm.weight"], BytesStorageMetadata
    )
    assert refused(tmp_path, models["tied"], capsys).startswith("in: no model.norm.weight, one of 1 tensors missing")
    assert not (tmp_path / "trace").exists()


def test_a_list_that_leads_out_of_its_folder_is_refused(models, tmp_path, capsys):
    save_dcp(tmp_path / "in", weights_of(models["tied"]))
    metadata = FileSystemReader(tmp_path / "in").read_metadata()
    next(iter(metadata.storage_data.values())).relative_path = "../other/__0_0.distcp"
    (tmp_path / "in" / METADATA_NAME).write_bytes(pickle.dumps(metadata))
    line = refused(tmp_path, models["tied"], capsys)
    assert "lies in ../other/__0_0.distcp, which is no file of this folder" in line


def test_our_training_does_not_run_a_hostile_list_either(make_tiny_llama, tmp_path):
    model = make_tiny_llama()
    store = CheckpointStore(tmp_path / "sets", "key", 2, ALONE)
    store.save(3, training_state(model, None), {"step": 3})
    hostile_list(store.folder / "step-00000003", tmp_path / "trace")
    with pytest.raises(StepError, match=r"\.metadata: names pathlib\.Path\.touch; limit a list of tensors"):
        store.load(3, training_state(model, None))
    assert not (tmp_path / "trace").exists()


class EarlyPickler(pickle.Pickler):
    """Writes members of an Enum as Python 3.11.0 to 3.11.3 do, Debian 12's among them."""

    def reducer_override(self, value: Any) -> Any:
        return (getattr, (type(value), value.name)) if isinstance(value, enum.Enum) else NotImplemented


def test_the_list_of_an_early_python_3_11(models, tmp_path):
    weights = weights_of(models["tied"])
    save_dcp(tmp_path / "in", weights)
    with (tmp_path / "in" / METADATA_NAME).open("rb") as stream:
        metadata = pickle.load(stream)  # noqa: S301
    with (tmp_path / "in" / METADATA_NAME).open("wb") as stream:
        EarlyPickler(stream, protocol=4).dump(metadata)
    assert b"getattr" in (tmp_path / "in" / METADATA_NAME).read_bytes()
    assert run(tmp_path / "in", models["tied"], tmp_path / "out") == EXIT_DONE
    assert_same(tmp_path / "out", weights)


def test_the_list_is_read_as_torch_reads_it(models, tmp_path):
    """Shapes, dtypes, chunks and places of every tensor."""
    state = {
        "a": {"b": torch.ones(3, 2, dtype=torch.bfloat16)},
        "c": torch.tensor(1.0),
        "d": "text",
        "e": [torch.ones(2)],
    }
    save_dcp(tmp_path / "in", state)
    own, theirs = read_tensor_list(tmp_path / "in"), FileSystemReader(tmp_path / "in").read_metadata()
    assert own.state_dict_metadata.keys() == {"a.b", "c", "e.0"}
    for name, entry in own.state_dict_metadata.items():
        wanted = theirs.state_dict_metadata[name]
        assert (entry.size, entry.chunks, entry.properties.dtype) == (
            wanted.size,
            wanted.chunks,
            wanted.properties.dtype,
        )
    assert own.storage_data == {key: place for key, place in theirs.storage_data.items() if key.fqn != "d"}
    assert own.version == theirs.version


def test_a_loaded_model_folder_is_complete(models, tmp_path):
    """Nothing of --model but config.json and tokenizer is needed, and what is written loads as a model of ours."""
    save_dcp(tmp_path / "in", weights_of(models["tied"]))
    assert run(tmp_path / "in", models["bare"], tmp_path / "out") == EXIT_DONE
    model = load_model(tmp_path / "out")
    assert model.lm_head.weight is model.model.embed_tokens.weight
