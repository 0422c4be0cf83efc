"""The whole report of one run, in the order in which it is read."""

from __future__ import annotations

from pipeline.report.blocks import Report
from pipeline.report.corpus_section import corpus_section
from pipeline.report.evaluation_section import evaluation_section, gate_section, samples_section
from pipeline.report.facts import Facts
from pipeline.report.headline import figures_of, verdict_of
from pipeline.report.provenance_section import provenance_section
from pipeline.report.steps_section import steps_section
from pipeline.report.tokenizer_section import tokenizer_section
from pipeline.report.training_section import training_section


def report_of(facts: Facts) -> Report:
    """What the first screen tells comes first, then why, then how."""
    sections = (
        gate_section(facts),
        steps_section(facts),
        tokenizer_section(facts),
        training_section(facts),
        evaluation_section(facts),
        samples_section(facts),
        corpus_section(facts),
        provenance_section(facts),
    )
    title = f"{facts.result.pipeline}, execution {facts.result.execution_id}"
    return Report(title, facts.place, [verdict_of(facts)], figures_of(facts), sections)
