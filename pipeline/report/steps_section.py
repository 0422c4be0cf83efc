"""The section on the steps: the graph, a row each, memory, warnings."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.execution_record import CACHED, StepRecord
from pipeline.report.blocks import (
    Block,
    Cell,
    Gallery,
    Items,
    Pair,
    Paragraph,
    Picture,
    Row,
    Section,
    Subheading,
    Table,
    Tone,
)
from pipeline.report.drawing import Bar, bars
from pipeline.report.facts import Facts
from pipeline.report.graph_drawing import graph_picture, state_words
from pipeline.report.reading import drawn_steps
from pipeline.report.wording import memory_text, time_text

# Pixels of a graph that leaves room for a table beside it.
WIDEST_BESIDE = 600
TONES: dict[str, Tone] = {"good": "good", "cached": "good", "bad": "bad", "warn": "warn"}


def steps_section(facts: Facts) -> Section:
    return Section("Steps", list(_blocks(facts)), "steps")


def _blocks(facts: Facts) -> Iterator[Block]:
    table = steps_table(facts)
    if graph := drawn_steps(facts):
        drawing, width = graph_picture(graph, facts.result.steps)
        shown = Picture("The graph", "state and time of each step", drawing, " → ".join(graph), width > WIDEST_BESIDE)
        if shown.is_wide:
            yield shown
            yield table
        else:
            yield Pair(shown, [table])
    else:
        yield table
    failed = [f"{step.name}: {step.error}" for step in facts.result.steps.values() if step.error]
    if failed:
        yield Subheading("Errors")
        yield Items(failed, "bad")
    yield Subheading("Warnings")
    warned = [f"{name}: {warning}" for name, step in facts.result.steps.items() for warning in step.warnings]
    yield Items(warned, "warn") if warned else Paragraph("No step warned about anything.")
    if facts.notes:
        yield Subheading("Not to be looked at")
        yield Items(facts.notes)
    if pictures := [picture for picture in (time_picture(facts), memory_picture(facts)) if picture]:
        yield Gallery(pictures)


def steps_table(facts: Facts) -> Table:
    """A row a step: how it ended, how long it took, why it ran."""
    rows: list[Row] = []
    for name, step in facts.result.steps.items():
        _, kind, words = state_words(step)
        tone = TONES.get(kind)
        state = Cell(words, tone) if tone else Cell(words)
        rows.append([name, state, time_text(step.seconds) if step.seconds else "", Cell(_why(facts, step))])
    return Table(("step", "state", "time", "why it ran, or where from"), rows, right=frozenset({2}))


def _why(facts: Facts, step: StepRecord) -> str:
    if step.state == CACHED:
        seconds = max((manifest.seconds for manifest in facts.manifests.get(step.name, [])), default=0.0)
        return f"from the cache; making it took {time_text(seconds)}" if seconds else "from the cache"
    attempts = f"{step.attempts} attempts" if step.attempts > 1 and "attempt" not in step.reason else ""
    outcome = step.metric if step.type in ("Condition", "RegisterModel") else ""
    return "; ".join(filter(None, [step.reason, attempts, outcome]))


def time_picture(facts: Facts) -> Picture | None:
    """Seconds of each step that ran in this execution."""
    shown = {name: step.seconds for name, step in facts.result.steps.items() if step.seconds >= 0.1}
    if not shown:
        return None
    rows = [Bar(name, seconds, time_text(seconds)) for name, seconds in shown.items()]
    tells = "; ".join(f"{name} {time_text(seconds)}" for name, seconds in shown.items())
    return Picture("Time", "of each step in this execution", bars("Time", rows, tells), tells)


def memory_picture(facts: Facts) -> Picture | None:
    """Peak resident memory of each step's process, from its seal."""
    peaks = {step: [seal.peak_memory_bytes for seal in seals] for step, seals in facts.manifests.items()}
    shown = {step: max(peak) for step, peak in peaks.items() if peak}
    if not shown:
        return None
    rows = [Bar(step, float(peak), memory_text(peak)) for step, peak in shown.items()]
    tells = "; ".join(f"{step} {memory_text(peak)}" for step, peak in shown.items())
    return Picture("Memory", "peak resident memory", bars("Memory", rows, tells), tells)
