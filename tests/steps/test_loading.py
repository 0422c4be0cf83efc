"""Model folders that cannot be used are told in one line, with what to do."""

import json
from pathlib import Path

import pytest

from steps.contract import StepError
from steps.modeling.loading import check_model_folder, load_model, load_tokenizer, save_model


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
