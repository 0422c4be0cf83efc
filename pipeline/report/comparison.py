"""Two runs side by side: what differed in their configuration, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.report.blocks import (
    Block,
    Cell,
    Cut,
    Figure,
    Gallery,
    Paragraph,
    Report,
    Row,
    Sample,
    Section,
    Subheading,
    Table,
    Verdict,
)
from pipeline.report.differences import configuration_differences, figure_rows, gate_rows, step_rows
from pipeline.report.evaluation_section import MODELS
from pipeline.report.facts import Facts
from pipeline.report.headline import NOT_MEASURED, verdict_of
from pipeline.report.training_section import fine_tuning_picture, training_pictures
from pipeline.report.wording import counted, time_text
from steps.schemas.fertility import MEASURE_NAMES

NAMES = ("A", "B")


def comparison_of(first: Facts, second: Facts) -> Report:
    """The report of two runs, A and B."""
    verdicts = [_named(name, verdict_of(facts)) for name, facts in zip(NAMES, (first, second), strict=True)]
    sections = (
        Section("What differed", list(_configuration(first, second)), "differences"),
        Section("Figures", list(_figures(first, second)), "figures"),
        Section("Steps", [_steps(first, second)], "steps"),
        Section("Tokenizers", list(_tokenizers(first, second)), "tokenizer"),
        Section("Training", list(_training(first, second)), "training"),
        Section("Samples", list(_samples(first, second)), "samples"),
    )
    title = "; ".join(f"{name} is execution {facts.result.execution_id} of {facts.result.pipeline}"
                      for name, facts in zip(NAMES, (first, second), strict=True))  # fmt: skip
    place = f"A {first.place}, B {second.place}"
    return Report(title, place, verdicts, list(_headline(first, second)), sections)


def _named(name: str, verdict: Verdict) -> Verdict:
    return Verdict(verdict.tone, f"{name}: {verdict.text}", verdict.reasons)


def _headline(first: Facts, second: Facts) -> Iterator[Figure]:
    both = (first, second)
    bits = [facts.evaluation.bits_per_byte.candidate if facts.evaluation else None for facts in both]
    yield Figure("Bits per byte, candidate", *_change(bits, ".4f"), "evaluation.json bits_per_byte.candidate")
    words = [facts.fertility.tokens_per_word.chosen if facts.fertility else None for facts in both]
    yield Figure("Tokens a word", *_change(words, ".2f"), "fertility.json tokens_per_word.chosen")
    seconds = [facts.result.seconds for facts in both]
    yield Figure("Time", " → ".join(map(time_text, seconds)), "A → B, of these executions", "execution.json seconds")
    yield Figure("Cost", " → ".join(facts.cost for facts in both), "A → B")


def _change(values: list[float | None], form: str) -> tuple[str, str]:
    """`2.6630 → 2.5410` and `A → B, -0.1220`."""
    shown = " → ".join(NOT_MEASURED if value is None else f"{value:{form}}" for value in values)
    if values[0] is None or values[1] is None:
        return shown, "A → B"
    return shown, f"A → B, {values[1] - values[0]:+{form}}"


def _configuration(first: Facts, second: Facts) -> Iterator[Block]:
    found = configuration_differences(first, second)
    same = [subject for subject, members in found.items() if not members]
    for subject, members in found.items():
        if not members:
            continue
        yield Subheading(subject.capitalize())
        rows: list[Row] = [[name, *(Cell(value, is_code=True) for value in pair)] for name, pair in members.items()]
        yield Table(("what", *NAMES), rows)
    if same:
        yield Paragraph(f"The same in both: {', '.join(same)}.")
    missing = [f"{name}: {text}" for name, facts in zip(NAMES, (first, second), strict=True) for text in facts.missing]
    for text in missing:
        yield Paragraph(text, "warn")


def _figures(first: Facts, second: Facts) -> Iterator[Block]:
    rows = figure_rows(first, second)
    right = frozenset({1, 2, 3})
    yield (
        Table(("measured", *NAMES, "B - A"), rows, right=right) if rows else Paragraph("Neither run measured anything.")
    )
    if gates := gate_rows(first, second):
        yield Subheading("Gate")
        yield Table(("condition", *NAMES), gates)


def _steps(first: Facts, second: Facts) -> Block:
    headings = ("step", "A", "time", "B", "time")
    return Table(headings, step_rows(first, second), right=frozenset({2, 4}))


def _tokenizers(first: Facts, second: Facts) -> Iterator[Block]:
    reports = [facts.fertility for facts in (first, second)]
    there = [report for report in reports if report is not None]
    if not there:
        yield Paragraph("Neither run has a fertility.json.")
        return
    leads = there[0].leads
    values = [{one.name: getattr(one.texts["heldout"], leads) for one in report.candidates} if report else {}
              for report in reports]  # fmt: skip
    rows: list[Row] = []
    for name in dict.fromkeys([*values[0], *values[1]]):
        chosen = [run for run, report in zip(NAMES, reports, strict=True) if report and report.chosen == name]
        shown = [f"{by_name[name]:.3f}" if name in by_name else "–" for by_name in values]
        rows.append([name, *shown, f"chosen in {' and '.join(chosen)}" if chosen else ""])
    yield Table((f"candidate, {MEASURE_NAMES[leads]}", *NAMES, ""), rows, right=frozenset({1, 2}))
    cuts = [facts.cuts for facts in (first, second)]
    if cuts[0] and cuts[1] and cuts[0].text == cuts[1].text:
        yield Subheading("The same text by both")
        for name, cut, report in zip(NAMES, cuts, reports, strict=True):
            if cut and report:
                yield Cut(f"{name}: {report.chosen}", cut.new, counted(len(cut.new), "token"))


def _training(first: Facts, second: Facts) -> Iterator[Block]:
    both = list(zip(NAMES, (first, second), strict=True))
    steps = dict.fromkeys(step for _, facts in both for step in facts.telemetry)
    if not steps:
        yield Paragraph("Neither run has telemetry.")
    for step in steps:
        lines = {name: (facts.telemetry.get(step, []), facts.trainings.get(step)) for name, facts in both}
        yield Subheading(step)
        yield Gallery(training_pictures(lines))
    tuned = {name: facts.fine_tuning for name, facts in both if facts.fine_tuning}
    if tuned:
        yield Subheading("Fine-tuning")
        yield fine_tuning_picture(tuned)


def _samples(first: Facts, second: Facts) -> Iterator[Block]:
    """The prompts that both runs have, with what their candidates wrote."""
    samples = [{sample.prompt: sample for sample in facts.evaluation.samples} if facts.evaluation else {}
               for facts in (first, second)]  # fmt: skip
    common = [prompt for prompt in samples[0] if prompt in samples[1]]
    if not common:
        yield Paragraph("No prompt stands in both runs.")
    for prompt in common:
        pairs = zip(NAMES, (found[prompt] for found in samples), strict=True)
        yield Sample(prompt, [(f"{name}: {MODELS[2]}", sample.candidate, "") for name, sample in pairs])
