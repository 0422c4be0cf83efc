"""The section on training: loss, bits per byte, learning rate, gradient norm, speed and memory over steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pipeline.report.blocks import Block, Cell, Gallery, Pair, Paragraph, Picture, Row, Section, Subheading, Table
from pipeline.report.drawing import Band, LineChart, Series
from pipeline.report.facts import Facts
from pipeline.report.scales import Point
from pipeline.report.wording import GIB, counted, memory_text, share_text, time_text
from steps.schemas.training import FineTuningSummary, PretrainingSummary, TelemetryRecord

PHASE_NAMES = {1: "phase 1: embeddings", 2: "phase 2: all weights"}
Value = Callable[[TelemetryRecord], float | None]
# Title, unit, what of a record, how the last value is written, whether the axis begins at zero.
CURVES: tuple[tuple[str, str, Value, str, bool], ...] = (
    ("Loss", "nats a token", lambda record: record.loss, ".3f", False),
    ("Validation bits per byte", "lower is better", lambda record: record.validation_bits_per_byte, ".3f", False),
    ("Learning rate", "of the optimizer", lambda record: record.learning_rate, ".2e", True),
    ("Gradient norm", "before clipping", lambda record: record.gradient_norm, ".2f", True),
    ("Throughput", "tokens a second a device", lambda record: record.tokens_per_second_per_device, ",.0f", True),
    ("Memory while training", "peak, GiB", lambda record: record.peak_memory_bytes / GIB, ".2f", True),
    ("Model FLOP utilisation", "of the device's peak", lambda record: record.model_flop_utilisation, ".1%", True),
    ("Source language, bits per byte", "lower is better",
     lambda record: record.source_validation_bits_per_byte, ".3f", False),
)  # fmt: skip
VALIDATION = "Validation bits per byte"
Lines = Mapping[str, tuple[Sequence[TelemetryRecord], PretrainingSummary | None]]


def training_section(facts: Facts) -> Section:
    return Section("Training", list(_blocks(facts)), "training")


def _blocks(facts: Facts) -> Iterator[Block]:
    steps = list(dict.fromkeys([*facts.telemetry, *facts.trainings]))
    if not steps:
        yield Paragraph("No telemetry: no training has begun.")
    for step in steps:
        yield Subheading(step)
        if step in facts.unfinished:
            yield Paragraph("This training did not end; what it told until then.", "warn")
        if summary := facts.trainings.get(step):
            yield Paragraph(summary_text(summary))
            yield phases_table(summary)
        lines = {"": (facts.telemetry.get(step, []), facts.trainings.get(step))}
        if pictures := training_pictures(lines):
            yield Gallery(pictures)
    if tuned := facts.fine_tuning:
        yield Subheading("Fine-tuning")
        beside: list[Block] = [Paragraph(fine_tuning_text(tuned))]
        if tuned.conversations_dropped:
            rows: list[Row] = [[why, f"{number:,}", Cell(tuned.first_dropped.get(why, ""), is_code=True)]
                               for why, number in tuned.conversations_dropped.items()]  # fmt: skip
            beside.append(Table(("conversations dropped, why", "number", "the first"), rows, right=frozenset({1})))
        yield Pair(fine_tuning_picture({"": tuned}), beside)


def summary_text(summary: PretrainingSummary) -> str:
    end = f" Phase 1 ended: {summary.phase_1_end}." if summary.phase_1_end else ""
    resumed = f" Gone on from step {summary.resumed_from_step:,}." if summary.resumed_from_step else ""
    kernels = "Liger's kernels" if summary.liger else "no Liger"
    return (
        f"{summary.parameters:,} parameters on {counted(summary.processes, 'process', 'processes')} ({summary.device}, "
        f"{summary.precision}, parallelism {summary.parallelism}, {kernels}); {summary.flops:.3g} FLOPs, "
        f"{summary.tokens_per_second_per_device:,.0f} tokens a second a device, peak memory "
        f"{memory_text(summary.peak_memory_bytes)}. The corpus was read {summary.corpus_passes:.2f} times."
        f"{end}{resumed}"
    )


def phases_table(summary: PretrainingSummary) -> Table:
    rows = [
        [name.replace("_", " "), f"{phase.steps:,}", f"{phase.tokens:,}", f"{phase.learning_rate:g}",
         *("" if loss is None else f"{loss:.4f}" for loss in (phase.first_loss, phase.last_loss)),
         time_text(phase.seconds)]
        for name, phase in summary.phases.items()
    ]  # fmt: skip
    headings = ("phase", "steps", "tokens", "peak learning rate", "first loss", "last loss", "time")
    return Table(headings, rows, right=frozenset(range(1, len(headings))))


def training_pictures(lines: Lines) -> list[Picture]:
    """A picture a quantity that was measured, a line a training; the phases are those of the first one."""
    pictures = []
    bands = next((bands for records, summary in lines.values() if (bands := phase_bands(records, summary))), [])
    for title, unit, value, y_format, from_zero in CURVES:
        drawn = []
        for number, (name, (records, summary)) in enumerate(lines.items(), 1):
            points = _points(title, records, summary, value)
            drawn.append(Series(name, points, number, is_dotted=title == VALIDATION))
        if not any(series.points for series in drawn):
            continue
        tells = "; ".join(_told(series, y_format) for series in drawn if series.points)
        chart = LineChart(title, unit, drawn, tells, bands=bands, y_format=y_format, from_zero=from_zero)
        legend = [(series.number, series.name) for series in drawn if series.name]
        pictures.append(Picture(title, unit, chart.svg(), tells, legend=legend))
    return pictures


def _points(
    title: str, records: Sequence[TelemetryRecord], summary: PretrainingSummary | None, value: Value
) -> list[Point]:
    """Validation is measured now and then, and told as measured last: its own history says when."""
    if title == VALIDATION and summary is not None:
        return [(float(step), bits) for step, bits in summary.validation_history]
    return [(float(record.step), told) for record in records if (told := value(record)) is not None]


def phase_bands(records: Sequence[TelemetryRecord], summary: PretrainingSummary | None) -> list[Band]:
    """Each phase from its first step to its last; of a training that has not ended, as far as it told."""
    if summary is not None:
        bands, start = [], 0
        for number, phase in enumerate(summary.phases.values(), 1):
            if phase.steps:
                bands.append(Band(float(start), float(start + phase.steps), PHASE_NAMES.get(number, f"phase {number}")))
            start += phase.steps
        return bands
    ends: dict[int, int] = {}
    for record in records:
        ends[record.phase] = record.step
    starts = [0, *ends.values()]
    return [
        Band(float(start), float(end), PHASE_NAMES.get(number, f"phase {number}"))
        for (number, end), start in zip(ends.items(), starts, strict=False)
    ]


def _told(series: Series, y_format: str) -> str:
    values = [value for _, value in series.points]
    first, last = values[0], values[-1]
    name = f"{series.name}: " if series.name else ""
    return (
        f"{name}{first:{y_format}} at step {series.points[0][0]:,.0f}, {last:{y_format}} at step "
        f"{series.points[-1][0]:,.0f}; between {min(values):{y_format}} and {max(values):{y_format}}"
    )


def fine_tuning_text(tuned: FineTuningSummary) -> str:
    rates = [f"{share_text(rate)} of {kind}" for kind, rate in
             (("prompts trained on", tuned.stop_rate_training), ("held-out prompts", tuned.stop_rate_heldout))
             if rate is not None]  # fmt: skip
    ended = f" Greedy replies that end by themselves: {', '.join(rates)}." if rates else ""
    early = ", ended early" if tuned.ended_early else ""
    return (
        f"{counted(tuned.conversations, 'conversation')} ({tuned.conversation_form}) and "
        f"{tuned.conversations_heldout:,} held out; {counted(tuned.steps, 'step')}{early}, the adapter of step "
        f"{tuned.adapter_step:,} taken; LoRA scaling {tuned.lora_scaling:g}, {tuned.trained_parameters:,} parameters "
        f"trained. Loss {tuned.first_loss:.4f} → {tuned.last_loss:.4f}; held out {tuned.validation_loss_before:.4f} → "
        f"{tuned.validation_loss:.4f} nats a trained token.{ended}"
    )


def fine_tuning_picture(runs: Mapping[str, FineTuningSummary]) -> Picture:
    """The loss of held-out conversations over steps, before fine-tuning at step 0."""
    lines = []
    for number, (name, tuned) in enumerate(runs.items(), 1):
        later = [(float(step), loss) for step, loss in tuned.validation_history]
        lines.append(Series(name, [(0.0, tuned.validation_loss_before), *later], number, is_dotted=True))
    title, unit = "Loss of held-out conversations", "nats a trained token"
    tells = "; ".join(_told(series, ".3f") for series in lines)
    legend = [(series.number, series.name) for series in lines if series.name]
    return Picture(title, unit, LineChart(title, unit, lines, tells, y_format=".3f").svg(), tells, legend=legend)
