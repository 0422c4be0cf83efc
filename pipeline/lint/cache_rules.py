"""Values that defeat the step cache, so that it never hits, or fool it, so that it hits when it should not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep
from pipeline.references import member_path, reference_kind, walk_references
from pipeline.service_cache import KEY_MEMBERS, VOLATILE_VARIABLES

# As job names and keys of uploaded code end, which the SDK makes up anew each time: 2026-11-30-17-05-59-123.
TIME = re.compile(r"\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}(-\d{3})?")
# Content that is named by its digest cannot change under its name.
DIGEST = re.compile(r"(?<![0-9a-f])([0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-f])")


def cache_findings(step: ListedStep, resolved: Mapping[str, Any], steps: Mapping[str, ListedStep]) -> Iterator[Finding]:
    """What of a cached step's arguments the cache does not bear. resolved: with samples for references."""
    if not step.is_cached or step.type not in KEY_MEMBERS:
        return
    for name in KEY_MEMBERS[step.type]:
        path = f"{step.path}.Arguments.{name}"
        yield from _execution_values(step, step.own_arguments.get(name), path)
        yield from _times(step, resolved.get(name), path)
    yield from _unknown_contents(step, steps)


def _execution_values(step: ListedStep, value: Any, path: str) -> Iterator[Finding]:
    """Values of one execution: another execution has another, and so another key."""
    if reference_kind(value) == "Get":
        if value["Get"].removeprefix("Execution.") in VOLATILE_VARIABLES:
            remedy = "Leave values of one execution to output URIs."
            yield Finding(path, value["Get"], "the same in each execution", remedy, step.name)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _execution_values(step, item, member_path(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _execution_values(step, item, member_path(path, index))


def _times(step: ListedStep, value: Any, path: str) -> Iterator[Finding]:
    """Names with the time in them, which another compilation makes up anew."""
    if isinstance(value, str) and (found := TIME.search(value)):
        remedy = "Name it by its content: each compilation would be another cache key."
        yield Finding(path, value, f"no time ({found[0]})", remedy, step.name)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _times(step, item, member_path(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _times(step, item, member_path(path, index))


def _unknown_contents(step: ListedStep, steps: Mapping[str, ListedStep]) -> Iterator[Finding]:
    """Inputs whose content the key leaves out: new files under the old URI would be passed over.

    Not those that an earlier step writes, nor those named by their digest. A digest that a function gives at run time
    makes up for one input, under whatever name it is given.
    """
    fresh = {
        reference["Get"]
        for name in ("AppSpecification", "HyperParameters", "Environment")
        for reference in walk_references(step.own_arguments.get(name))
        if _is_of_uncached_function(reference, steps)
    }
    inputs = [
        (f"{step.path}.Arguments.{place}", uri)
        for place, uri in _input_uris(step.own_arguments)
        if reference_kind(uri) is None or not _is_of_a_step(uri)
    ]
    unnamed = [(place, uri) for place, uri in inputs if not DIGEST.search(_literal(uri))]
    for place, uri in unnamed[len(fresh) :]:
        remedy = "Give the step a digest of it as an argument, from a Lambda step that is not cached."
        yield Finding(place, _literal(uri), "content that the cache key knows", remedy, step.name)


def _input_uris(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for index, entry in enumerate(arguments.get("ProcessingInputs") or []):
        uri = (entry.get("S3Input") or {}).get("S3Uri") if isinstance(entry, dict) else None
        if uri is not None:
            yield f"ProcessingInputs[{index}].S3Input.S3Uri", uri
    for index, entry in enumerate(arguments.get("InputDataConfig") or []):
        source = (entry.get("DataSource") or {}).get("S3DataSource") or {} if isinstance(entry, dict) else {}
        if "S3Uri" in source:
            yield f"InputDataConfig[{index}].DataSource.S3DataSource.S3Uri", source["S3Uri"]


def _is_of_a_step(value: Any) -> bool:
    return any(reference.get("Get", "").startswith("Steps.") for reference in walk_references(value))


def _is_of_uncached_function(reference: Mapping[str, Any], steps: Mapping[str, ListedStep]) -> bool:
    parts = str(reference.get("Get", "")).split(".")
    source = steps.get(parts[1]) if parts[0] == "Steps" and len(parts) > 1 else None
    return source is not None and source.type == "Lambda" and not source.is_cached


def _literal(uri: Any) -> str:
    """A URI as the definition has it, with the names of its references."""
    if isinstance(uri, str):
        return uri
    if reference_kind(uri) == "Std:Join":
        join = uri["Std:Join"]
        return str(join.get("On", "")).join(_literal(part) for part in join.get("Values", []))
    return str(uri.get("Get", uri)) if isinstance(uri, dict) else str(uri)
