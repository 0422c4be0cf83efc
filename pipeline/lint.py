"""Checks a compiled definition as a whole, before the service sees it: shapes, limits, references, known traps.

The definition is resolved with its parameters' defaults, sample outputs of its steps and sample job names; then each
step's arguments are held against the request that the service would make of them (pipeline/service_shapes.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.instances import has_local_storage
from pipeline.references import Scope, parameter_values, reference_kind, walk_references
from pipeline.service_shapes import shape_problems
from pipeline.step_graph import Node, build_graph
from steps.contract import ConfigError, StepError

MAX_DEFINITION_CHARACTERS = 1_048_576
MAX_PARAMETERS = 200
MAX_MESSAGE_CHARACTERS = 3_072
# The longest that the service makes up from the names of execution and step.
SAMPLE_JOB_NAME = "pipelines-abcdef012345-" + "S" * 40
SAMPLE_DIGEST = "0123456789abcdef" * 4
SAMPLE_NUMBER = 0.123456789012345678
SAMPLE_EXECUTION = {
    "PipelineExecutionId": "abcdef012345",
    "PipelineName": "pipeline",
    "PipelineArn": "arn:aws:sagemaker:us-west-2:111122223333:pipeline/pipeline",
    "PipelineExecutionArn": "arn:aws:sagemaker:us-west-2:111122223333:pipeline/pipeline/execution/abcdef012345",
    "StartDateTime": "2000-01-01T00:00:00Z",
    "CurrentDateTime": "2000-01-01T00:00:00Z",
}
IMAGE_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
# Members that the step cache compares: an execution's own values there mean that it never hits.
CACHE_KEY_MEMBERS = (
    "AppSpecification",
    "Environment",
    "ProcessingInputs",
    "AlgorithmSpecification",
    "HyperParameters",
    "InputDataConfig",
    "CheckpointConfig",
)


@dataclass(frozen=True)
class Problem:
    """One thing that the service would refuse or that would not do what it seems to: where, what, limit, remedy."""

    where: str
    value: str
    limit: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.value}; limit {self.limit}. {self.remedy}"


class SampleScope(Scope):
    """References resolve to samples where only an execution knows the value."""

    def _json_get(self, arguments: Mapping[str, Any]) -> Any:
        if "PropertyFile" in arguments:
            _, step, _, name = arguments["PropertyFile"]["Get"].split(".", 3)
            if (step, name) not in self.property_files:
                raise StepError(f"{step}.{name}", "no such property file", remedy="Declare it in PropertyFiles.")
        else:
            self.resolve(arguments["S3Uri"])
        return SAMPLE_NUMBER


def check_definition(text: str) -> None:
    """Raises ConfigError for the first problem of a definition, saying how many there are."""
    problems = lint_definition(text)
    if problems:
        first = problems[0]
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigError(first.where, first.value, limit=first.limit, remedy=f"{first.remedy}{more}")


def lint_definition(text: str) -> list[Problem]:
    """Every problem of a definition's JSON text, in the order of its steps."""
    definition = json.loads(text)
    problems = list(_size_problems(text, definition))
    problems += _parameter_problems(definition)
    try:
        graph = build_graph(definition)
        scope = SampleScope(parameter_values(definition.get("Parameters", []), {}), SAMPLE_EXECUTION)
    except ConfigError as error:
        return [
            *problems,
            Problem(error.subject, str(error.value), str(error.limit or "one that exists"), error.remedy),
        ]
    for node in graph.values():
        problems += _step_problems(node, scope, definition)
    return problems


def _size_problems(text: str, definition: Mapping[str, Any]) -> Iterator[Problem]:
    if len(text) > MAX_DEFINITION_CHARACTERS:
        limit = f"{MAX_DEFINITION_CHARACTERS} characters"
        yield Problem("definition", f"{len(text)} characters", limit, "Shorten the longest setting.")
    if (count := len(definition.get("Parameters", []))) > MAX_PARAMETERS:
        yield Problem(
            "Parameters", f"{count} parameters", f"{MAX_PARAMETERS}", "Fix some of them in the configuration."
        )


def _parameter_problems(definition: Mapping[str, Any]) -> Iterator[Problem]:
    used = {reference.get("Get") for reference in walk_references(definition["Steps"])}
    for parameter in definition.get("Parameters", []):
        name = parameter["Name"]
        if f"Parameters.{name}" not in used:
            yield Problem(f"Parameters.{name}", "used by no step", "used at least once", "Use or remove it.")
        if "DefaultValue" not in parameter:
            remedy = "Give it one: a schedule sends no parameters."
            yield Problem(f"Parameters.{name}", "no default", "a default for each", remedy)


def _step_problems(node: Node, scope: SampleScope, definition: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        own = node.arguments.get("Conditions", []) if node.type == "Condition" else node.arguments
        resolved = scope.resolve(own)
    except StepError as error:
        limit = str(error.limit or "a value that exists")
        yield Problem(f"{node.name}: {error.subject}", str(error.value), limit, error.remedy)
        return
    _note_sample_outputs(node, resolved, scope)
    for path, value, limit in shape_problems(node.type, resolved, SAMPLE_JOB_NAME):
        yield Problem(f"{node.name}.{path}", value, limit, f"Change what {path} is made from.")
    if node.type == "Fail" and len(message := resolved.get("ErrorMessage", "")) > MAX_MESSAGE_CHARACTERS:
        limit = f"{MAX_MESSAGE_CHARACTERS} characters"
        yield Problem(f"{node.name}.ErrorMessage", f"{len(message)} characters", limit, "Shorten the message.")
    yield from _typed_text_problems(node, definition)
    yield from _cache_key_problems(node)
    yield from _storage_problems(node, resolved)
    yield from _spot_problems(node, resolved)
    yield from _image_problems(node, resolved)
    yield from _model_folder_problems(node, resolved)


def _note_sample_outputs(node: Node, resolved: Any, scope: SampleScope) -> None:
    """What later steps can refer to: the request as the service describes it, or samples of a function's outputs."""
    if node.type == "Lambda":
        names = [output["OutputName"] for output in node.definition.get("OutputParameters", [])]
        scope.steps[node.name] = {"OutputParameters": {name: _sample_text(name) for name in names}}
    elif isinstance(resolved, dict):
        named = dict.fromkeys(("TrainingJobName", "ProcessingJobName"), SAMPLE_JOB_NAME)
        scope.steps[node.name] = {**resolved, **named}
    outputs = resolved.get("ProcessingOutputConfig", {}).get("Outputs", []) if isinstance(resolved, dict) else []
    for file in node.definition.get("PropertyFiles", []):
        if file["OutputName"] in [output["OutputName"] for output in outputs]:
            scope.property_files[node.name, file["PropertyFileName"]] = file["FilePath"]


def _sample_text(name: str) -> str:
    if name.endswith("_uri"):
        return "s3://langadapt-sample-bucket/langadapt/models/sample/"
    return "false" if name.endswith("_present") else SAMPLE_DIGEST


def _typed_text_problems(node: Node, definition: Mapping[str, Any]) -> Iterator[Problem]:
    """Numbers and booleans where the service takes texts only: refused when the step starts, hours later."""
    types = {f"Parameters.{parameter['Name']}": parameter["Type"] for parameter in definition.get("Parameters", [])}
    texts = dict(node.arguments.get("HyperParameters", {}))
    arguments = node.arguments.get("AppSpecification", {}).get("ContainerArguments", [])
    texts |= {f"ContainerArguments[{index}]": value for index, value in enumerate(arguments)}
    texts |= node.arguments.get("Environment", {})
    for name, value in texts.items():
        kind = types.get(value["Get"], "String") if reference_kind(value) == "Get" else "String"
        if kind != "String" or reference_kind(value) == "Std:JsonGet":
            yield Problem(f"{node.name}.{name}", f"a bare {kind} reference", "a text", "Use .to_string().")


def _cache_key_problems(node: Node) -> Iterator[Problem]:
    for member in CACHE_KEY_MEMBERS:
        for reference in walk_references(node.arguments.get(member, {})):
            if reference.get("Get", "").startswith("Execution."):
                remedy = "Leave values of one execution to output URIs."
                yield Problem(f"{node.name}.{member}", reference["Get"], "the same in each execution", remedy)


def _storage_problems(node: Node, resolved: Any) -> Iterator[Problem]:
    if node.type not in ("Processing", "Training"):
        return
    resources = resolved.get("ResourceConfig") or resolved.get("ProcessingResources", {}).get("ClusterConfig", {})
    instance_type = resources.get("InstanceType", "")
    if "VolumeKmsKeyId" in resources and has_local_storage(instance_type):
        remedy = "Leave the key out: local disks are encrypted by the instance."
        yield Problem(f"{node.name}.VolumeKmsKeyId", "given", f"none with {instance_type}", remedy)


def _spot_problems(node: Node, resolved: Any) -> Iterator[Problem]:
    """The service refuses a job on spot capacity without time to wait in, and time to wait in for any other."""
    if node.type != "Training":
        return
    limits = resolved.get("StoppingCondition", {})
    wait, subject = limits.get("MaxWaitTimeInSeconds"), f"{node.name}.StoppingCondition.MaxWaitTimeInSeconds"
    if not resolved.get("EnableManagedSpotTraining"):
        if wait is not None:
            yield Problem(subject, str(wait), "none without EnableManagedSpotTraining", "Leave it out.")
        return
    longest = limits.get("MaxRuntimeInSeconds", 0)
    if wait is None or wait < longest:
        limit = f"at least MaxRuntimeInSeconds {longest}"
        yield Problem(subject, "missing" if wait is None else str(wait), limit, "Add the time to wait to it.")


def _image_problems(node: Node, resolved: Any) -> Iterator[Problem]:
    """A tag may come to mean another image: the step cache would not notice, and a model's provenance would be gone."""
    if node.type not in ("Processing", "Training", "RegisterModel"):
        return
    containers = resolved.get("InferenceSpecification", {}).get("Containers", [])
    images = [
        ("AppSpecification.ImageUri", resolved.get("AppSpecification", {}).get("ImageUri")),
        ("AlgorithmSpecification.TrainingImage", resolved.get("AlgorithmSpecification", {}).get("TrainingImage")),
        *((f"Containers[{index}].Image", container.get("Image")) for index, container in enumerate(containers)),
    ]
    for path, image in images:
        if image is not None and not IMAGE_BY_DIGEST.fullmatch(str(image)):
            remedy = "Name the image by its digest."
            yield Problem(f"{node.name}.{path}", str(image), "ends in @sha256:<64 hexadecimal digits>", remedy)


def _model_folder_problems(node: Node, resolved: Any) -> Iterator[Problem]:
    if node.type != "RegisterModel":
        return
    for container in resolved.get("InferenceSpecification", {}).get("Containers", []):
        source = container.get("ModelDataSource", {}).get("S3DataSource", {})
        uri = source.get("S3Uri", "")
        if source.get("S3DataType") == "S3Prefix" and not uri.endswith("/"):
            yield Problem(f"{node.name}.ModelDataSource", uri, "a final /", "Join the parts with a / at the end.")
