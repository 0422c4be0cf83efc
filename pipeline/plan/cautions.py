"""What of a plan is likely to go wrong in an account, each as a sentence with what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from containers.instance_types import INSTANCE_TYPES
from pipeline.config import PipelineConfig
from pipeline.plan.costs import Costs
from pipeline.plan.given_data import GivenData
from pipeline.plan.gpus import gpu_of
from pipeline.plan.model_shapes import SAMPLE
from pipeline.plan.pretraining import Pretraining
from pipeline.plan.step_hours import StepPlan
from pipeline.plan.storage import Storage
from pipeline.plan.training_memory import (
    ELEMENT_BYTES,
    GIB,
    USABLE_SHARE,
    fine_tuning_bytes,
    layer_bytes,
)
from pipeline.service_shapes import allowed_values
from steps.contract import size_text

# Reading a text up to four times was found about as good as reading new text (Muennighoff et al., 2023, "Scaling
# Data-Constrained Language Models").
MOST_READINGS = 4
INSTANCE_SHAPES = {"Training": "TrainingInstanceType", "Processing": "ProcessingInstanceType"}
# Bytes a weight of the base under each quantisation, as docs/fine-tuning.md works them out.
NF4_BYTES = 0.516


def cautions(
    config: PipelineConfig,
    data: GivenData,
    pretraining: Pretraining,
    base: Pretraining | None,
    steps: Sequence[StepPlan],
    storage: Storage,
    costs: Costs,
) -> list[str]:
    """All of them, the dearest mistakes first. base: the second branch of an ablation."""
    return [
        *_instances(steps),
        *_pretraining_batch("ContinuedPretraining", pretraining),
        *([] if base is None else _pretraining_batch("ContinuedPretrainingBase", base)),
        *_other_memory(config, pretraining),
        *_limits(steps),
        *_disks(config, storage),
        *_intervals(config, data, pretraining),
        *_model(config, pretraining),
        *_quotas(steps),
        *_money(costs),
    ]


def _instances(steps: Sequence[StepPlan]) -> Iterator[str]:
    for step in steps:
        kind = step.section.instance_type
        if kind not in allowed_values(INSTANCE_SHAPES[step.job]):
            yield f"{step.name}: {step.job} jobs have no {kind}. Take another type."


def _pretraining_batch(step: str, pretraining: Pretraining) -> Iterator[str]:
    section, block = pretraining.config.continued_pretraining, pretraining.config.tokenize_corpus.block_tokens
    if pretraining.gpu is not None:
        memory = pretraining.memory()
        fits = memory.largest_batch(pretraining.gpu.memory_gib)
        if section.device_batch_blocks > fits:
            needed = memory.total(section.device_batch_blocks) / GIB
            yield (
                f"{step}: device_batch_blocks {section.device_batch_blocks} take {needed:.1f} GiB of the "
                f"{USABLE_SHARE * pretraining.gpu.memory_gib:.1f} that can be used of an {pretraining.gpu.name}. "
                + ("Lower it to a number that divides the blocks of a GPU, "
                   f"{fits} at most." if fits else "Take activation_checkpointing, more GPUs or larger ones.")
            )  # fmt: skip
    blocks = section.global_batch_tokens // block
    if blocks % pretraining.gpus:
        yield (
            f"{step}: {blocks} blocks a step do not divide over {pretraining.gpus} GPUs. Change "
            "global_batch_tokens or the number of instances."
        )


def _other_memory(config: PipelineConfig, pretraining: Pretraining) -> Iterator[str]:
    shape, rows = pretraining.shape, pretraining.rows
    tuned, gpu = config.fine_tune, gpu_of(config.compute.fine_tune.instance_type)
    if gpu is not None:
        element = ELEMENT_BYTES[tuned.precision]
        is_nf4 = tuned.base_quantisation == "nf4"
        weights, adapter = (NF4_BYTES, 8) if is_nf4 else (element, 16)
        held = fine_tuning_bytes(shape, rows, rank=tuned.lora_rank, modules=tuned.target_modules,
                                 weight_bytes=weights, adapter_bytes=adapter)  # fmt: skip
        layer = layer_bytes(shape, element, has_liger=False)
        layers = 1 if tuned.activation_checkpointing != "off" else shape.layers
        kept = element * shape.layers * shape.width + layers * layer
        held += tuned.batch_conversations * tuned.max_tokens * kept
        yield from _too_large(
            "FineTune", held, gpu.memory_gib, gpu.name, "Lower fine_tune.batch_conversations, or take a larger GPU."
        )
    scored, gpu = config.evaluate_model, gpu_of(config.compute.evaluate_model.instance_type)
    if gpu is not None:
        largest = shape.parameters(max(rows, shape.vocabulary_rows))
        held = 4 * largest + 4 * scored.batch_tokens * (3 * shape.feed_forward_width + 6 * shape.width)
        yield from _too_large(
            "Evaluate", held, gpu.memory_gib, gpu.name, "Lower evaluate_model.batch_tokens, or take a larger GPU."
        )


def _too_large(step: str, held: float, memory_gib: float, gpu: str, remedy: str) -> Iterator[str]:
    usable = USABLE_SHARE * memory_gib
    if held / GIB > usable:
        yield f"{step}: takes {held / GIB:.1f} GiB of the {usable:.1f} that can be used of an {gpu}. {remedy}"


def _limits(steps: Sequence[StepPlan]) -> Iterator[str]:
    for step in steps:
        if step.hours is not None and step.hours > step.limit_hours:
            yield (
                f"{step.name}: planned {step.hours:.1f} hours, and max_runtime_seconds stops it after "
                f"{step.limit_hours:.1f}. Raise it."
            )


def _disks(config: PipelineConfig, storage: Storage) -> Iterator[str]:
    for step, needed in storage.on_disk().items():
        disk = storage.disk_of(step)
        if disk is not None and needed > disk:
            yield (
                f"{step}: its disk of {size_text(int(disk))} is too small for about {size_text(int(needed))}. Raise "
                f"compute.{step}.volume_gib, or take an instance with larger disks."
            )


def _intervals(config: PipelineConfig, data: GivenData, pretraining: Pretraining) -> Iterator[str]:
    section, steps = config.continued_pretraining, pretraining.steps
    for name in ("checkpoint_every_steps", "validate_every_steps", "log_every_steps"):
        every = getattr(section, name)
        if every > steps.together > 0:
            yield (
                f"ContinuedPretraining: {name} {every} lies beyond its {steps.together:,.0f} steps: it happens at the "
                "end alone. Lower it."
            )
    for phase, length in ((1, steps.phase_1), (2, steps.phase_2)):
        warmup = getattr(section, f"phase_{phase}_warmup_steps")
        if warmup > length > 0:
            yield f"ContinuedPretraining: phase_{phase}_warmup_steps {warmup} of {length:,.0f} steps. Lower it."
    if section.passes and data.corpus_tokens is None:
        yield "ContinuedPretraining: passes without plan.corpus_bytes: planned with the steps as they are given."
    if data.corpus_tokens is None or pretraining.shape.name == SAMPLE:
        # The sample is a demonstration: its preset says how often it is read, and why.
        return
    readings = pretraining.tokens.together / data.corpus_tokens
    if readings > MOST_READINGS:
        yield (
            f"ContinuedPretraining: {pretraining.tokens.together:,.0f} tokens read the corpus {readings:.1f} times; "
            f"beyond {MOST_READINGS} little is learned. Lower the steps, or set continued_pretraining.passes."
        )


def _model(config: PipelineConfig, pretraining: Pretraining) -> Iterator[str]:
    shape, rows = pretraining.shape, pretraining.rows
    share = shape.vocabulary_parameters(rows) / shape.parameters(rows)
    limit = config.train_tokenizer.max_vocabulary_parameters_share
    if share > limit:
        yield (
            f"TrainTokenizer: a vocabulary of {rows:,} is {share:.0%} of the model, more than "
            f"max_vocabulary_parameters_share {limit:.0%}: it will not be chosen. Plan with smaller vocabulary_sizes."
        )
    if not shape.is_like_llama:
        yield f"{shape.name}: no model type that is built like Llama's; its parameters are worked out as if it were."


def _quotas(steps: Sequence[StepPlan]) -> Iterator[str]:
    """A new account may use no accelerated instance before it asks."""
    needed: dict[tuple[str, str], int] = {}
    for step in steps:
        if step.section.instance_type in INSTANCE_TYPES:
            spot = getattr(step.section, "managed_spot", False)
            usage = f"{'spot ' if spot else ''}{step.job.lower()} job"
            key = (step.section.instance_type, usage)
            needed[key] = max(needed.get(key, 0), step.instances)
    for (kind, usage), instances in needed.items():
        yield (
            f"the quota `{kind} for {usage} usage` is likely 0 in a new account. Ask for {instances} (Service Quotas, "
            "Amazon SageMaker); --check-account looks."
        )


def _money(costs: Costs) -> Iterator[str]:
    if costs.unpriced:
        yield f"no price for {', '.join(costs.unpriced)}: not in the sums. Give one with --prices, or --check-account."
    for step in costs.without_hours:
        yield f"{step.name}: hours not known ({step.reason}): counted until its limit of {step.limit_hours:.1f} hours."
    for cost in costs.steps:
        if cost.is_spot and cost.spot_share is None:
            yield (
                f"{cost.step.name}: spot capacity costs less by a share that is not known here: counted on demand. "
                "State it with --spot-share."
            )
