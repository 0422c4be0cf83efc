"""The plan of one configuration: its model, work, memory, hours, costs and cautions, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.plan.cautions import cautions
from pipeline.plan.costs import Costs, StepCost, costs_of
from pipeline.plan.given_data import GivenData, given_data
from pipeline.plan.gpus import gpus_of
from pipeline.plan.model_shapes import ModelShape, base_model_shape, planned_vocabulary
from pipeline.plan.pretraining import Pretraining
from pipeline.plan.prices import PriceTable
from pipeline.plan.step_hours import StepPlan, plan_steps
from pipeline.plan.storage import Storage
from pipeline.plan.training_memory import GIB, STATE_BYTES

# Below so many FLOPs of pretraining a machine without a GPU is enough: some three hours at the speed that two cores
# reached on the sample.
SMALL_FLOPS = 1e15
# How a batch may be laid out: parallelism, and whether Liger is on.
WAYS = {"ddp": ("ddp", False), "fsdp": ("fsdp", False), "fsdp_liger": ("fsdp", True)}


@dataclass(frozen=True)
class Plan:
    """candidate: name of the vocabulary that is planned with.  base_pretraining: the second branch of an ablation."""

    config: PipelineConfig
    shape: ModelShape
    data: GivenData
    candidate: str
    pretraining: Pretraining
    base_pretraining: Pretraining | None
    steps: Sequence[StepPlan]
    costs: Costs

    @property
    def rows(self) -> int:
        return self.pretraining.rows

    @property
    def storage(self) -> Storage:
        return Storage(self.config, self.data, self.pretraining, self.base_pretraining)

    @property
    def runs_here(self) -> bool:
        """Whether a machine without a GPU is enough."""
        return self.pretraining.flops.together <= SMALL_FLOPS

    @property
    def state_gib_per_gpu(self) -> dict[str, float]:
        """Model state of one GPU: whole copies, and shared by the GPUs of one instance."""
        section = self.config.continued_pretraining
        whole = STATE_BYTES[section.precision] * self.shape.parameters(self.rows) / GIB
        return {"ddp": whole, "fsdp": whole / max(1, gpus_of(self.pretraining.instance_type))}

    @property
    def largest_batch(self) -> dict[str, int] | None:
        """Blocks of one pass on one GPU, by way; None where nothing is known of the GPU."""
        gpu = self.pretraining.gpu
        if gpu is None:
            return None
        return {
            name: self.pretraining.memory(way, has_liger=has_liger).largest_batch(gpu.memory_gib)
            for name, (way, has_liger) in WAYS.items()
        }

    @cached_property
    def cautions(self) -> list[str]:
        return cautions(
            self.config, self.data, self.pretraining, self.base_pretraining, self.steps, self.storage, self.costs
        )

    def as_json(self) -> dict[str, Any]:
        """Numbers unrounded; null where something is not known."""
        return {
            "preset": self.config.preset,
            "region": self.config.aws.region,
            "model": {
                "base": self.shape.name,
                "source": self.shape.source,
                "base_parameters": self.shape.parameters(self.shape.vocabulary_rows),
                "candidate": self.candidate,
                "vocabulary_rows": self.rows,
                "parameters": self.shape.parameters(self.rows),
            },
            "data": {**vars(self.data), "corpus_tokens": self.data.corpus_tokens},
            "state_gib_per_gpu": self.state_gib_per_gpu,
            "pretraining": self._pretraining_as_json(),
            "memory": self._memory_as_json(),
            "steps": [_step_as_json(cost) for cost in self.costs.steps],
            "cost": {
                "usd": self.costs.usd,
                "at_most_usd": self.costs.at_most_usd,
                "unpriced": self.costs.unpriced,
                "dates": self.costs.dates,
            },
            "storage": {
                "checkpoint_bytes": self.storage.checkpoint,
                "checkpoint_sets": self.storage.checkpoint_sets,
                "model_bytes": self.storage.model,
                "s3_bytes": self.storage.in_s3,
                "disk_bytes": self.storage.on_disk(),
            },
            "runs_here": self.runs_here,
            "warnings": self.cautions,
        }

    def _pretraining_as_json(self) -> dict[str, Any]:
        work, speed, seconds = self.pretraining, self.pretraining.throughput, self.pretraining.seconds
        return {
            "instance_type": work.instance_type,
            "gpus": work.gpus,
            "gpu": work.gpu.name if work.gpu else None,
            "steps": vars(work.steps),
            "tokens": vars(work.tokens),
            "flops": vars(work.flops),
            "utilisation": speed.utilisation if speed else None,
            "utilisation_is_calibrated": speed.is_calibrated if speed else None,
            "tokens_per_second_per_gpu": None if speed is None else {
                f"phase_{phase}": 1 / speed.seconds_per_token(phase) for phase in (1, 2)
            },
            "hours": None if seconds is None else {
                "phase_1": seconds.phase_1 / 3_600, "phase_2": seconds.phase_2 / 3_600
            },
        }  # fmt: skip

    def _memory_as_json(self) -> dict[str, Any]:
        """Of one GPU in GiB, as configured; a block of each way."""
        planned = self.pretraining.memory()
        blocks = self.config.continued_pretraining.device_batch_blocks
        return {
            "parallelism": self.pretraining.parallelism,
            "has_liger": self.pretraining.has_liger,
            "state_gib": planned.state / GIB,
            "gathered_gib": planned.gathered / GIB,
            "block_gib": {
                "with_liger": self.pretraining.memory(has_liger=True).block / GIB,
                "without_liger": self.pretraining.memory(has_liger=False).block / GIB,
            },
            "blocks": blocks,
            "together_gib": planned.total(blocks) / GIB,
            "gpu_gib": self.pretraining.gpu.memory_gib if self.pretraining.gpu else None,
            "largest_batch": self.largest_batch,
        }


def make_plan(config: PipelineConfig, prices: PriceTable, spot_share: float | None = None) -> Plan:
    """Raises ConfigError for a base model or data that are named and cannot be looked at."""
    shape, data = base_model_shape(config), given_data(config)
    rows, candidate = planned_vocabulary(config, shape)
    pretraining = Pretraining(config, shape, rows, data.corpus_tokens)
    base = Pretraining(config, shape, shape.vocabulary_rows, data.base_corpus_tokens) if config.ablation else None
    steps = plan_steps(config, data, pretraining, base)
    costs = costs_of(steps, prices, config.aws.region, spot_share)
    return Plan(config, shape, data, candidate, pretraining, base, steps, costs)


def _step_as_json(cost: StepCost) -> dict[str, Any]:
    step, price = cost.step, cost.price
    return {
        "step": step.name,
        "job": step.job,
        "instance_type": step.section.instance_type,
        "instances": step.instances,
        "hours": step.hours,
        "hours_unknown_because": step.reason or None,
        "limit_hours": step.limit_hours,
        "usd_per_hour": price.usd_per_hour if price else None,
        "price_date": price.date.isoformat() if price else None,
        "price_source": price.source if price else None,
        "spot": cost.is_spot,
        "spot_share": cost.spot_share if cost.is_spot else None,
        "usd": cost.usd,
        "at_most_usd": cost.at_most_usd,
    }
