"""The form of a definition: its members, its parameters, and what each type of step may carry beside its arguments."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pipeline.lint.finding import Finding
from pipeline.lint.steps import BRANCHES
from pipeline.local.cache import duration_seconds
from pipeline.references import as_text, member_path, walk_references
from steps.contract import nearest_name

VERSION = "2020-12-01"
MAX_DEFINITION_CHARACTERS = 1_048_576
MAX_PARAMETERS = 200
MAX_RETRY_ATTEMPTS, MAX_RETRY_MINUTES = 20, 14_400
DEFINITION_MEMBERS = (
    "Version", "Metadata", "Parameters", "PipelineExperimentConfig", "Steps", "MlflowConfig", "StepMetadata",
)  # fmt: skip
PARAMETER_MEMBERS = ("Name", "Type", "DefaultValue", "EnumValues", "Description", "DisplayName")
# Each type of parameter, and whether a JSON value is of it.
PARAMETER_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "String": lambda value: isinstance(value, str),
    "Integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "Float": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value),
    "Boolean": lambda value: isinstance(value, bool),
}
STEP_TYPES = (
    "Processing", "Training", "Tuning", "Transform", "Model", "RegisterModel", "Condition", "Fail", "Lambda",
    "Callback", "QualityCheck", "ClarifyCheck", "EMR", "EMRServerless", "AutoML", "EndpointConfig", "Endpoint",
    "InferenceComponent", "Lineage", "Job", "Cleanup", "ForEach",
)  # fmt: skip
STEP_NAME = re.compile(r"[A-Za-z0-9\-_]{1,64}")
# By the members of PipelineExecutionStep, which repeats them.
MAX_TEXT_CHARACTERS = {"DisplayName": 256, "Description": 3_072}
COMMON_MEMBERS = ("Name", "Type", "Arguments", "DisplayName", "Description", "DependsOn")
# What steps carry beside the common members, of the types whose members are known here.
OWN_MEMBERS = {
    "Processing": ("CacheConfig", "RetryPolicies", "PropertyFiles"),
    "Training": ("CacheConfig", "RetryPolicies"),
    "RegisterModel": ("RetryPolicies",),
    "Model": ("RetryPolicies",),
    "Lambda": ("FunctionArn", "OutputParameters", "CacheConfig"),
    "Condition": (),
    "Fail": (),
}
REQUIRED_MEMBERS = {"Lambda": ("FunctionArn",)}
SERVICE_ERRORS = ("Step.SERVICE_FAULT", "Step.THROTTLING")
JOB_ERRORS = ("SageMaker.JOB_INTERNAL_ERROR", "SageMaker.CAPACITY_ERROR", "SageMaker.RESOURCE_LIMIT")
JOB_TYPES = ("Processing", "Training", "Transform", "Tuning")


def form_findings(text: str, definition: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the definition's own members, its parameters and the members of its steps."""
    if len(text) > MAX_DEFINITION_CHARACTERS:
        limit = f"{MAX_DEFINITION_CHARACTERS} characters"
        yield Finding("$", f"{len(text)} characters", limit, "Shorten the longest setting.")
    yield from _unknown_members(definition, "$", DEFINITION_MEMBERS)
    if (version := definition.get("Version")) != VERSION:
        yield Finding("$.Version", as_text(version), VERSION, "Write this version.")
    if not isinstance(steps := definition.get("Steps"), list) or not steps:
        yield Finding("$.Steps", "no steps", "a list of steps", "Give what Pipeline.definition() returns.")
        return
    yield from _parameter_findings(definition)
    yield from _steps_findings(steps, "$.Steps", Counter(_names(steps)))


def _unknown_members(holder: Mapping[str, Any], path: str, known: tuple[str, ...], step: str = "") -> Iterator[Finding]:
    for name in holder:
        if name not in known:
            yield Finding(member_path(path, name), "no such member", f"one of {', '.join(known)}",
                          nearest_name(name, known), step)  # fmt: skip


# --- parameters -------------------------------------------------------------------------------------------------------


def _parameter_findings(definition: Mapping[str, Any]) -> Iterator[Finding]:
    declared = definition.get("Parameters", [])
    if not isinstance(declared, list):
        yield Finding("$.Parameters", as_text(declared), "a list", "Declare each parameter in a list.")
        return
    if len(declared) > MAX_PARAMETERS:
        remedy = "Fix some of them in the configuration."
        yield Finding("$.Parameters", f"{len(declared)} parameters", f"{MAX_PARAMETERS}", remedy)
    used = {reference.get("Get") for reference in walk_references(definition["Steps"])}
    names = Counter(entry.get("Name") for entry in declared if isinstance(entry, dict))
    for index, parameter in enumerate(declared):
        path = member_path("$.Parameters", index)
        if not isinstance(parameter, dict) or not isinstance(name := parameter.get("Name"), str):
            yield Finding(path, as_text(parameter), "a structure with Name and Type", "Complete it.")
            continue
        yield from _unknown_members(parameter, path, PARAMETER_MEMBERS)
        if not re.fullmatch(r"[A-Za-z0-9\-_]{1,256}", name):
            yield Finding(f"{path}.Name", name, "256 letters, digits, - and _", "Rename it.")
        if names[name] > 1:
            yield Finding(f"{path}.Name", f"{name} is declared {names[name]} times", "once", "Take one of them out.")
        if f"Parameters.{name}" not in used:
            yield Finding(path, f"{name} is used by no step", "used at least once", "Use or remove it.")
        yield from _value_findings(parameter, path)


def _value_findings(parameter: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """A parameter's type, default and allowed values, which must agree."""
    kind = str(parameter.get("Type"))
    if kind not in PARAMETER_TYPES:
        remedy = nearest_name(kind, PARAMETER_TYPES)
        yield Finding(f"{path}.Type", kind, f"one of {', '.join(PARAMETER_TYPES)}", remedy)
        return
    allowed = parameter.get("EnumValues")
    for index, value in enumerate(allowed or []):
        if not PARAMETER_TYPES[kind](value):
            place = member_path(f"{path}.EnumValues", index)
            yield Finding(place, as_text(value), f"a value of type {kind}", "Correct it.")
    if "DefaultValue" not in parameter:
        remedy = "Give it one: a schedule sends no parameters."
        yield Finding(f"{path}.DefaultValue", "no default", "a default for each parameter", remedy)
        return
    default = parameter["DefaultValue"]
    if not PARAMETER_TYPES[kind](default):
        yield Finding(f"{path}.DefaultValue", as_text(default), f"a value of type {kind}", "Correct it.")
    elif allowed and default not in allowed:
        names = list(map(as_text, allowed))
        limit = f"one of {', '.join(names)}"
        yield Finding(f"{path}.DefaultValue", as_text(default), limit, nearest_name(as_text(default), names))


# --- steps ------------------------------------------------------------------------------------------------------------


def _names(steps: Any) -> Iterator[str]:
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict):
            yield str(step.get("Name"))
            for branch in BRANCHES:
                yield from _names((step.get("Arguments") or {}).get(branch))


def _steps_findings(steps: list[Any], path: str, names: Counter[str]) -> Iterator[Finding]:
    for index, step in enumerate(steps):
        place = member_path(path, index)
        if not isinstance(step, dict):
            yield Finding(place, as_text(step), "a structure with Name, Type and Arguments", "Correct it.")
            continue
        name, kind = str(step.get("Name")), step.get("Type")
        if not STEP_NAME.fullmatch(name) or not isinstance(step.get("Name"), str):
            value = as_text(step["Name"]) if "Name" in step else "missing"
            yield Finding(f"{place}.Name", value, "64 letters, digits, - and _", "Rename it.")
        elif names[name] > 1:
            yield Finding(f"{place}.Name", f"{names[name]} steps of this name", "one", "Rename the others.", name)
        if kind not in STEP_TYPES:
            value = as_text(kind) if "Type" in step else "missing"
            limit = f"one of {', '.join(STEP_TYPES)}"
            yield Finding(f"{place}.Type", value, limit, nearest_name(str(kind), STEP_TYPES), name)
            continue
        if not isinstance(step.get("Arguments", {}), dict):
            yield Finding(f"{place}.Arguments", as_text(step["Arguments"]), "a structure", "Correct it.", name)
            continue
        yield from _members_findings(step, place)
        for branch in BRANCHES if kind == "Condition" else ():
            inner = step.get("Arguments", {}).get(branch, [])
            if isinstance(inner, list):
                yield from _steps_findings(inner, f"{place}.Arguments.{branch}", names)
            else:
                yield Finding(f"{place}.Arguments.{branch}", as_text(inner), "a list of steps", "Correct it.", name)


def _members_findings(step: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """What a step carries beside its arguments."""
    name, kind = step["Name"], step["Type"]
    if kind in OWN_MEMBERS:
        yield from _unknown_members(step, path, (*COMMON_MEMBERS, *OWN_MEMBERS[kind]), name)
    for needed in ("Arguments", *REQUIRED_MEMBERS.get(kind, ())):
        # A function may be called without arguments.
        if needed not in step and not (kind == "Lambda" and needed == "Arguments"):
            yield Finding(f"{path}.{needed}", "missing", "required", f"Give it with each {kind} step.", name)
    for text, most in MAX_TEXT_CHARACTERS.items():
        shown = step.get(text, "")
        if not isinstance(shown, str) or len(shown) > most:
            value = f"{len(shown)} characters" if isinstance(shown, str) else as_text(shown)
            yield Finding(f"{path}.{text}", value, f"a text of {most} characters", "Shorten it.", name)
    if "CacheConfig" in step:
        yield from _cache_findings(step["CacheConfig"], f"{path}.CacheConfig", name)
    for index, policy in enumerate(step.get("RetryPolicies") or []):
        yield from _retry_findings(policy, member_path(f"{path}.RetryPolicies", index), name, kind)
    config = step.get("Arguments", {}).get("ProcessingOutputConfig")
    outputs = config.get("Outputs") if isinstance(config, dict) else None
    entries = outputs if isinstance(outputs, list) else []
    output_names = [str(entry.get("OutputName")) for entry in entries if isinstance(entry, dict)]
    for index, file in enumerate(step.get("PropertyFiles") or []):
        place = member_path(f"{path}.PropertyFiles", index)
        for needed in ("PropertyFileName", "OutputName", "FilePath"):
            if not isinstance(file.get(needed), str):
                yield Finding(f"{place}.{needed}", "missing", "required", "Complete the property file.", name)
        if isinstance(file.get("OutputName"), str) and file["OutputName"] not in output_names:
            remedy = nearest_name(file["OutputName"], output_names)
            yield Finding(f"{place}.OutputName", file["OutputName"], "an output of this step", remedy, name)


def _cache_findings(cache: Any, path: str, step: str) -> Iterator[Finding]:
    if not isinstance(cache, dict) or not isinstance(cache.get("Enabled"), bool):
        yield Finding(f"{path}.Enabled", as_text(cache), "true or false", "Correct it.", step)
        return
    yield from _unknown_members(cache, path, ("Enabled", "ExpireAfter"), step)
    if "ExpireAfter" in cache:
        expiry = cache["ExpireAfter"]
        if not isinstance(expiry, str) or duration_seconds(expiry) is None:
            limit = "an ISO 8601 duration such as P30D"
            yield Finding(f"{path}.ExpireAfter", as_text(expiry), limit, "Correct it.", step)


def _retry_findings(policy: Any, path: str, step: str, kind: str) -> Iterator[Finding]:
    """A retry policy: which errors, how often or for how long, and with which waits between."""
    known = (*SERVICE_ERRORS, *(JOB_ERRORS if kind in JOB_TYPES else ()))
    for index, error in enumerate(policy.get("ExceptionType") or []):
        if error not in known:
            limit = f"one of {', '.join(known)}"
            place = member_path(f"{path}.ExceptionType", index)
            yield Finding(place, as_text(error), limit, nearest_name(str(error), known), step)
    if not policy.get("ExceptionType"):
        yield Finding(f"{path}.ExceptionType", "missing", f"some of {', '.join(known)}", "Name the errors.", step)
    attempts, minutes = policy.get("MaxAttempts"), policy.get("ExpireAfterMin")
    if attempts is not None and minutes is not None:
        yield Finding(path, "MaxAttempts and ExpireAfterMin", "one of them", "Take one of them out.", step)
    for name, value, low, high in (
        ("MaxAttempts", attempts, 1, MAX_RETRY_ATTEMPTS),
        ("ExpireAfterMin", minutes, 0, MAX_RETRY_MINUTES),
        ("IntervalSeconds", policy.get("IntervalSeconds"), 0, math.inf),
        ("BackoffRate", policy.get("BackoffRate"), 0, math.inf),
    ):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and (not is_number or not low <= value <= high):
            limit = f"a number from {low}" + (f" to {high}" if high < math.inf else "")
            yield Finding(f"{path}.{name}", as_text(value), limit, "Correct it.", step)
