"""The work of continued pretraining: steps, tokens and FLOPs of its phases, and the seconds that they take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.config import PipelineConfig
from pipeline.plan.gpus import Gpu, gpu_of, gpus_of
from pipeline.plan.model_shapes import ModelShape
from pipeline.plan.throughput import Throughput, flops_per_token
from pipeline.plan.training_memory import TrainingMemory


@dataclass(frozen=True)
class Phases:
    """One number of each phase."""

    phase_1: float
    phase_2: float

    @property
    def together(self) -> float:
        return self.phase_1 + self.phase_2


@dataclass(frozen=True)
class Pretraining:
    """Of one model with a vocabulary of so many rows. corpus_tokens: with its tokenizer; None where it is not known."""

    config: PipelineConfig
    shape: ModelShape
    rows: int
    corpus_tokens: float | None

    @property
    def instance_type(self) -> str:
        return self.config.compute.continued_pretraining.instance_type

    @property
    def gpus(self) -> int:
        """Of all instances; 1 where an instance has none: one process then."""
        return max(1, gpus_of(self.instance_type)) * self.config.compute.continued_pretraining.instance_count

    @property
    def gpu(self) -> Gpu | None:
        return gpu_of(self.instance_type)

    @property
    def has_liger(self) -> bool:
        """auto is on where CUDA is, and the planned instances have it."""
        return self.config.continued_pretraining.liger != "off"

    @property
    def parallelism(self) -> str:
        section = self.config.continued_pretraining
        return ("fsdp" if self.gpus > 1 else "none") if section.parallelism == "auto" else section.parallelism

    @property
    def steps(self) -> Phases:
        """Optimizer steps. With passes they are stretched to read the corpus so many times, where its size is known."""
        section = self.config.continued_pretraining
        given = Phases(section.phase_1_steps, section.phase_2_steps)
        if not section.passes or self.corpus_tokens is None or not given.together:
            return given
        wanted = math.ceil(section.passes * self.corpus_tokens / section.global_batch_tokens)
        first = round(wanted * given.phase_1 / given.together)
        return Phases(first, wanted - first)

    @property
    def tokens(self) -> Phases:
        batch = self.config.continued_pretraining.global_batch_tokens
        return Phases(self.steps.phase_1 * batch, self.steps.phase_2 * batch)

    @property
    def flops(self) -> Phases:
        first, second = (flops_per_token(self.shape, self.rows, phase) for phase in (1, 2))
        return Phases(self.tokens.phase_1 * first, self.tokens.phase_2 * second)

    @property
    def throughput(self) -> Throughput | None:
        """None where nothing is known of the instance's GPU."""
        section = self.config.continued_pretraining
        if self.gpu is None:
            return None
        return Throughput(self.shape, self.rows, self.gpu, section.precision, self.has_liger,
                          section.activation_checkpointing)  # fmt: skip

    @property
    def seconds(self) -> Phases | None:
        """Of the optimizer steps: validation, checkpoints and the job's start are not in it."""
        speed = self.throughput
        if speed is None:
            return None
        first, second = (speed.seconds_per_token(phase) / self.gpus for phase in (1, 2))
        return Phases(self.tokens.phase_1 * first, self.tokens.phase_2 * second)

    def memory(self, parallelism: str | None = None, *, has_liger: bool | None = None) -> TrainingMemory:
        """What one GPU holds, as configured or otherwise."""
        section = self.config.continued_pretraining
        return TrainingMemory(
            shape=self.shape,
            rows=self.rows,
            precision=section.precision,
            parallelism=parallelism or self.parallelism,
            gpus=self.gpus,
            block_tokens=self.config.tokenize_corpus.block_tokens,
            has_liger=self.has_liger if has_liger is None else has_liger,
            is_checkpointed=section.activation_checkpointing,
        )
