"""Checks a compiled definition as a whole, before the service sees it: form, shapes, limits, references, known traps.

The definition is resolved with its parameters' defaults, samples of what its steps will give and sample job names; then
each step's arguments are held against the request that the service would make of them (pipeline/service_shapes.py) and
against the rules of this package. Each finding names its place by JSON path.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.cache_rules import cache_findings
from pipeline.lint.finding import Finding
from pipeline.lint.form import MAX_DEFINITION_CHARACTERS, PARAMETER_TYPES, form_findings
from pipeline.lint.gate_rules import gate_findings
from pipeline.lint.job_rules import job_findings
from pipeline.lint.region_rules import region_findings
from pipeline.lint.samples import SAMPLE_JOB_NAME, Samples
from pipeline.lint.steps import ListedStep, in_order, list_steps
from pipeline.lint.structure import structure_findings
from pipeline.lint.writers import writer_findings
from pipeline.references import strict_json
from pipeline.service_shapes import CONTAINER_LIMITS, Unknown, shape_problems
from steps.contract import ConfigError

__all__ = ["MAX_DEFINITION_CHARACTERS", "Finding", "check_definition", "lint_definition", "read_definition"]


def check_definition(text: str) -> None:
    """Raises ConfigError for the first finding of a definition, saying how many there are."""
    if findings := lint_definition(text):
        first = findings[0]
        more = f" ({len(findings) - 1} more)" if len(findings) > 1 else ""
        raise ConfigError(first.where, first.value, limit=first.limit, remedy=f"{first.remedy}{more}")


def lint_definition(text: str, subject: str = "definition") -> list[Finding]:
    """Every finding of a definition's JSON text: of its form first, then in the order in which its steps run.

    Raises ConfigError, with the subject, for a text that is no definition's JSON.
    """
    definition = read_definition(text, subject)
    # What follows takes objects, lists and texts for what they are.
    if findings := structure_findings(definition):
        return findings
    return list(dict.fromkeys([*form_findings(text, definition), *_step_findings(definition)]))


def read_definition(text: str, subject: str = "definition") -> dict[str, Any]:
    """The object of a definition's JSON. Raises ConfigError for any other text, and for a member that stands twice."""
    remedy = "Give what Pipeline.definition() returns."
    try:
        definition = strict_json(text)
        # As deep as whatever reads it may go.
        copy.deepcopy(definition)
    except ValueError as error:
        raise ConfigError(subject, f"no JSON ({error})", remedy=remedy) from error
    except RecursionError as error:
        raise ConfigError(subject, "nested too deeply", remedy=remedy) from error
    if not isinstance(definition, dict) or "Steps" not in definition:
        value = "no member Steps" if isinstance(definition, dict) else f"a {type(definition).__name__}"
        raise ConfigError(subject, value, limit="an object with Steps", remedy=remedy)
    return definition


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
    whole: list[tuple[ListedStep, Mapping[str, Any]]] = []
    for step in ordered:
        resolved = samples.resolve_step(step)
        of_shapes = [
            Finding(f"{step.path}.Arguments.{path}", value, limit, f"Change what {path} is made from.", step.name)
            for path, value, limit in shape_problems(step.type, resolved, SAMPLE_JOB_NAME)
        ]
        # Rules look into structures and lists: where one is none, its shape is all that can be said.
        if any(finding.limit in CONTAINER_LIMITS for finding in of_shapes):
            yield from of_shapes
            continue
        whole.append((step, resolved))
        of_jobs = list(job_findings(step, resolved, declared))
        # Where a rule says what is wrong, the shape need not say it again.
        named = {finding.path for finding in of_jobs}
        yield from (finding for finding in of_shapes if finding.path not in named)
        yield from of_jobs
        yield from cache_findings(step, resolved, steps)
        yield from gate_findings(step, resolved, types)
    yield from samples.findings
    yield from writer_findings([step for step, _ in whole])
    yield from region_findings(whole)


def parameter_sample(declaration: Mapping[str, Any]) -> Any:
    """A parameter's default, Unknown where it has none or one of another type, which its declaration is told for."""
    default, is_of_type = declaration.get("DefaultValue"), PARAMETER_TYPES.get(str(declaration.get("Type")))
    return default if is_of_type is not None and is_of_type(default) else Unknown()
