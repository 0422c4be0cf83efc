"""A plan as lines for a person."""

from __future__ import annotations

from pipeline.plan.costs import StepCost
from pipeline.plan.training_memory import GIB
from pipeline.plan.whole_plan import Plan

WIDTH = 24


def plan_lines(plan: Plan, budget: float | None = None) -> list[str]:
    """The plan on a screen: model, work, memory, steps with hours and costs, storage, cautions.

    budget: US dollars that the plan keeps within.
    """
    lines = [*_model_lines(plan), *_memory_lines(plan), "", *_step_lines(plan)]
    if budget is not None:
        lines.append(f"budget:     {plan.costs.usd:,.2f} of {budget:,.2f} USD")
    lines += ["", *_storage_lines(plan)]
    if plan.runs_here:
        lines += ["", f"runs here:  {plan.pretraining.flops.together:.1e} FLOPs are little: langadapt run needs no "
                      "instance and costs nothing; the table is for SageMaker"]  # fmt: skip
    if plan.cautions:
        lines += ["", *(f"warning: {caution}" for caution in plan.cautions)]
    return lines


def price_line(plan: Plan) -> str:
    """The price of a run in one line."""
    costs, region = plan.costs, plan.config.aws.region
    if len(costs.unpriced) == len({cost.step.section.instance_type for cost in costs.steps}):
        return f"no price for {', '.join(costs.unpriced)} in {region}; give some to langadapt plan --prices"
    line = (
        f"about {_number(costs.usd)} USD, at most {costs.at_most_usd:,.2f} if every job runs into its limit; on demand "
        f"in {region}, prices of {' to '.join(costs.dates)}"
    )
    return f"{line}; without {', '.join(costs.unpriced)}, which have no price" if costs.unpriced else line


def _model_lines(plan: Plan) -> list[str]:
    work = plan.pretraining
    base = plan.shape.parameters(plan.shape.vocabulary_rows)
    gpus = f"{work.gpus} x {work.gpu.name}" if work.gpu else f"{work.gpus} processes"
    lines = [
        f"model:      {plan.shape.name} ({plan.shape.source}), {base:,} parameters",
        f"            with {plan.candidate}: {plan.rows:,} rows, {plan.shape.parameters(plan.rows):,} parameters",
        f"training:   {work.steps.phase_1:,.0f} + {work.steps.phase_2:,.0f} steps, "
        f"{work.tokens.together:,.0f} tokens, {work.flops.together:.2e} FLOPs on {gpus}",
    ]
    if plan.data.corpus_tokens is not None:
        readings = work.tokens.together / plan.data.corpus_tokens
        lines.append(f"corpus:     {plan.data.corpus_bytes:,.0f} bytes, about {plan.data.corpus_tokens:,.0f} tokens, "
                     f"read {readings:.1f} times")  # fmt: skip
    if (speed := work.throughput) is not None:
        origin = "calibrated on a 1B model" if speed.is_calibrated else "assumed: nothing is published of this GPU"
        first, second = (1 / speed.seconds_per_token(phase) for phase in (1, 2))
        lines.append(
            f"speed:      {first:,.0f} tokens a second and GPU in phase 1, {second:,.0f} in phase 2 "
            f"({speed.utilisation:.0%} of the peak, {origin})"
        )
    return lines


def _memory_lines(plan: Plan) -> list[str]:
    state, work = plan.state_gib_per_gpu, plan.pretraining
    planned, blocks = work.memory(), plan.config.continued_pretraining.device_batch_blocks
    with_liger, without = (work.memory(has_liger=on).block / GIB for on in (True, False))
    lines = [
        f"memory:     state {state['ddp']:.2f} GiB a GPU under DDP, {state['fsdp']:.2f} under FSDP within an instance; "
        f"a block {with_liger:.2f} with Liger, {without:.2f} without",
    ]
    if (largest := plan.largest_batch) is not None and work.gpu is not None:
        lines += [
            f"            planned {blocks} blocks ({work.parallelism}, Liger {'on' if work.has_liger else 'off'}): "
            f"{planned.total(blocks) / GIB:.1f} GiB of {work.gpu.memory_gib:g}",
            f"            largest batch: DDP {largest['ddp']}, FSDP {largest['fsdp']}, FSDP with Liger "
            f"{largest['fsdp_liger']} blocks",
        ]
    return lines


def _step_lines(plan: Plan) -> list[str]:
    head = f"{'step':<{WIDTH}}  {'instances':<21} {'hours':>7} {'USD':>10} {'limit, hours':>13} {'at most, USD':>13}"
    rows = [_step_line(cost) for cost in plan.costs.steps]
    left_out = "            hours are those of the work: starting instances, loading, saving and validation come on top"
    return [head, *rows, f"price:      {price_line(plan)}", left_out]


def _step_line(cost: StepCost) -> str:
    step = cost.step
    hours = "not known" if step.hours is None else _number(step.hours)
    paid, limit = ("no price" if usd is None else _number(usd) for usd in (cost.usd, cost.at_most_usd))
    instances = f"{step.instances} x {step.section.instance_type}{' spot' if cost.is_spot else ''}"
    return f"{step.name:<{WIDTH}}  {instances:<20} {hours:>8} {paid:>10} {step.limit_hours:>13.1f} {limit:>13}"


def _storage_lines(plan: Plan) -> list[str]:
    storage = plan.storage
    return [
        f"storage:    {storage.checkpoint_sets} checkpoints of {_gigabytes(storage.checkpoint)}, a model of "
        f"{_gigabytes(storage.model)}; S3 keeps about {_gigabytes(storage.in_s3)}"
    ]


def _number(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.01 or value == 0 else "< 0.01"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
