"""What of a step this machine cannot run, told by the step's name and the member at fault before anything runs.

The service has many ways to bring data to a job and to take it away. Those that come down to files in a folder run
here; streams, databases and file systems of an account do not.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from pipeline.conditions import CONDITION_TYPES, walk_conditions
from pipeline.local.cache import duration_seconds
from pipeline.references import reference_kind
from pipeline.step_graph import Node
from steps.contract import ConfigError, nearest_name

CONTAINER_ROOT = PurePosixPath("/opt/ml")
ELSEWHERE = "Run this definition on SageMaker."
# Names that become names of folders here.
_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
REQUIRED = {
    "Processing": ("AppSpecification.ImageUri", "ProcessingResources.ClusterConfig.InstanceCount"),
    "Training": ("AlgorithmSpecification.TrainingImage", "ResourceConfig.InstanceCount",
                 "OutputDataConfig.S3OutputPath"),
    "Condition": ("Conditions",),
    "RegisterModel": ("InferenceSpecification.Containers",),
}  # fmt: skip
# Members that change what a job does in a way that has no counterpart here.
REFUSED = {
    "Training": ("AlgorithmSpecification.AlgorithmName", "ResourceConfig.InstanceGroups", "ServerlessJobConfig",
                 "DebugRuleConfigurations", "ProfilerRuleConfigurations"),
}  # fmt: skip


def check_steps(graph: Mapping[str, Node]) -> None:
    """Raises ConfigError for the first thing that the local executor does not do."""
    for node in graph.values():
        _check_name(f"step {node.name}", node.name)
        for path in REFUSED.get(node.type, ()):
            if _member(node.arguments, path) is not None:
                raise ConfigError(f"{node.name}, {path}", "is not run here", remedy=ELSEWHERE)
        for path in REQUIRED.get(node.type, ()):
            if _member(node.arguments, path) is None:
                raise ConfigError(f"{node.name}, {path}", "is not given", remedy="Complete the definition.")
        if node.type == "Processing":
            _check_processing(node)
        elif node.type == "Training":
            _check_training(node)
        elif node.type == "Condition":
            _check_conditions(node)
        elif node.type == "RegisterModel":
            _check_registration(node)
        _check_expiry(node)
    _check_writers(graph)


def _member(arguments: Mapping[str, Any], path: str) -> Any:
    value: Any = arguments
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _check_name(subject: str, name: Any) -> None:
    if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name):
        limit = "letters, digits and _.:- as it names a folder"
        raise ConfigError(subject, repr(name), limit=limit, remedy="Rename it.")


def _check_one_of(subject: str, holder: Mapping[str, Any], member: str, allowed: tuple[str, ...]) -> None:
    """Raises ConfigError where a member is given and has none of the values that run here."""
    value = holder.get(member)
    if value is not None and value not in allowed:
        shown = value if isinstance(value, str) else json.dumps(value)
        raise ConfigError(f"{subject}, {member}", shown, limit=" or ".join(allowed), remedy=ELSEWHERE)


def _check_processing(node: Node) -> None:
    inputs = node.arguments.get("ProcessingInputs", [])
    for entry in inputs:
        subject = f"{node.name}, input {entry['InputName']}"
        _check_name(subject, entry["InputName"])
        source = entry.get("S3Input")
        if source is None:
            held = entry.get("DatasetDefinition", {})
            kind = next((name for name in held if name.endswith("DatasetDefinition")), "no S3Input")
            raise ConfigError(subject, kind, limit="S3Input", remedy="Export the data to files first.")
        _check_one_of(subject, source, "S3DataType", ("S3Prefix", "ManifestFile"))
        _check_one_of(subject, source, "S3InputMode", ("File",))
        _check_one_of(subject, source, "S3CompressionType", ("None",))
        _check_app_managed(subject, entry)
        _check_local_path(subject, source.get("LocalPath"))
    _check_distinct(node, "input", [entry["InputName"] for entry in inputs])
    paths = [entry["S3Input"].get("LocalPath") for entry in inputs]
    _check_distinct(node, "input path", [path for path in paths if isinstance(path, str)])
    outputs = node.arguments.get("ProcessingOutputConfig", {}).get("Outputs", [])
    for entry in outputs:
        subject = f"{node.name}, output {entry['OutputName']}"
        _check_name(subject, entry["OutputName"])
        if "S3Output" not in entry:
            kind = "FeatureStoreOutput" if "FeatureStoreOutput" in entry else "no S3Output"
            raise ConfigError(subject, kind, limit="S3Output", remedy=ELSEWHERE)
        _check_app_managed(subject, entry)
        _check_one_of(subject, entry["S3Output"], "S3UploadMode", ("EndOfJob", "Continuous"))
        if "LocalPath" not in entry["S3Output"]:
            raise ConfigError(subject, "no LocalPath", limit=f"below {CONTAINER_ROOT}", remedy="Name its folder.")
        _check_local_path(subject, entry["S3Output"]["LocalPath"])
    names = [entry["OutputName"] for entry in outputs]
    _check_distinct(node, "output", names)
    for file in node.definition.get("PropertyFiles", []):
        subject = f"{node.name}, property file {file['PropertyFileName']}"
        if file["OutputName"] not in names:
            raise ConfigError(
                subject, f"of output {file['OutputName']}", remedy=nearest_name(file["OutputName"], names)
            )
        if ".." in PurePosixPath(file["FilePath"]).parts or file["FilePath"].startswith("/"):
            raise ConfigError(subject, file["FilePath"], limit="a path inside its output", remedy="Correct the path.")


def _check_training(node: Node) -> None:
    algorithm = node.arguments["AlgorithmSpecification"]
    _check_one_of(node.name, algorithm, "TrainingInputMode", ("File", "FastFile"))
    _check_one_of(node.name, node.arguments["OutputDataConfig"], "CompressionType", ("NONE", "GZIP"))
    channels = node.arguments.get("InputDataConfig", [])
    for channel in channels:
        subject = f"{node.name}, input {channel['ChannelName']}"
        _check_name(subject, channel["ChannelName"])
        sources = channel.get("DataSource", {})
        if "S3DataSource" not in sources:
            other = next(iter(sources), "no DataSource")
            kind = sources.get(other, {}).get("FileSystemType", other)
            raise ConfigError(subject, kind, limit="S3DataSource", remedy=ELSEWHERE)
        _check_one_of(subject, sources["S3DataSource"], "S3DataType", ("S3Prefix", "ManifestFile"))
        _check_one_of(subject, channel, "InputMode", ("File", "FastFile"))
        _check_one_of(subject, channel, "CompressionType", ("None",))
        _check_one_of(subject, channel, "RecordWrapperType", ("None",))
    _check_distinct(node, "input", [channel["ChannelName"] for channel in channels])
    for name in ("CheckpointConfig", "TensorBoardOutputConfig"):
        _check_local_path(f"{node.name}, {name}", node.arguments.get(name, {}).get("LocalPath"))
    for metric in algorithm.get("MetricDefinitions", []):
        subject = f"{node.name}, metric {metric['Name']}"
        try:
            groups = re.compile(metric["Regex"]).groups
        except re.error as error:
            raise ConfigError(subject, f"{metric['Regex']} ({error})", remedy="Correct the expression.") from error
        if groups < 1:
            raise ConfigError(subject, metric["Regex"], limit="a group for the number", remedy="Put it in parentheses.")


def _check_conditions(node: Node) -> None:
    for condition in walk_conditions(node.arguments["Conditions"]):
        if condition["Type"] not in CONDITION_TYPES:
            remedy = nearest_name(condition["Type"], CONDITION_TYPES)
            raise ConfigError(node.name, f"condition {condition['Type']}", remedy=remedy)
        if condition["Type"] == "In" and not isinstance(condition["Values"], list):
            raise ConfigError(f"{node.name}, condition In", json.dumps(condition["Values"]), limit="a list",
                              remedy="List its values.")  # fmt: skip


def _check_registration(node: Node) -> None:
    """The local registry keeps one model a version."""
    containers = node.arguments["InferenceSpecification"]["Containers"]
    if len(containers) != 1:
        subject = f"{node.name}, InferenceSpecification.Containers"
        raise ConfigError(subject, f"{len(containers)} containers", limit="1", remedy=ELSEWHERE)
    if not any(_member(containers[0], path) for path in ("ModelDataUrl", "ModelDataSource.S3DataSource.S3Uri")):
        raise ConfigError(node.name, "no model data in its container", remedy="Give it a ModelDataSource.")


def _check_expiry(node: Node) -> None:
    lasts = node.definition.get("CacheConfig", {}).get("ExpireAfter")
    if lasts is not None and (not isinstance(lasts, str) or duration_seconds(lasts) is None):
        limit = "a duration such as P30D, 30d or T12H"
        raise ConfigError(f"{node.name}, CacheConfig.ExpireAfter", lasts, limit=limit, remedy="Write it as P30D.")


def _check_app_managed(subject: str, entry: Mapping[str, Any]) -> None:
    if entry.get("AppManaged", False) is not False:
        remedy = "Let the service carry the files."
        raise ConfigError(f"{subject}, AppManaged", "true", limit="false", remedy=remedy)


def _check_local_path(subject: str, path: Any) -> None:
    """Raises ConfigError for a path outside of /opt/ml; one that only a run knows is checked then."""
    if path is None or reference_kind(path):
        return
    place = PurePosixPath(path)
    if not place.is_relative_to(CONTAINER_ROOT) or ".." in place.parts:
        remedy = f"Place inputs and outputs below {CONTAINER_ROOT}."
        raise ConfigError(f"{subject}, LocalPath", path, limit=f"below {CONTAINER_ROOT}", remedy=remedy)


def _check_distinct(node: Node, kind: str, values: list[str]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ConfigError(f"{node.name}, {kind}", twice[0], limit="one of each", remedy="Give each its own.")


def _check_writers(graph: Mapping[str, Node]) -> None:
    """Raises ConfigError where two steps write to one URI: which files a reader finds there would be chance."""
    writers: dict[str, tuple[Node, str]] = {}
    for node in graph.values():
        if node.type != "Processing":
            continue
        for name, uri in _output_uris(node):
            key = json.dumps(uri, sort_keys=True)
            other, other_name = writers.setdefault(key, (node, name))
            if (other.name, other_name) != (node.name, name) and not _exclusive(node, other, graph):
                shown = uri if isinstance(uri, str) else f"the URI of {other.name}, output {other_name}"
                raise ConfigError(
                    f"{node.name}, output {name}", shown, limit=f"one writer; {other.name} writes there",
                    remedy="Give each output its own URI.",
                )  # fmt: skip


def _output_uris(node: Node) -> Iterator[tuple[str, Any]]:
    for entry in node.arguments.get("ProcessingOutputConfig", {}).get("Outputs", []):
        yield entry["OutputName"], entry["S3Output"]["S3Uri"]


def _exclusive(one: Node, other: Node, graph: Mapping[str, Node]) -> bool:
    """Whether two steps stand in opposite branches of one condition, so that only one of them runs."""
    taken = dict(_branches(other, graph))
    return any(taken.get(condition, outcome) != outcome for condition, outcome in _branches(one, graph))


def _branches(node: Node, graph: Mapping[str, Node]) -> Iterator[tuple[str, bool]]:
    while node.branch is not None:
        yield node.branch
        node = graph[node.branch[0]]
