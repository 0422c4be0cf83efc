"""The sections on what was measured of the models, on the gate, and the samples side by side."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.conditions import ConditionResult
from pipeline.report.blocks import Block, Cell, Paragraph, Picture, Row, Sample, Section, Subheading, Table
from pipeline.report.drawing import Bar, bars
from pipeline.report.facts import Facts
from pipeline.report.wording import counted, range_text, share_text, size_text, value_text
from steps.schemas.evaluation import Ablation, BitsPerByte, Evaluation, Proportion, SharedText, TaskAccuracy
from steps.schemas.evaluation import Sample as MeasuredSample

MODELS = ("base", "pretrained", "candidate")


def evaluation_section(facts: Facts) -> Section:
    if facts.evaluation is None:
        return Section("Evaluation", [Paragraph("Not measured: no evaluation.json.")], "evaluation")
    return Section("Evaluation", list(_blocks(facts.evaluation)), "evaluation")


def _blocks(evaluation: Evaluation) -> Iterator[Block]:
    yield bits_picture(evaluation)
    yield bits_table(evaluation)
    if evaluation.ablation is not None:
        yield Subheading("What the tokenizer alone brought")
        yield from _ablation(evaluation.ablation)
    if evaluation.retention is not None:
        kept = evaluation.retention
        yield Subheading("What is forgotten")
        yield Paragraph(
            f"Source language: base {kept.base:.4f} → candidate {kept.candidate:.4f} bits per byte, a loss of "
            f"{kept.loss:.4f} ({counted(kept.documents, 'document')}, {size_text(kept.bytes_scored)})."
        )
    if evaluation.accuracy:
        yield Subheading("Accuracy")
        yield accuracy_table(evaluation.accuracy)
    yield Subheading("Test text in the training text")
    yield contamination_table(evaluation)


def bits_picture(evaluation: Evaluation) -> Picture:
    """Bits per byte of each model, equal bytes of context, with the champion's where there is one."""
    bits, champion = evaluation.bits_per_byte, evaluation.champion
    values = {"base": bits.base, "pretrained": bits.pretrained, "candidate": bits.candidate}
    values |= {"champion (approved)": champion.bits_per_byte} if champion.present else {}
    rows = [Bar(name, value, f"{value:.4f}", 2 if name == "candidate" else 1) for name, value in values.items()]
    tells = "; ".join(f"{name} {value:.4f}" for name, value in values.items())
    unit = f"{counted(bits.documents, 'test document')}, {size_text(bits.bytes_scored)}; lower is better"
    return Picture("Bits per byte", unit, bars("Bits per byte", rows, tells), tells)


def bits_table(evaluation: Evaluation) -> Table:
    """A row a text and context, the champion's last."""
    rows = [_bits_row("equal bytes of context", evaluation.bits_per_byte),
            _bits_row("equal tokens", evaluation.equal_tokens)]  # fmt: skip
    if evaluation.extra_heldout is not None:
        rows.append(_bits_row("extra held-out text", evaluation.extra_heldout))
    if (champion := evaluation.champion).present:
        rows.append(["against the champion", f"{champion.bits_per_byte:.4f}", "",
                     f"{evaluation.bits_per_byte.candidate:.4f}", _gain(champion.improvement),
                     range_text(champion.improvement_ci95)])  # fmt: skip
    headings = ("measured on", "base", "pretrained", "candidate", "improvement", "95% interval")
    return Table(headings, rows, right=frozenset(range(1, 6)))


def _bits_row(name: str, bits: BitsPerByte) -> Row:
    values = (bits.base, bits.pretrained, bits.candidate)
    return [name, *(f"{value:.4f}" for value in values), _gain(bits.improvement), range_text(bits.improvement_ci95)]


def _gain(value: float) -> Cell:
    return Cell(f"{value:+.4f}", "good" if value > 0 else "bad")


def _ablation(ablation: Ablation) -> Iterator[Block]:
    texts = {"equal bytes": ablation.equal_bytes, "equal tokens": ablation.equal_tokens}
    texts |= {"extra held-out, equal bytes": ablation.extra_heldout} if ablation.extra_heldout else {}
    yield Paragraph("Two trainings on the same documents in the same order, which differ in the tokenizer alone.")
    rows: list[Row] = [
        [name, f"{one.base_tokenizer:.4f}", f"{one.new_tokenizer:.4f}", _gain(one.improvement),
         range_text(one.improvement_ci95)] for name, one in texts.items()
    ]  # fmt: skip
    headings = ("measured on", "base's tokenizer", "new tokenizer", "improvement", "95% interval")
    yield Table(headings, rows, right=frozenset(range(1, 5)))
    taken = [
        [name.replace("_", " "), f"{one.steps:,}", f"{one.tokens:,}", f"{one.flops:.2e}", f"{one.corpus_passes:.2f}",
         f"{one.parameters:,}", f"{one.validation_bits_per_byte:.4f}"] for name, one in ablation.training.items()
    ]  # fmt: skip
    headings_taken = ("training", "steps", "tokens", "FLOPs", "passes", "parameters", "validation bits per byte")
    yield Table(headings_taken, taken, right=frozenset(range(1, 7)))


def accuracy_table(accuracy: dict[str, TaskAccuracy]) -> Table:
    """A row a file of questions, each model's share with its interval."""
    rows = [
        [task, f"{found.items:,}", share_text(found.chance), *(_share(model.plain) for model in
         (found.base, found.pretrained, found.candidate)), share_text(found.candidate.by_byte.share)]
        for task, found in accuracy.items()
    ]  # fmt: skip
    headings = ("questions", "number", "a guess", *MODELS, "candidate, by byte")
    return Table(headings, rows, right=frozenset(range(1, 7)))


def _share(found: Proportion) -> str:
    return f"{share_text(found.share)} ({share_text(found.ci95[0])} to {share_text(found.ci95[1])})"


def contamination_table(evaluation: Evaluation) -> Table:
    found = evaluation.contamination
    texts: dict[str, SharedText] = {"test documents": found.test}
    texts |= {"extra held-out text": found.extra_heldout} if found.extra_heldout else {}
    texts |= {f"questions of {task}": shared for task, shared in found.accuracy.items()}
    rows: list[Row] = [
        [name, f"{one.texts:,}", Cell(f"{one.contaminated:,}", "warn") if one.contaminated else "0",
         share_text(one.share), f"{one.too_short:,}"] for name, one in texts.items()
    ]  # fmt: skip
    heading = f"with {found.ngram_words} words in a row from it"
    return Table(("text", "looked for", heading, "share", "too short"), rows, right=frozenset(range(1, 5)))


def samples_section(facts: Facts) -> Section:
    """Every prompt with what each model wrote after it."""
    samples = facts.evaluation.samples if facts.evaluation else []
    shown = [_sample(sample) for sample in samples]
    return Section("Samples", shown or [Paragraph("None: Evaluate writes them.")], "samples")


def _sample(sample: MeasuredSample) -> Sample:
    texts = {"base": sample.base, "pretrained": sample.pretrained, "candidate": sample.candidate}
    notes = {}
    for name in MODELS:
        figures = sample.figures.get(name)  # type: ignore[call-overload]
        ended = "" if figures is None else ", ended by itself" if figures.ended else ", cut at the limit"
        notes[name] = "" if figures is None else f"{share_text(figures.repeated_trigrams)} repeated{ended}"
    return Sample(sample.prompt, [(name, texts[name], notes[name]) for name in MODELS])


def gate_section(facts: Facts) -> Section:
    """Every condition with its value and limit, those that failed marked."""
    blocks: list[Block] = []
    for name, gate in facts.result.gates.items():
        blocks.append(Paragraph(f"{name} is {'open: all hold' if gate.open else 'closed: all must hold'}.",
                                "good" if gate.open else "bad"))  # fmt: skip
        rows = [row for condition in gate.conditions for row in _condition_rows(condition)]
        if rows:
            headings = ("", "condition", "value", "", "limit", "limit from")
            blocks.append(Table(headings, rows, right=frozenset({2, 4})))
        else:
            blocks.append(Paragraph("Which conditions hold is not known."))
    return Section("Gate", blocks or [Paragraph("No gate was come to.")], "gate")


def _condition_rows(condition: ConditionResult, inside: str = "") -> Iterator[Row]:
    """A row a comparison; those inside `or` and `not` below a row of its own."""
    holds = Cell("holds", "good") if condition.holds else Cell("fails", "bad")
    # Of alternatives one is enough.
    part = Cell("holds" if condition.holds else "does not hold")
    if condition.parts:
        heading = {"or": "one of these", "not": "not this"}.get(condition.operator, condition.operator)
        yield [part if inside else holds, f"{inside}{heading}", "", "", "", ""]
        for one in condition.parts:
            yield from _condition_rows(one, f"{inside}– ")
        return
    name = condition_name(condition)
    value, limit = (f"{side:.4f}" if isinstance(side, float) else value_text(side)
                    for side in (condition.value, condition.limit))  # fmt: skip
    yield [part if inside else holds, f"{inside}{name}", value, condition.operator, limit, condition.limit_name]


def condition_name(condition: ConditionResult) -> str:
    """What a comparison looks at: a path, or the output of a step's that stands in brackets."""
    return condition.name.rpartition("['")[2].removesuffix("']")
