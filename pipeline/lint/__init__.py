"""Checks a compiled definition as a whole, before the service sees it: form, shapes, limits, references, known traps.

The definition is resolved with its parameters' defaults, samples of what its steps will give and sample job names; then
each step's arguments are held against the request that the service would make of them (pipeline/service_shapes.py) and
against the rules of this package. Each finding names its place by JSON path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.cache_rules import cache_findings
from pipeline.lint.finding import Finding
from pipeline.lint.form import MAX_DEFINITION_CHARACTERS, PARAMETER_TYPES, form_findings
from pipeline.lint.gate_rules import gate_findings
from pipeline.lint.job_rules import job_findings
from pipeline.lint.samples import SAMPLE_JOB_NAME, Samples
from pipeline.lint.steps import ListedStep, in_order, list_steps
from pipeline.lint.writers import writer_findings
from pipeline.service_shapes import Unknown, shape_problems
from steps.contract import ConfigError

__all__ = ["MAX_DEFINITION_CHARACTERS", "Finding", "check_definition", "lint_definition"]


def check_definition(text: str) -> None:
    """Raises ConfigError for the first finding of a definition, saying how many there are."""
    if findings := lint_definition(text):
        first = findings[0]
        more = f" ({len(findings) - 1} more)" if len(findings) > 1 else ""
        raise ConfigError(first.where, first.value, limit=first.limit, remedy=f"{first.remedy}{more}")


def lint_definition(text: str) -> list[Finding]:
    """Every finding of a definition's JSON text: of its form first, then in the order in which its steps run.

    Raises ConfigError for a text that is no JSON object.
    """
    try:
        definition = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            "definition", f"no JSON ({error})", remedy="Give what Pipeline.definition() returns."
        ) from error
    if not isinstance(definition, dict):
        raise ConfigError("definition", f"a {type(definition).__name__}", limit="an object",
                          remedy="Give what Pipeline.definition() returns.")  # fmt: skip
    return list(dict.fromkeys([*form_findings(text, definition), *_step_findings(definition)]))


def _step_findings(definition: Mapping[str, Any]) -> Iterator[Finding]:
    declared = {
        entry["Name"]: entry
        for entry in definition.get("Parameters") or []
        if isinstance(entry, dict) and isinstance(entry.get("Name"), str)
    }
    steps: dict[str, ListedStep] = {}
    for step in list_steps(definition):
        # The second of a name is found by its form.
        steps.setdefault(step.name, step)
    ordered, findings = in_order(steps)
    yield from findings
    samples = Samples({name: parameter_sample(entry) for name, entry in declared.items()}, steps)
    types = {name: str(entry.get("Type")) for name, entry in declared.items()}
    for step in ordered:
        resolved = samples.resolve_step(step)
        of_jobs = list(job_findings(step, resolved, declared))
        # Where a rule says what is wrong, the shape need not say it again.
        named = {finding.path for finding in of_jobs}
        for path, value, limit in shape_problems(step.type, resolved, SAMPLE_JOB_NAME):
            place = f"{step.path}.Arguments.{path}"
            if place not in named:
                yield Finding(place, value, limit, f"Change what {path} is made from.", step.name)
        yield from of_jobs
        yield from cache_findings(step, resolved, steps)
        yield from gate_findings(step, resolved, types)
    yield from samples.findings
    yield from writer_findings(ordered)


def parameter_sample(declaration: Mapping[str, Any]) -> Any:
    """A parameter's default, Unknown where it has none or one of another type, which its declaration is told for."""
    default, is_of_type = declaration.get("DefaultValue"), PARAMETER_TYPES.get(str(declaration.get("Type")))
    return default if is_of_type is not None and is_of_type(default) else Unknown()
