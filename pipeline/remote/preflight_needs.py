"""What an execution of a definition will ask an account for, read from the definition and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from pipeline.local.selection import ancestors
from pipeline.references import Scope, parameter_values
from pipeline.step_graph import JOB_TYPES, Node, build_graph
from steps.contract import StepError

# Steps of one kind of quota that are tried in every combination; more of them are counted together.
MAX_COMBINED = 14


@dataclass(frozen=True)
class JobNeed:
    """One job: the instances that it takes, and the kind of quota that they count against, such as `training job`."""

    step: str
    instance_type: str
    instances: int
    usage: str


@dataclass(frozen=True)
class QuotaNeed:
    """Instances of a type that are in use at one time at most, and by which steps."""

    instance_type: str
    usage: str
    instances: int
    steps: tuple[str, ...]

    @property
    def quota_name(self) -> str:
        """As Service Quotas names it."""
        return f"{self.instance_type} for {self.usage} usage"


@dataclass(frozen=True)
class Needs:
    """data: URIs that jobs read and nothing of the execution writes, by the steps that read them."""

    quotas: tuple[QuotaNeed, ...]
    images: tuple[str, ...]
    roles: tuple[str, ...]
    functions: tuple[str, ...]
    code: tuple[str, ...]
    data: Mapping[str, tuple[str, ...]]
    buckets: tuple[str, ...]


def needs_of(definition: Mapping[str, Any], given: Mapping[str, str], max_parallel_steps: int | None) -> Needs:
    """given: values of parameters as texts, by name; the others have their defaults.

    Raises ConfigError for parameters that the definition does not have, and for a definition that is none.
    """
    known = Known(Scope(parameter_values(definition.get("Parameters") or [], given), {}))
    graph = build_graph(definition)
    jobs = [node for node in graph.values() if node.type in JOB_TYPES]
    read: dict[str, list[str]] = {}
    for node in jobs:
        for uri in known.inputs(node):
            read.setdefault(uri, []).append(node.name)
    code = {uri for uri in read if uri.endswith(".zip")}
    models = [node for node in graph.values() if node.type == "RegisterModel"]
    served = [image for node in models for image in known.served_images(node)]
    everything = {*read, *(uri for node in jobs for uri in known.outputs(node))}
    return Needs(
        quotas=tuple(quota_needs(graph, [known.job(node) for node in jobs], max_parallel_steps)),
        images=_distinct([*(known.image(node) for node in jobs), *served]),
        roles=_distinct(known.text(node.arguments.get("RoleArn")) for node in jobs),
        functions=_distinct(
            known.text(node.definition.get("FunctionArn")) for node in graph.values() if node.type == "Lambda"
        ),
        code=tuple(sorted(code)),
        data={uri: tuple(steps) for uri, steps in sorted(read.items()) if uri not in code},
        buckets=tuple(sorted({uri.removeprefix("s3://").partition("/")[0] for uri in everything})),
    )


def quota_needs(
    graph: Mapping[str, Node], jobs: Sequence[JobNeed | None], max_parallel_steps: int | None
) -> Iterator[QuotaNeed]:
    """Of each kind of quota the largest number of instances that steps which may work side by side take together."""
    above = {name: ancestors(graph, [name]) - {name} for name in graph}
    kinds: dict[tuple[str, str], list[JobNeed]] = {}
    for job in filter(None, jobs):
        kinds.setdefault((job.instance_type, job.usage), []).append(job)
    for (instance_type, usage), members in sorted(kinds.items()):
        best: Sequence[JobNeed] = members
        if len(members) <= MAX_COMBINED:
            sizes = range(1, min(len(members), max_parallel_steps or len(members)) + 1)
            together = (group for size in sizes for group in combinations(members, size) if _side_by_side(group, above))
            best = max(together, key=lambda group: sum(job.instances for job in group))
        instances = sum(job.instances for job in best)
        yield QuotaNeed(instance_type, usage, instances, tuple(job.step for job in best))


def _side_by_side(group: Sequence[JobNeed], above: Mapping[str, set[str]]) -> bool:
    """Whether none of the steps waits for another of them."""
    names = {job.step for job in group}
    return not any(above[name] & names for name in names)


@dataclass(frozen=True)
class Known:
    """Reads of a definition what is known before it runs."""

    scope: Scope

    def value(self, value: Any) -> Any:
        """The value with its parameters filled in; None where the execution alone knows it."""
        try:
            return self.scope.resolve(value)
        except StepError:
            return None

    def text(self, value: Any) -> str:
        found = self.value(value)
        return found if isinstance(found, str) else ""

    def job(self, node: Node) -> JobNeed | None:
        """None for a job whose instances are not known before it runs."""
        if node.type == "Processing":
            cluster, usage = node.arguments.get("ProcessingResources", {}).get("ClusterConfig", {}), "processing job"
        else:
            cluster = node.arguments.get("ResourceConfig", {})
            usage = "spot training job" if node.arguments.get("EnableManagedSpotTraining") is True else "training job"
        instance_type, count = self.text(cluster.get("InstanceType")), self.value(cluster.get("InstanceCount", 1))
        if not instance_type or not isinstance(count, int):
            return None
        return JobNeed(node.name, instance_type, count, usage)

    def image(self, node: Node) -> str:
        processing = node.arguments.get("AppSpecification", {}).get("ImageUri")
        return self.text(processing or node.arguments.get("AlgorithmSpecification", {}).get("TrainingImage"))

    def served_images(self, node: Node) -> list[str]:
        containers = node.arguments.get("InferenceSpecification", {}).get("Containers", [])
        return [self.text(container.get("Image")) for container in containers]

    def inputs(self, node: Node) -> list[str]:
        """S3 URIs that are known before the execution: no step of it writes them."""
        entries = [entry.get("S3Input", {}).get("S3Uri") for entry in node.arguments.get("ProcessingInputs", [])]
        channels = node.arguments.get("InputDataConfig", [])
        entries += [channel.get("DataSource", {}).get("S3DataSource", {}).get("S3Uri") for channel in channels]
        return [uri for uri in map(self.text, entries) if uri.startswith("s3://")]

    def outputs(self, node: Node) -> list[str]:
        """The known beginnings of what a job writes: an output's URI ends in the execution's id."""
        outputs = node.arguments.get("ProcessingOutputConfig", {}).get("Outputs", [])
        entries = [entry.get("S3Output", {}).get("S3Uri") for entry in outputs]
        entries.append(node.arguments.get("OutputDataConfig", {}).get("S3OutputPath"))
        starts = [entry["Std:Join"]["Values"][0] if isinstance(entry, dict) and "Std:Join" in entry else entry
                  for entry in entries]  # fmt: skip
        return [uri for uri in map(self.text, starts) if uri.startswith("s3://")]


def _distinct(values: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value))
