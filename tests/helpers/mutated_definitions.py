"""Mistakes put into a good definition, one at a time, each with the JSON path where it was made."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.references import member_path, reference_kind
from pipeline.service_shapes import OPERATIONS, service_model


@dataclass(frozen=True)
class Mutation:
    """One mistake. path: where it was made. text: the definition with it."""

    kind: str
    path: str
    text: str


@dataclass(frozen=True)
class Leaf:
    """A place among a step's arguments with its shape. keys: names and positions from the definition's root."""

    keys: tuple[str | int, ...]
    shape: Any
    value: Any
    required: bool

    @property
    def path(self) -> str:
        return json_path(self.keys)


def shaped_places(definition: dict[str, Any]) -> list[Leaf]:
    """Every literal and every structure among the arguments of jobs and model packages, with the service's shape."""
    found: list[Leaf] = []
    for keys, step in _steps(definition["Steps"], ("Steps",)):
        if step["Type"] in OPERATIONS:
            operation, _ = OPERATIONS[step["Type"]]
            shape = service_model().operation_model(operation).input_shape
            found += _places(shape, step["Arguments"], (*keys, "Arguments"), required=False)
    return found


def _steps(steps: list[Any], keys: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    for index, step in enumerate(steps):
        yield (*keys, index), step
        for branch in ("IfSteps", "ElseSteps"):
            inner = step.get("Arguments", {}).get(branch, []) if step["Type"] == "Condition" else []
            yield from _steps(inner, (*keys, index, "Arguments", branch))


def _places(shape: Any, value: Any, keys: tuple[str | int, ...], *, required: bool) -> Iterator[Leaf]:
    if reference_kind(value) is not None:
        return
    yield Leaf(keys, shape, value, required)
    if shape.type_name == "structure":
        for name, item in value.items():
            inner = shape.members[name]
            yield from _places(inner, item, (*keys, name), required=name in shape.required_members)
    elif shape.type_name == "list":
        for index, item in enumerate(value):
            yield from _places(shape.member, item, (*keys, index), required=False)
    elif shape.type_name == "map":
        for name, item in value.items():
            yield from _places(shape.value, item, (*keys, name), required=False)


def changed(definition: dict[str, Any], keys: tuple[str | int, ...], value: Any) -> str:
    """The definition's text with another value at a place; `DROPPED` takes the member out."""
    altered = copy.deepcopy(definition)
    holder: Any = altered
    for key in keys[:-1]:
        holder = holder[key]
    if value is DROPPED:
        del holder[keys[-1]]
    else:
        holder[keys[-1]] = value
    return json.dumps(altered)


DROPPED = object()


def dropped_members(definition: dict[str, Any]) -> list[Mutation]:
    places = [leaf for leaf in shaped_places(definition) if leaf.required]
    return [Mutation("dropped", leaf.path, changed(definition, leaf.keys, DROPPED)) for leaf in places]


def wrong_types(definition: dict[str, Any]) -> list[Mutation]:
    """A number for a text, a text for a number, a list for a structure, a structure for a list."""
    others: dict[str, Any] = {
        "string": 7, "integer": "7", "long": "7", "float": "x", "double": "x", "boolean": "yes", "structure": [],
        "list": {}, "map": [],
    }  # fmt: skip
    places = [leaf for leaf in shaped_places(definition) if len(leaf.keys) > 3]
    return [
        Mutation("type", leaf.path, changed(definition, leaf.keys, others[leaf.shape.type_name])) for leaf in places
    ]


def wrong_enums(definition: dict[str, Any]) -> list[Mutation]:
    """A value one letter off, as a typing error is."""
    places = [leaf for leaf in shaped_places(definition) if getattr(leaf.shape, "enum", None)]
    return [
        Mutation("enum", leaf.path, changed(definition, leaf.keys, f"{leaf.value}x"))
        for leaf in places
        if f"{leaf.value}x" not in leaf.shape.enum
    ]


def beyond_limits(definition: dict[str, Any]) -> list[Mutation]:
    """Texts, numbers, lists and maps beyond the largest and below the smallest that the service takes."""
    made: list[tuple[Leaf, Any]] = []
    for leaf in shaped_places(definition):
        low, high = leaf.shape.metadata.get("min"), leaf.shape.metadata.get("max")
        kind = leaf.shape.type_name
        if kind in ("integer", "long"):
            made += [
                (leaf, bound)
                for bound in ((high or 0) + 1 if high else None, low - 1 if low else None)
                if bound is not None
            ]
        elif kind == "string" and high and high < 5_000:
            made.append((leaf, leaf.value + "a" * (high + 1 - len(leaf.value))))
        elif kind == "list" and high and high < 200 and leaf.value:
            made.append((leaf, [leaf.value[0]] * (high + 1)))
        elif kind == "map" and high and high < 200:
            made.append((leaf, {f"name{index}": "x" for index in range(high + 1)}))
    return [Mutation("limit", leaf.path, changed(definition, leaf.keys, value)) for leaf, value in made]


def wrong_patterns(definition: dict[str, Any]) -> list[Mutation]:
    """A text with what its pattern has no place for."""
    from pipeline.service_shapes import compiled_pattern

    made = []
    for leaf in shaped_places(definition):
        pattern = leaf.shape.metadata.get("pattern") if leaf.shape.type_name == "string" else None
        for value in (f"{leaf.value}\n!", f" {leaf.value} ", "§", ""):
            if pattern and not leaf.shape.enum and not compiled_pattern(pattern).fullmatch(value):
                made.append(Mutation("pattern", leaf.path, changed(definition, leaf.keys, value)))
                break
    return made


def dangling_references(definition: dict[str, Any]) -> list[Mutation]:
    """Each reference with its last name misspelt: of a parameter, a step, an output, a property, a property file."""
    made = []
    for keys, value in _references(definition["Steps"], ("Steps",)):
        reference = value["Get"]
        target = f"{reference[:-2]}x']" if reference.endswith("']") else f"{reference}x"
        path = json_path(keys)
        made.append(Mutation("reference", path, changed(definition, keys, {"Get": target})))
        if reference.startswith("Steps."):
            parts = reference.split(".")
            other = ".".join([parts[0], f"{parts[1]}x", *parts[2:]])
            made.append(Mutation("reference", path, changed(definition, keys, {"Get": other})))
    return made


def _references(value: Any, keys: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    if reference_kind(value) == "Get":
        yield keys, value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _references(item, (*keys, key))


KINDS: dict[str, tuple[Callable[[dict[str, Any]], list[Mutation]], int]] = {
    "dropped": (dropped_members, 35),
    "type": (wrong_types, 35),
    "enum": (wrong_enums, 25),
    "limit": (beyond_limits, 35),
    "pattern": (wrong_patterns, 20),
    "reference": (dangling_references, 25),
}


def seeded_mutations(definition: dict[str, Any], seed: int) -> list[Mutation]:
    """So many of each kind as KINDS says, drawn from all that can be made."""
    chance = random.Random(seed)
    drawn = []
    for make, count in KINDS.values():
        made = make(definition)
        drawn += chance.sample(made, min(count, len(made)))
    return drawn


def disagreements(definition: dict[str, Any]) -> list[Mutation]:
    """Members that do not agree with others, written by hand for the DAG of langadapt."""
    steps = {step["Name"]: step for _, step in _steps(definition["Steps"], ("Steps",))}
    places = {step["Name"]: keys for keys, step in _steps(definition["Steps"], ("Steps",))}
    prepare, pretraining, evaluate = "PrepareCorpus", "ContinuedPretraining", "Evaluate"

    def at(step: str, *keys: str | int) -> tuple[str | int, ...]:
        return (*places[step], *keys)

    def job(step: str, *keys: str | int) -> tuple[str | int, ...]:
        return at(step, "Arguments", *keys)

    volume = ("ProcessingResources", "ClusterConfig")
    inputs = steps[prepare]["Arguments"]["ProcessingInputs"]
    outputs = ("ProcessingOutputConfig", "Outputs", 0, "S3Output", "S3Uri")
    container = ("InferenceSpecification", "Containers", 0)
    execution = {"Get": "Execution.PipelineExecutionId"}
    instance_types = [entry["Name"] for entry in definition["Parameters"]].index("EvaluateInstanceType")
    first = definition["Parameters"][0]
    made: list[tuple[tuple[str | int, ...], Any, tuple[str | int, ...] | None]] = [
        # Where it is changed, to what, and where that is told, if elsewhere.
        (job(pretraining, "EnableManagedSpotTraining"), True,
         job(pretraining, "StoppingCondition", "MaxWaitTimeInSeconds")),
        (job(pretraining, "StoppingCondition", "MaxWaitTimeInSeconds"), 400_000, None),
        (job(pretraining, "ResourceConfig", "VolumeKmsKeyId"), "alias/key", None),
        (job(evaluate, *volume, "VolumeKmsKeyId"), "alias/key", None),
        (job(pretraining, "StoppingCondition"), DROPPED, None),
        (job(pretraining, "ResourceConfig"), DROPPED, None),
        (job("FineTune", "AlgorithmSpecification"), DROPPED, None),
        (job("FineTune", "HyperParameters", "epochs"), {"Get": "Parameters.MaxBitsPerByte"}, None),
        (job(prepare, "AppSpecification", "ContainerArguments", 1), {"Get": "Parameters.AllowConcurrent"}, None),
        (job(prepare, "Environment"), {"RUN": execution}, job(prepare, "Environment", "RUN")),
        (job(pretraining, "HyperParameters", "run"), execution, None),
        (job(pretraining, "CheckpointConfig", "S3Uri"), execution, None),
        (job(prepare, "ProcessingInputs", 1, "S3Input", "S3Uri"), "s3://b/code-2026-01-02-03-04-05-678/x", None),
        (job(prepare, "ProcessingInputs", 1, "S3Input", "S3Uri"), "s3://bucket/code/latest.zip", None),
        (job(prepare, "ProcessingInputs", 1), inputs[0], job(prepare, "ProcessingInputs", 1, "InputName")),
        (job(prepare, "ProcessingInputs", 0, "S3Input", "LocalPath"), "/data/corpus", None),
        (job(prepare, "ProcessingInputs", 0, "S3Input", "LocalPath"), "/opt/ml/../corpus", None),
        (job(pretraining, "CheckpointConfig", "LocalPath"), "/checkpoints", None),
        (job("TrainTokenizer", *outputs), _at(steps[prepare]["Arguments"], outputs), None),
        (job("FineTune", "CheckpointConfig", "S3Uri"),
         steps[pretraining]["Arguments"]["CheckpointConfig"]["S3Uri"], None),
        (job("RegisterModel", *container, "ModelDataSource", "S3DataSource", "S3Uri"), "s3://bucket/model", None),
        (job("RegisterModel", *container, "ModelDataSource", "S3DataSource", "CompressionType"), "Gzip", None),
        (job("RegisterModel", *container, "Image"), "somebody/serving:latest", None),
        (job(prepare, "AppSpecification", "ImageUri"), "somebody/steps:1", None),
        (job("QualityGate", "Conditions", 0, "RightValue"), "0.7", None),
        (job("QualityGate", "ElseSteps"), [], None),
        (job("QualityGate", "Conditions"), [], None),
        (job("QualityGate", "Conditions", 0, "LeftValue", "Std:JsonGet", "Path"), {"Get": "Parameters.CorpusUri"},
         None),
        (job("QualityGate", "Conditions", 0, "Type"), "LessThen", None),
        (job("GateClosed", "ErrorMessage"), "x" * 3_073, None),
        (at(prepare, "DependsOn"), ["Evaluate"], at(prepare, "DependsOn", 0)),
        (at(prepare, "DependsOn"), ["PrepareCorpora"], at(prepare, "DependsOn", 0)),
        (at(evaluate, "PropertyFiles", 0, "OutputName"), "report", None),
        (at(pretraining, "PropertyFiles"), [], None),
        (at(prepare, "CacheConfig", "ExpireAfter"), "thirty days", None),
        (at(prepare, "RetryPolicies", 0, "ExceptionType", 0), "Step.SERVICE_FAULTS", None),
        (at(prepare, "RetryPolicies", 0, "MaxAttempts"), 21, None),
        (at(prepare, "RetryPolicies", 0, "ExpireAfterMin"), 10, at(prepare, "RetryPolicies", 0)),
        (at(prepare, "DisplayName"), "x" * 257, None),
        (at(prepare, "Description"), "x" * 3_073, None),
        (at("ResolveInputs", "FunctionArn"), DROPPED, None),
        (at(evaluate, "Name"), prepare, None),
        (at(evaluate, "Type"), "Procesing", None),
        (("Parameters", 0, "DefaultValue"), DROPPED, None),
        (("Parameters", 0, "Type"), "Text", None),
        (("Parameters", 0, "DefaultValue"), 3, None),
        (("Parameters", 0, "EnumValues"), ["s3://other/"], ("Parameters", 0, "DefaultValue")),
        (("Parameters", 1, "Name"), first["Name"], None),
        (("Parameters", instance_types, "EnumValues"),
         [definition["Parameters"][instance_types]["DefaultValue"], "ml.p5.48xlarge"],
         job(evaluate, *volume, "InstanceType")),
        (("Version",), "2021-01-01", None),
        (("Steps",), [], None),
    ]  # fmt: skip
    return [
        Mutation("disagreement", json_path(told or keys), changed(definition, keys, value))
        for keys, value, told in made
    ]


def _at(value: Any, keys: tuple[str | int, ...]) -> Any:
    for key in keys:
        value = value[key]
    return value


def json_path(keys: tuple[str | int, ...]) -> str:
    path = "$"
    for key in keys:
        path = member_path(path, key)
    return path
