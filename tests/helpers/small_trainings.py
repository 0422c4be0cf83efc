"""Trainings of the sample's base model in this process: texts in, bits per byte out."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.modeling.batches import BatchPlan
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.focus import similar_tokens
from steps.modeling.loading import load_model, load_tokenizer
from steps.modeling.parallel import Processes
from steps.modeling.training import train
from steps.modeling.training_progress import Progress
from steps.modeling.vocabulary import BaseRows, replace_vocabulary
from steps.modeling.vocabulary_plan import plan_vocabulary
from steps.text.bbpe import encode_as_text, load_fast_tokenizer, tokenizer_digest, train_bbpe
from steps.text.packing import PackedBlocks, Vocabulary, write_part
from steps.train_tokenizer import write_tokenizer_folder

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))


@dataclass(frozen=True)
class Material:
    """A tokenizer trained on `train`, and the texts as blocks made by it."""

    folder: Path
    base_model: Path
    train: Sequence[str]
    block_tokens: int

    @classmethod
    def make(
        cls, folder: Path, base_model: Path, train: Sequence[str], vocabulary_size: int, block_tokens: int
    ) -> Material:
        """Trains the tokenizer and writes the blocks of `train`."""
        write_tokenizer_folder(train_bbpe(train, vocabulary_size, min_frequency=2), folder / "tokenizer", block_tokens)
        material = cls(folder, base_model, train, block_tokens)
        material.pack("train", train)
        return material

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return load_tokenizer(self.folder / "tokenizer")

    def pack(self, name: str, texts: Sequence[str]) -> PackedBlocks:
        """The texts as blocks of that name."""
        tokenizer = self.tokenizer
        vocabulary = Vocabulary(
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id, size=len(tokenizer),
            tokenizer_sha256=tokenizer_digest(self.folder / "tokenizer"),
        )  # fmt: skip
        encodings = encode_as_text(load_fast_tokenizer(self.folder / "tokenizer"), list(texts))
        encoded = [(found.ids, len(text.encode())) for found, text in zip(encodings, texts, strict=True)]
        write_part(self.folder / name, "part-00000", encoded, self.block_tokens, vocabulary)
        return self.blocks(name)

    def blocks(self, name: str) -> PackedBlocks:
        return PackedBlocks(self.folder / name)

    def model(self, initialiser: str, seed: int = 0, focus_bytes: int = 8 * 2**20) -> PreTrainedModel:
        """The base model with this vocabulary."""
        tokenizer, base_tokenizer, model = self.tokenizer, load_tokenizer(self.base_model), load_model(self.base_model)
        base = BaseRows.of(model)
        plan = plan_vocabulary(base_tokenizer, tokenizer, base_rows=len(base.embedding))
        similar = None
        if initialiser == "focus":
            similar = similar_tokens(plan, tokenizer, list(self.train), max_bytes=focus_bytes, seed=seed)
        replace_vocabulary(
            model, base, plan, tokenizer.pad_token_id, initialiser=initialiser, seed=seed, similar=similar
        )
        return model


@dataclass(frozen=True)
class Trained:
    """step_seconds: of this process' processors, by step."""

    progress: Progress
    step_seconds: list[float]

    def bits_per_byte(self, step: int) -> float:
        """What `validate` gave after that many steps."""
        return dict(self.progress.validation_history)[step]


def train_here(
    model: PreTrainedModel,
    plan: BatchPlan,
    config: ContinuedPretrainingConfig,
    validate: Callable[[PreTrainedModel], float],
) -> Trained:
    """Trains in place, by the real loop, without checkpoints."""
    marks: list[float] = []
    tell: Any = lambda done, total, unit: marks.append(time.process_time())  # noqa: E731
    progress, _ = train(model, plan, config, ALONE, CheckpointStore(None, "", 1, ALONE), validate=validate, tell=tell)
    return Trained(progress, [later - earlier for earlier, later in itertools.pairwise(marks)])
