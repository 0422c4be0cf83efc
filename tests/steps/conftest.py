"""Sealed inputs of ContinuedPretraining, tiny and real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from steps.contract import StepConfig, StepFolders, seal
from steps.modeling.loading import save_model
from steps.text.bbpe import tokenizer_digest
from steps.text.packing import PackedBlocks, Vocabulary, write_part

WORDS = ["bakı", "şəhər", "dəniz", "külək", "qış", "yay", "internet", "paket", "tarif", "zəng", "salam", "kitab"]
BLOCK_TOKENS = 64


@dataclass(frozen=True)
class PretrainingInputs:
    """model: a Llama of two layers. blocks: train and validation in two documents' mixtures of length."""

    model: Path
    blocks: Path

    @property
    def train(self) -> PackedBlocks:
        return PackedBlocks(self.blocks / "train")

    @property
    def validation(self) -> PackedBlocks:
        return PackedBlocks(self.blocks / "validation")


def seal_folder(folder: Path) -> Path:
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)
    return folder


def documents(count: int, first: int) -> list[str]:
    """Texts of 1 to 9 words, each another."""
    return [
        " ".join(WORDS[(index * 7 + place * (index % 5 + 1)) % len(WORDS)] for place in range(1 + index % 9))
        for index in range(first, first + count)
    ]


@pytest.fixture(scope="session")
def make_pretraining_inputs(make_tiny_tokenizer, make_tiny_llama, tmp_path_factory) -> Callable[..., PretrainingInputs]:
    """Builds a model folder and the blocks made by its tokenizer, both sealed."""

    def make(**model_settings) -> PretrainingInputs:
        root = tmp_path_factory.mktemp("pretraining")
        tokenizer = make_tiny_tokenizer(vocab_size=320)
        save_model(make_tiny_llama(320, initializer_range=0.05, **model_settings), tokenizer, root / "model")
        vocabulary = Vocabulary(
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            size=len(tokenizer),
            tokenizer_sha256=tokenizer_digest(root / "model"),
        )
        for split, count, first in (("train", 120, 0), ("validation", 16, 1_000)):
            texts = documents(count, first)
            encoded = [(tokenizer(text, add_special_tokens=False)["input_ids"], len(text.encode())) for text in texts]
            write_part(root / "blocks" / split, "part-00000", encoded, BLOCK_TOKENS, vocabulary)
        return PretrainingInputs(seal_folder(root / "model"), seal_folder(root / "blocks"))

    return make


@pytest.fixture(scope="session")
def pretraining_inputs(make_pretraining_inputs) -> PretrainingInputs:
    """A tied Llama of two layers and its blocks."""
    return make_pretraining_inputs()
