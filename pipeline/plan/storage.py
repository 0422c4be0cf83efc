"""Bytes that a run leaves in S3, and those that each step's disk holds at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.config import PipelineConfig
from pipeline.instances import has_local_storage
from pipeline.plan.given_data import GivenData
from pipeline.plan.gpus import disk_bytes
from pipeline.plan.pretraining import Pretraining

# Weights and AdamW's two moments; gradients are not kept.
CHECKPOINT_BYTES = {"bfloat16": 6, "bfloat16_mixed": 12, "float32": 12}
EXPORTED_BYTES = {"bfloat16": 2, "bfloat16_mixed": 2, "float32": 4}
# The adapter and its moments, in float32.
ADAPTER_CHECKPOINT_BYTES = 12
# uint32 a token.
BLOCK_BYTES = 4
# Of the base model's files.
BASE_BYTES = 2
# Beside what is counted: indexes, logs, file systems.
MARGIN = 1.2


@dataclass(frozen=True)
class Storage:
    """Bytes. Of what depends on the corpus, its part is left out where its size is not known.

    base: the second branch of an ablation, which `in_s3` counts, too.
    """

    config: PipelineConfig
    data: GivenData
    pretraining: Pretraining
    base: Pretraining | None = None

    @property
    def checkpoint(self) -> float:
        """One set of pretraining."""
        parameters = self.pretraining.shape.parameters(self.pretraining.rows)
        return CHECKPOINT_BYTES[self.config.continued_pretraining.precision] * parameters

    @property
    def checkpoint_sets(self) -> int:
        """All that pretraining writes: S3 keeps them, as deletions do not reach it."""
        steps = self.pretraining.steps.together
        return math.ceil(steps / self.config.continued_pretraining.checkpoint_every_steps)

    @property
    def base_model(self) -> float:
        shape = self.pretraining.shape
        return BASE_BYTES * shape.parameters(shape.vocabulary_rows)

    @property
    def model(self) -> float:
        """One exported model with the new vocabulary."""
        parameters = self.pretraining.shape.parameters(self.pretraining.rows)
        return EXPORTED_BYTES[self.config.continued_pretraining.precision] * parameters

    @property
    def corpus(self) -> float:
        return self.data.corpus_bytes or 0.0

    @property
    def blocks(self) -> float:
        return BLOCK_BYTES * (self.data.corpus_tokens or 0.0)

    @property
    def adapter_checkpoint(self) -> float:
        section = self.config.fine_tune
        shape = self.pretraining.shape
        return ADAPTER_CHECKPOINT_BYTES * shape.adapter_parameters(section.lora_rank, section.target_modules)

    @property
    def in_s3(self) -> float:
        """What one run leaves: inputs, prepared corpus, blocks, adapted, pretrained and tuned model, checkpoints."""
        models = self.base_model + 3 * self.model
        own = 2 * self.corpus + self.blocks + models + self.checkpoint_sets * self.checkpoint
        if self.base is None:
            return own
        branch = Storage(self.config, self.data, self.base)
        blocks = BLOCK_BYTES * (self.base.corpus_tokens or 0.0)
        return own + blocks + branch.model + branch.checkpoint_sets * branch.checkpoint

    def on_disk(self) -> dict[str, float]:
        """The most that each step's disk holds at once, by the step's section; pretraining as after a restart, which
        brings back every checkpoint that was written."""
        kept = self.config.continued_pretraining.kept_checkpoints + 1
        sets = max(kept, self.checkpoint_sets)
        held = {
            # The corpus as it comes, spooled, and in shards.
            "prepare_corpus": 3 * self.corpus,
            "train_tokenizer": self.corpus + self.base_model,
            "tokenize_corpus": (self.corpus + self.blocks) / self.config.compute.tokenize_corpus.instance_count,
            "adapt_vocabulary": self.base_model + self.model + self.corpus,
            "continued_pretraining": 2 * self.model + self.blocks + sets * self.checkpoint,
            "fine_tune": 2 * self.model + 3 * self.adapter_checkpoint,
            "evaluate_model": self.base_model + 3 * self.model + self.corpus,
        }
        return {step: MARGIN * size for step, size in held.items()}

    def disk_of(self, step: str) -> float | None:
        """Bytes of a step's disk: the instance's own, or the volume. None for own disks of unknown size."""
        section = getattr(self.config.compute, step)
        if has_local_storage(section.instance_type):
            return disk_bytes(section.instance_type)
        return section.volume_gib * 2**30
