"""Rules for jobs and model packages that the service's shapes do not hold: members that must agree with each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pipeline.instances import has_local_storage
from pipeline.lint.finding import Finding
from pipeline.lint.steps import ListedStep
from pipeline.references import member_path, reference_kind
from pipeline.service_shapes import allowed_values

CONTAINER_ROOT = PurePosixPath("/opt/ml")
IMAGE_BY_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
# Without ServerlessJobConfig the service asks for these, whatever its shape says.
NEEDED_FOR_TRAINING = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
# What the service takes beyond its shapes, by JSON path below the arguments: the smallest and the largest.
NUMBERS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "Processing": {
        "ProcessingResources.ClusterConfig.InstanceCount": (1, 100),
        "ProcessingResources.ClusterConfig.VolumeSizeInGB": (1, 16_384),
        "StoppingCondition.MaxRuntimeInSeconds": (60, 432_000),
    },
    "Training": {
        "ResourceConfig.InstanceCount": (1, 1_000),
        "ResourceConfig.VolumeSizeInGB": (1, 16_384),
        "StoppingCondition.MaxRuntimeInSeconds": (1, 2_419_200),
        "StoppingCondition.MaxWaitTimeInSeconds": (1, 2_419_200),
    },
}
RESOURCES = {
    "Processing": ("ProcessingResources", "ClusterConfig"),
    "Training": ("ResourceConfig",),
}


def job_findings(
    step: ListedStep, resolved: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """What of a step's arguments the service would refuse although each member has its shape.

    resolved: its arguments with samples for references. parameters: their declarations by name.
    """
    arguments = step.own_arguments
    if step.type in (*RESOURCES, "RegisterModel"):
        yield from _text_findings(step, arguments, parameters)
    if step.type in RESOURCES:
        yield from _instance_findings(step, arguments, parameters)
        yield from _place_findings(step, resolved)
        yield from _number_findings(step, resolved)
    if step.type == "Training":
        yield from _training_findings(step, resolved)
    if step.type in (*RESOURCES, "RegisterModel"):
        yield from _image_findings(step, resolved)
    if step.type == "RegisterModel":
        yield from _model_folder_findings(step, resolved)


def _structure(holder: Any, *names: str) -> dict[str, Any]:
    """The structure at a path of members, empty where there is none."""
    for name in names:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return holder if isinstance(holder, dict) else {}


def _declaration(value: Any, parameters: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The declaration of the parameter that a value refers to, empty where it refers to none."""
    if reference_kind(value) != "Get" or not value["Get"].startswith("Parameters."):
        return {}
    return parameters.get(value["Get"].removeprefix("Parameters."), {})


def _list(holder: Any, *names: str) -> list[Any]:
    found = _structure(holder, *names[:-1]).get(names[-1])
    return found if isinstance(found, list) else []


# --- what containers are given ----------------------------------------------------------------------------------------


def _text_findings(
    step: ListedStep, arguments: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Numbers and booleans where the service takes texts only: refused when the step starts, hours later."""
    base = f"{step.path}.Arguments"
    texts = {
        member_path(f"{base}.HyperParameters", name): value
        for name, value in _structure(arguments, "HyperParameters").items()
    }
    for index, value in enumerate(_list(arguments, "AppSpecification", "ContainerArguments")):
        texts[member_path(f"{base}.AppSpecification.ContainerArguments", index)] = value
    for holder in ("Environment", "CustomerMetadataProperties"):
        for name, value in _structure(arguments, holder).items():
            texts[member_path(f"{base}.{holder}", name)] = value
    for path, value in texts.items():
        is_number = reference_kind(value) == "Std:JsonGet"
        kind = "Std:JsonGet" if is_number else str(_declaration(value, parameters).get("Type", "String"))
        if kind != "String":
            yield Finding(path, f"a bare {kind} reference", "a text", "Use .to_string().", step.name)


def _place_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    """Names and places of a job's inputs and outputs: each once, and below /opt/ml."""
    base = f"{step.path}.Arguments"
    entries = [
        *_places(resolved, f"{base}.ProcessingInputs", ("ProcessingInputs",), "InputName", "S3Input"),
        *_places(
            resolved, f"{base}.ProcessingOutputConfig.Outputs", ("ProcessingOutputConfig", "Outputs"), "OutputName",
            "S3Output",
        ),
        *_places(resolved, f"{base}.InputDataConfig", ("InputDataConfig",), "ChannelName", ""),
    ]  # fmt: skip
    names = Counter(name for _, name, _ in entries)
    places = Counter(place for _, _, place in entries if place)
    for (name_path, place_path), name, place in entries:
        if names[name] > 1:
            yield Finding(name_path, f"{name} stands {names[name]} times", "once", "Rename the others.", step.name)
        if place and (not PurePosixPath(place).is_relative_to(CONTAINER_ROOT) or ".." in PurePosixPath(place).parts):
            yield Finding(place_path, place, f"below {CONTAINER_ROOT}", "Place it there.", step.name)
        if place and places[place] > 1:
            yield Finding(place_path, f"{place} is used {places[place]} times", "once", "Move the others.", step.name)
    checkpoints = _structure(resolved, "CheckpointConfig").get("LocalPath")
    if isinstance(checkpoints, str) and not PurePosixPath(checkpoints).is_relative_to(CONTAINER_ROOT):
        where = f"{base}.CheckpointConfig.LocalPath"
        yield Finding(where, checkpoints, f"below {CONTAINER_ROOT}", "Place it there.", step.name)


def _places(
    resolved: Mapping[str, Any], path: str, names: Sequence[str], name_member: str, source_member: str
) -> Iterator[tuple[tuple[str, str], str, str]]:
    """Each entry as its two paths (of its name, of its local path), its name and its local path, empty for none."""
    for index, entry in enumerate(_list(resolved, *names)):
        if not isinstance(entry, dict) or not isinstance(entry.get(name_member), str):
            continue
        own = member_path(path, index)
        place = _structure(entry, source_member).get("LocalPath") if source_member else None
        paths = f"{own}.{name_member}", f"{own}.{source_member}.LocalPath"
        yield paths, entry[name_member], place if isinstance(place, str) else ""


# --- instances, times, checkpoints ------------------------------------------------------------------------------------


def _instance_findings(
    step: ListedStep, arguments: Mapping[str, Any], parameters: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Instance types: every value that a parameter may have must exist for the job, and go with the volume's key."""
    names = RESOURCES[step.type]
    resources = _structure(arguments, *names)
    base = ".".join([f"{step.path}.Arguments", *names])
    given = resources.get("InstanceType")
    declared = _declaration(given, parameters)
    default = declared.get("DefaultValue")
    types = [name for name in declared.get("EnumValues") or [default or given] if isinstance(name, str)]
    known = allowed_values("ProcessingInstanceType" if step.type == "Processing" else "TrainingInstanceType")
    for name in types if declared else []:
        # The default, as any literal, is held against the shape.
        if name not in known and name != default:
            limit = f"an instance type of {step.type} jobs"
            yield Finding(f"{base}.InstanceType", name, limit, "Take it out of the parameter's EnumValues.", step.name)
    local = [name for name in types if name in known and has_local_storage(name)]
    if "VolumeKmsKeyId" in resources and local:
        remedy = "Leave the key out: local disks are encrypted by the instance."
        yield Finding(f"{base}.VolumeKmsKeyId", "given", f"none with {local[0]}", remedy, step.name)


def _number_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    """Counts, sizes and times that the shapes leave open."""
    for path, (low, high) in NUMBERS[step.type].items():
        *holders, name = path.split(".")
        number = _structure(resolved, *holders).get(name)
        if isinstance(number, int) and not isinstance(number, bool) and not low <= number <= high:
            place = f"{step.path}.Arguments.{path}"
            yield Finding(place, str(number), f"{low} to {high}", "Correct it.", step.name)


def _training_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    base = f"{step.path}.Arguments"
    if "ServerlessJobConfig" not in resolved:
        for name in NEEDED_FOR_TRAINING:
            if name not in resolved:
                yield Finding(f"{base}.{name}", "missing", "required", "Give it with each training job.", step.name)
    limits, path = _structure(resolved, "StoppingCondition"), f"{base}.StoppingCondition.MaxWaitTimeInSeconds"
    wait, longest = limits.get("MaxWaitTimeInSeconds"), limits.get("MaxRuntimeInSeconds", 0)
    if not resolved.get("EnableManagedSpotTraining"):
        if wait is not None:
            remedy = "Leave it out, or ask for spot capacity."
            yield Finding(path, str(wait), "none without EnableManagedSpotTraining", remedy, step.name)
        return
    if wait is None or (isinstance(wait, int) and isinstance(longest, int) and wait < longest):
        limit = f"at least MaxRuntimeInSeconds {longest}"
        value = "missing" if wait is None else str(wait)
        yield Finding(path, value, limit, "It counts training and waiting together.", step.name)
    if not _structure(resolved, "CheckpointConfig"):
        remedy = "Give it: an interrupted job begins anew without checkpoints."
        yield Finding(f"{base}.CheckpointConfig", "missing", "required with spot capacity", remedy, step.name)


# --- images and models ------------------------------------------------------------------------------------------------


def _containers(resolved: Mapping[str, Any]) -> list[Any]:
    return _list(resolved, "InferenceSpecification", "Containers")


def _image_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    """A tag may come to mean another image: the step cache would not notice, and a model's provenance would be gone."""
    images = [
        ("AppSpecification.ImageUri", _structure(resolved, "AppSpecification").get("ImageUri")),
        ("AlgorithmSpecification.TrainingImage", _structure(resolved, "AlgorithmSpecification").get("TrainingImage")),
    ]
    for index, container in enumerate(_containers(resolved)):
        images.append((f"InferenceSpecification.Containers[{index}].Image", _structure(container).get("Image")))
    for path, image in images:
        if isinstance(image, str) and not IMAGE_BY_DIGEST.fullmatch(image):
            limit = "ends in @sha256:<64 hexadecimal digits>"
            remedy = "Name the image by its digest."
            yield Finding(f"{step.path}.Arguments.{path}", image, limit, remedy, step.name)


def _model_folder_findings(step: ListedStep, resolved: Mapping[str, Any]) -> Iterator[Finding]:
    """The folder of an uncompressed model is a prefix: without the final slash its siblings would be the model too."""
    for index, container in enumerate(_containers(resolved)):
        source = _structure(container, "ModelDataSource", "S3DataSource")
        path = f"{step.path}.Arguments.InferenceSpecification.Containers[{index}].ModelDataSource.S3DataSource"
        uri = source.get("S3Uri")
        if source.get("S3DataType") == "S3Prefix" and isinstance(uri, str) and not uri.endswith("/"):
            yield Finding(f"{path}.S3Uri", uri, "a final /", "Join the parts with a / at the end.", step.name)
        if source.get("S3DataType") == "S3Prefix" and source.get("CompressionType") == "Gzip":
            yield Finding(f"{path}.CompressionType", "Gzip", "None with S3Prefix",
                          "Name the archive with S3Object, or leave the model uncompressed.", step.name)  # fmt: skip
