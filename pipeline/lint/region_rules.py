"""Images and functions of several regions: jobs take images, Lambda steps functions, from their own region alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep
from pipeline.references import member_path
from pipeline.regions import region_of

IMAGE_MEMBERS = {
    "Processing": ("AppSpecification", "ImageUri"),
    "Training": ("AlgorithmSpecification", "TrainingImage"),
}


def region_findings(steps: Sequence[tuple[ListedStep, Mapping[str, Any]]]) -> Iterator[Finding]:
    """Each image and function that lies in another region than the pipeline's first function, which is where the
    pipeline lies; without a function, in another than most.

    steps: each with its resolved arguments.
    """
    places = [(step, path, address) for step, resolved in steps for path, address in _addresses(step, resolved)
              if region_of(address)]  # fmt: skip
    if not places:
        return
    functions = [region_of(address) for step, _, address in places if step.type == "Lambda"]
    region = (functions or [Counter(region_of(address) for _, _, address in places).most_common(1)[0][0]])[0]
    there = next(path for _, path, address in places if region_of(address) == region)
    for step, path, address in places:
        if region_of(address) != region:
            yield Finding(path, address, f"region {region}, as of {there}", "Copy or deploy it there.", step.name)


def _addresses(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and address of what a step takes from its region; nothing of what is not in its form."""
    base = f"{step.path}.Arguments"
    found: list[tuple[str, Any]] = []
    if step.type == "Lambda":
        found.append((f"{step.path}.FunctionArn", step.definition.get("FunctionArn")))
    if step.type in IMAGE_MEMBERS:
        section, member = IMAGE_MEMBERS[step.type]
        found.append((f"{base}.{section}.{member}", _member(resolved.get(section), member)))
    if step.type == "RegisterModel":
        containers = _member(resolved.get("InferenceSpecification"), "Containers")
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            path = member_path(f"{base}.InferenceSpecification.Containers", index)
            found.append((f"{path}.Image", _member(container, "Image")))
    yield from ((path, address) for path, address in found if isinstance(address, str))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
