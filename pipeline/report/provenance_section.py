"""The section on provenance: digests, versions, seeds and the whole configuration that the steps ran with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.report.blocks import Block, Cell, Details, Items, Paragraph, Row, Section, Subheading, Table
from pipeline.report.facts import Facts
from pipeline.report.wording import date_text, value_text

# Arguments of a step's job as a cache key names them, without a seal to read.
ARGUMENT_PREFIXES = ("argument --", "hyperparameter ")


def provenance_section(facts: Facts) -> Section:
    return Section("Provenance", list(_blocks(facts)), "provenance")


def _blocks(facts: Facts) -> Iterator[Block]:
    if facts.missing:
        yield Subheading("Files that are not there")
        yield Items(facts.missing, "warn")
    yield Subheading("The run")
    yield run_table(facts)
    if digests := [*code_rows(facts)]:
        yield Details("Digests of code, inputs and outputs", [Table(("step", "what", "sha256"), digests)])
    if versions := versions_of(facts):
        yield Subheading("Versions")
        yield Paragraph(", ".join(f"{name} {version}" for name, version in versions.items()))
    yield Subheading("Parameters")
    rows: list[Row] = [[name, Cell(value_text(value), is_code=True)] for name, value in facts.result.parameters.items()]
    yield Table(("parameter", "value"), rows) if rows else Paragraph("None.")
    if settings := settings_of(facts):
        rows = [[step, name, Cell(value, is_code=True)] for step, members in settings.items()
                for name, value in members.items()]  # fmt: skip
        yield Details("Settings of every step, seeds among them", [Table(("step", "setting", "value"), _grouped(rows))])


def run_table(facts: Facts) -> Table:
    result = facts.result
    told: dict[str, str] = {"execution": result.execution_id, "pipeline": result.pipeline, "place": facts.place}
    if facts.recorded_at is not None:
        told["last recorded"] = date_text(facts.recorded_at)
    if result.registered is not None:
        told["version made"] = date_text(result.registered.created_at)
        told["model digest"] = result.registered.model_digest
    if facts.evaluation is not None:
        told["test text"] = facts.evaluation.text_sha256
    return Table(("what", "value"), [[name, Cell(value, is_code=True)] for name, value in told.items()])


def code_rows(facts: Facts) -> Iterator[Row]:
    """The digests of each step's code, of what it read and of what it made; and those of the inputs."""
    for name, step in facts.result.steps.items():
        label: str = name
        digests = {key.removesuffix("_digest"): str(value) for key, value in step.values.items()
                   if key.endswith("_digest") and value}  # fmt: skip
        for seal in facts.manifests.get(name, [])[:1]:
            digests |= {"code": seal.code_sha256} if seal.code_sha256 else {}
            digests |= {f"input {key}": digest for key, digest in seal.inputs.items()}
            digests["output"] = seal.content_digest
        for what, digest in digests.items():
            yield [label, what, Cell(digest, is_code=True)]
            label = ""


def versions_of(facts: Facts) -> dict[str, str]:
    """Versions of Python and libraries over all seals; where steps differ, each of them."""
    found: dict[str, dict[str, None]] = {}
    for seals in facts.manifests.values():
        for seal in seals:
            for name, version in seal.versions.items():
                found.setdefault(name, {})[version] = None
    return {name: " and ".join(versions) for name, versions in found.items()}


def settings_of(facts: Facts) -> dict[str, dict[str, str]]:
    """Each step's settings, seeds among them, from its seal; of a step without one from its cache key's members."""
    settings = {}
    for name in facts.result.steps:
        if seals := facts.manifests.get(name):
            settings[name] = {key: value_text(value) for key, value in seals[0].config.items()}
        elif given := _asked(facts.result.steps[name].key_members):
            settings[name] = given
    return settings


def _asked(key_members: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(prefix): _plain(value)
        for name, value in key_members.items()
        for prefix in ARGUMENT_PREFIXES
        if name.startswith(prefix)
    }


def _plain(value: str) -> str:
    """A hyperparameter without the quotes of its JSON."""
    try:
        parsed: Any = json.loads(value)
    except ValueError:
        return value
    return value_text(parsed)


def _grouped(rows: list[Row]) -> list[Row]:
    """The rows with a first cell only where it changes."""
    shown = []
    before: Cell | str | None = None
    for row in rows:
        shown.append(["" if row[0] == before else row[0], *row[1:]])
        before = row[0]
    return shown
