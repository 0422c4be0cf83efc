"""What two runs differ in: settings, parameters, code, inputs, versions; and every figure that both measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.steps import BRANCHES
from pipeline.report.blocks import Cell, Row, Tone
from pipeline.report.evaluation_section import condition_name
from pipeline.report.facts import Facts
from pipeline.report.graph_drawing import state_words
from pipeline.report.provenance_section import settings_of, versions_of
from pipeline.report.wording import short_digest, time_text, value_text

Pair = tuple[str, str]
NOT_THERE = "–"
# Of a definition's steps: settings are told as such, from the seals; code by its digest.
TOLD_ELSEWHERE = re.compile(r"\.(HyperParameters|ContainerArguments|OutputParameters)\b")
# A digest follows from what else differs.
DIGEST = re.compile(r"/code/[0-9a-f]{64}\.zip$|^[0-9a-f]{64}$")


def configuration_differences(first: Facts, second: Facts) -> dict[str, dict[str, Pair]]:
    """By subject, what is not the same in both runs, with both values; a subject without differences is empty."""
    pairs = {
        "parameters": [{name: value_text(value) for name, value in facts.result.parameters.items()}
                       for facts in (first, second)],
        "settings": [_flat(settings_of(facts)) for facts in (first, second)],
        "code": [_code(facts) for facts in (first, second)],
        "jobs": [_jobs(facts) for facts in (first, second)],
        "inputs": [_inputs(facts) for facts in (first, second)],
        "versions": [versions_of(facts) for facts in (first, second)],
    }  # fmt: skip
    return {subject: different(*both) for subject, both in pairs.items()}


def different(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, Pair]:
    """The members that differ, in the order of the first and then of the second mapping."""
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name, NOT_THERE), second.get(name, NOT_THERE)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _flat(settings: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    # Digests are told as inputs.
    return {
        f"{step}.{name}": value
        for step, members in settings.items()
        for name, value in members.items()
        if not name.endswith("_digest")
    }


def _code(facts: Facts) -> dict[str, str]:
    return {step: short_digest(seals[0].code_sha256) for step, seals in facts.manifests.items()
            if seals and seals[0].code_sha256}  # fmt: skip


def _jobs(facts: Facts) -> dict[str, str]:
    """What else the definition asks for of each step: instances, time limits, spot capacity, gate, retries."""
    found: dict[str, str] = {}
    for name, node in facts.graph.items():
        asked = {key: value for key, value in node.definition.items() if key not in ("Name", "Type", "DependsOn")}
        arguments = {key: value for key, value in node.arguments.items() if key not in BRANCHES}
        found |= {path: value for path, value in _leaves({**asked, "Arguments": arguments}, name)
                  if not TOLD_ELSEWHERE.search(path) and not DIGEST.search(value)}  # fmt: skip
    return {path.replace(".Arguments.", "."): value for path, value in found.items()}


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every value that holds no others, by its path."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    else:
        yield path, value_text(value)


def _inputs(facts: Facts) -> dict[str, str]:
    """The digests of what the run was given: not of what its steps made of it."""
    return {
        name.removesuffix("_digest"): short_digest(str(value))
        for step in facts.result.steps.values()
        for name, value in step.values.items()
        if name.endswith("_digest")
    }


def figure_rows(first: Facts, second: Facts) -> list[Row]:
    """A row a figure: both values, and second - first where both are there."""
    both = measured(first), measured(second)
    rows: list[Row] = []
    for name in dict.fromkeys([*both[0], *both[1]]):
        values = [figures.get(name) for figures in both]
        form = ",.1f" if any(value is not None and value >= 100 for value in values) else ",.4f"
        shown = [NOT_THERE if value is None else f"{value:{form}}" for value in values]
        change = f"{values[1] - values[0]:+{form}}" if values[0] is not None and values[1] is not None else ""
        rows.append([name, *shown, change])
    return rows


def measured(facts: Facts) -> dict[str, float]:
    """The figures of a run by what they are."""
    found: dict[str, float] = {}
    if evaluation := facts.evaluation:
        bits = evaluation.bits_per_byte
        found |= {"bits per byte, base": bits.base, "bits per byte, pretrained": bits.pretrained,
                  "bits per byte, candidate": bits.candidate, "improvement": bits.improvement,
                  "equal tokens: candidate": evaluation.equal_tokens.candidate}  # fmt: skip
        if evaluation.extra_heldout:
            found["extra held-out text: candidate"] = evaluation.extra_heldout.candidate
        if evaluation.retention:
            found["retention loss"] = evaluation.retention.loss
        if evaluation.ablation:
            found["improvement by the tokenizer alone"] = evaluation.ablation.equal_bytes.improvement
        for task, accuracy in (evaluation.accuracy or {}).items():
            found[f"accuracy, {task}: candidate"] = accuracy.candidate.plain.share
    found |= _fertility(facts)
    for step, summary in facts.trainings.items():
        found[f"{step}: validation bits per byte"] = summary.validation_bits_per_byte
        found[f"{step}: tokens a second a device"] = summary.tokens_per_second_per_device
        found[f"{step}: steps"] = float(sum(phase.steps for phase in summary.phases.values()))
    if tuned := facts.fine_tuning:
        found["fine-tuning: held-out loss"] = tuned.validation_loss
    return found


def _fertility(facts: Facts) -> dict[str, float]:
    if facts.fertility is None:
        return {}
    report = facts.fertility
    chosen = next((one for one in report.candidates if one.name == report.chosen), None)
    found = {"tokens a word, base": report.tokens_per_word.base, "tokens a word, chosen": report.tokens_per_word.chosen}
    return found | ({"bytes a token, chosen": chosen.texts["heldout"].bytes_per_token} if chosen else {})


def step_rows(first: Facts, second: Facts) -> list[Row]:
    """A row a step: state and time in either run."""
    rows: list[Row] = []
    for name in dict.fromkeys([*first.result.steps, *second.result.steps]):
        row: Row = [name]
        for facts in (first, second):
            step = facts.result.steps.get(name)
            seconds = time_text(step.seconds) if step is not None and step.seconds else ""
            row += [NOT_THERE if step is None else state_words(step)[2], seconds]
        rows.append(row)
    return rows


def gate_rows(first: Facts, second: Facts) -> list[Row]:
    """A row a comparison of the gates: value and limit in either run, those that keep it closed marked."""
    found: dict[str, dict[int, Cell]] = {}
    for number, facts in enumerate((first, second)):
        for gate in facts.result.gates.values():
            for condition in gate.conditions:
                for leaf in condition.leaves():
                    # Of alternatives one is enough.
                    tone: Tone = "good" if leaf.holds or condition.holds else "bad"
                    value, limit = (_side(side) for side in (leaf.value, leaf.limit))
                    cell = Cell(f"{value} {leaf.operator} {limit}", tone)
                    found.setdefault(condition_name(leaf), {})[number] = cell
    return [[name, *(by_run.get(number, Cell(NOT_THERE)) for number in (0, 1))] for name, by_run in found.items()]


def _side(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else value_text(value)
