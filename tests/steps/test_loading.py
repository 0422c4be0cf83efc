"""Model folders that cannot be used are told in one line, with what to do."""

import json
from pathlib import Path

import pytest
import torch

from steps.contract import StepError
from steps.contract.model_folder import check_base_model, check_model_folder
from steps.modeling.loading import load_model, load_tokenizer, save_model


@pytest.fixture
def folder(tmp_path: Path, tiny_llama, tiny_tokenizer) -> Path:
    save_model(tiny_llama, tiny_tokenizer, tmp_path / "model")
    return tmp_path / "model"


def test_a_good_folder_loads(folder: Path) -> None:
    assert load_model(folder).config.vocab_size == len(load_tokenizer(folder))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("model.safetensors", b"\x00" * 20, "model.safetensors: damaged"),
        ("config.json", b"{", "config.json: no JSON"),
        ("config.json", b"[]", "no JSON object"),
        ("config.json", json.dumps({"auto_map": {"AutoModel": "x.Y"}}).encode(), "asks for code of its own"),
    ],
)
def test_a_damaged_model(folder: Path, name: str, content: bytes, words: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(StepError, match=words):
        check_model_folder(folder)


def test_pickled_weights_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(StepError, match=r"pickled weights only \(pytorch_model.bin\); limit \*.safetensors"):
        load_model(folder)


def test_a_damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(StepError, match=r"tokenizer\.json: damaged"):
        load_tokenizer(folder)


def edited(folder: Path, **settings: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def test_layers_without_weights_are_never_random(folder: Path) -> None:
    with pytest.raises(StepError, match=r"9 weights missing or of another shape than config\.json says, first model"):
        load_model(edited(folder, num_hidden_layers=3))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_type": "t5"}, "model_type t5; limit a causal language model"),
        ({"model_type": "nosuch"}, "config.json: model_type nosuch, unknown to transformers"),
        ({"num_hidden_layers": "two"}, "config.json: refused .*num_hidden_layers"),
        ({"hidden_size": 64}, "weights missing or of another shape"),
    ],
)
def test_a_configuration_that_transformers_refuses(folder: Path, settings: dict, words: str) -> None:
    with pytest.raises(StepError, match=words):
        load_model(edited(folder, **settings))


def test_the_tie_and_the_weights_must_agree(folder: Path, tmp_path: Path, make_tiny_llama, tiny_tokenizer) -> None:
    with pytest.raises(StepError, match=r"tie_word_embeddings is false; limit a lm_head\.weight in the weights"):
        check_model_folder(edited(folder, tie_word_embeddings=False))
    save_model(make_tiny_llama(tied=False), tiny_tokenizer, tmp_path / "untied")
    check_base_model(tmp_path / "untied")
    with pytest.raises(StepError, match=r"tie_word_embeddings is true; limit a lm_head\.weight like the embedding"):
        check_model_folder(edited(tmp_path / "untied", tie_word_embeddings=True))


def test_a_head_that_repeats_the_embedding_is_tied_in_both_ways(tmp_path: Path, make_tiny_llama, tiny_tokenizer):
    model = make_tiny_llama(tied=False)
    with torch.no_grad():
        model.lm_head.weight.copy_(model.model.embed_tokens.weight)
    save_model(model, tiny_tokenizer, tmp_path / "model")
    check_model_folder(edited(tmp_path / "model", tie_word_embeddings=True))
    assert load_model(tmp_path / "model").lm_head.weight.shape == (320, 32)


def test_shards_are_those_that_the_index_names(folder: Path) -> None:
    load_model(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    check_base_model(folder)
    shards[-1].unlink()
    with pytest.raises(StepError, match=rf"index\.json: {shards[-1].name} is missing; limit the {len(shards)} files"):
        check_base_model(folder)
