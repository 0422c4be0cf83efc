"""A step's arguments against the service's own shapes: members, types, enums, patterns, smallest and largest.

The shapes are those that botocore carries for SageMaker. botocore's own validator checks required members and types
alone, so a value that the service would refuse after hours of earlier steps passes it.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.references import member_path

# The request that a step's arguments become, and the name that the service gives to its job.
OPERATIONS = {
    "Processing": ("CreateProcessingJob", "ProcessingJobName"),
    "Training": ("CreateTrainingJob", "TrainingJobName"),
    "RegisterModel": ("CreateModelPackage", None),
}
# What the service's patterns have and Python's re has not, as near as ranges come: Unicode classes (they stand inside
# brackets), characters beyond 16 bits as pairs, and a repeated end of text.
PATTERN_TRANSLATIONS = (
    (r"\p{L}", "a-zA-Z\u00aa-\u00ba\u00c0-\u02c1\u0370-\u1fff\u2c00-\ud7ff"),
    (r"\p{M}", "\u0300-\u036f"),
    (r"\p{Z}", " \u00a0\u2000-\u200a\u2028\u2029\u3000"),
    (r"\p{N}", "0-9"),
    (r"\p{S}", r"$+<=>^`|~\u00a2-\u00a9\u20a0-\u20cf\u2100-\u2bff"),
    (r"\p{P}", r"!-#%-*,-/:;?@\[-\]_{}\u00a1\u00ab\u00bb\u2010-\u2027\u2030-\u205e"),
    (r"\p{Alnum}", "a-zA-Z0-9"),
    (r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"),
    ("${1,128}", "$"),
    ("${1,256}", "$"),
)


# What is said of a value that is no structure, list or map.
CONTAINER_LIMITS = ("a structure", "a list", "a map")


class Unknown:
    """In the place of a value that only an execution knows: of any kind."""


def shape_problems(step_type: str, arguments: Mapping[str, Any], job_name: str) -> list[tuple[str, str, str]]:
    """What the service would refuse in the resolved arguments of a step, as (path, value, limit).

    Empty for step types that make no request of their own.
    """
    if step_type not in OPERATIONS:
        return []
    operation, name_member = OPERATIONS[step_type]
    request = {**arguments, name_member: job_name} if name_member else arguments
    return request_problems("sagemaker", operation, request)


def request_problems(service: str, operation: str, request: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What a service would refuse in a request of one of its operations, as (path, value, limit)."""
    return list(_problems(service_model(service).operation_model(operation).input_shape, request, ""))


@functools.cache
def service_model(service: str = "sagemaker") -> Any:
    """botocore's model of a service."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def allowed_values(shape_name: str) -> list[str]:
    """The values of one of the service's enumerations, such as `TrainingInstanceType`."""
    return list(service_model().shape_for(shape_name).enum)


def _problems(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, Unknown):
        return
    match shape.type_name:
        case "structure":
            yield from _structure_problems(shape, value, path)
        case "list":
            yield from _list_problems(shape, value, path)
        case "map":
            yield from _map_problems(shape, value, path)
        case "string":
            yield from _string_problems(shape, value, path)
        case "boolean":
            if not isinstance(value, bool):
                yield path, f"{value!r}", "true or false"
        case "integer" | "long":
            if not isinstance(value, int) or isinstance(value, bool):
                yield path, f"{value!r}", "a whole number"
            else:
                yield from _range_problems(shape, value, path, f"{value}", "")
        case "float" | "double":
            if not isinstance(value, int | float) or isinstance(value, bool):
                yield path, f"{value!r}", "a number"
            else:
                yield from _range_problems(shape, value, path, f"{value}", "")
        case "blob":
            if not isinstance(value, bytes):
                yield path, f"{value!r}", "bytes"
        case other:
            # A kind that no request of ours has, such as a time: to be added here when one has it.
            raise NotImplementedError(f"{path}: shape of type {other}")


def _structure_problems(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, dict):
        yield path, f"{value!r}", "a structure"
        return
    for member in shape.required_members:
        if member not in value:
            yield member_path(path, member), "missing", "required"
    for member, item in value.items():
        if member not in shape.members:
            yield member_path(path, member), "no such member", f"one of {', '.join(shape.members)}"
        else:
            yield from _problems(shape.members[member], item, member_path(path, member))


def _list_problems(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, list):
        yield path, f"{value!r}", "a list"
        return
    yield from _range_problems(shape, len(value), path, f"{len(value)} entries", " entries")
    for index, item in enumerate(value):
        yield from _problems(shape.member, item, f"{path}[{index}]")


def _map_problems(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, dict):
        yield path, f"{value!r}", "a map"
        return
    yield from _range_problems(shape, len(value), path, f"{len(value)} entries", " entries")
    for key, item in value.items():
        yield from _problems(shape.key, key, member_path(path, key))
        yield from _problems(shape.value, item, member_path(path, key))


def _string_problems(shape: Any, value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, str):
        yield path, f"{value!r}", "a text"
        return
    yield from _range_problems(shape, len(value), path, f"{len(value)} characters", " characters")
    if shape.enum and value not in shape.enum:
        near = difflib.get_close_matches(value, shape.enum, n=1)
        yield (
            path,
            value,
            f"one of the {len(shape.enum)} values of {shape.name}" + (f", such as {near[0]}" if near else ""),
        )
    if (pattern := shape.metadata.get("pattern")) and not compiled_pattern(pattern).fullmatch(value):
        yield path, value, f"pattern {pattern}"


def _range_problems(shape: Any, number: float, path: str, shown: str, unit: str) -> Iterator[tuple[str, str, str]]:
    smallest, largest = shape.metadata.get("min"), shape.metadata.get("max")
    if smallest is not None and number < smallest:
        yield path, shown, f"at least {smallest}{unit}"
    if largest is not None and number > largest:
        yield path, shown, f"at most {largest}{unit}"


@functools.cache
def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of the service for Python; the whole value must match, as in the service."""
    for theirs, ours in PATTERN_TRANSLATIONS:
        pattern = pattern.replace(theirs, ours)
    return re.compile(pattern)
