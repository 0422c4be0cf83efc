"""What a Processing or Training step asks for, read from its resolved arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPT_ML = "/opt/ml"


@dataclass(frozen=True)
class JobInput:
    name: str
    uri: str
    local_path: str
    sharded: bool = False


@dataclass(frozen=True)
class JobOutput:
    name: str
    uri: str
    local_path: str


@dataclass(frozen=True)
class JobSpec:
    """A Processing or Training step with every reference resolved. `synced`: folders kept across attempts."""

    step: str
    kind: str
    job_name: str
    image: str
    arguments: list[str]
    hyperparameters: dict[str, str]
    environment: dict[str, str]
    inputs: list[JobInput]
    outputs: list[JobOutput]
    synced: list[JobOutput]
    instance_type: str
    instance_count: int
    request: Mapping[str, Any] = field(repr=False)


def job_spec(step: str, kind: str, request: Mapping[str, Any], job_name: str) -> JobSpec:
    """The job of a Processing or Training step from its resolved arguments."""
    return (
        _processing_spec(step, request, job_name) if kind == "Processing" else _training_spec(step, request, job_name)
    )


def _processing_spec(step: str, request: Mapping[str, Any], job_name: str) -> JobSpec:
    application, cluster = request["AppSpecification"], request["ProcessingResources"]["ClusterConfig"]
    inputs = []
    for entry in request.get("ProcessingInputs", []):
        source = entry["S3Input"]
        local_path = source.get("LocalPath", f"{OPT_ML}/processing/input/{entry['InputName']}")
        sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
        inputs.append(JobInput(entry["InputName"], source["S3Uri"], local_path, sharded))
    outputs = [
        JobOutput(entry["OutputName"], entry["S3Output"]["S3Uri"], entry["S3Output"]["LocalPath"])
        for entry in request.get("ProcessingOutputConfig", {}).get("Outputs", [])
    ]
    return JobSpec(
        step=step, kind="Processing", job_name=job_name, image=application["ImageUri"],
        arguments=[str(word) for word in application.get("ContainerArguments", [])],
        hyperparameters={}, environment=_texts(request.get("Environment", {})), inputs=inputs, outputs=outputs,
        synced=[], instance_type=cluster.get("InstanceType", ""), instance_count=int(cluster["InstanceCount"]),
        request=request,
    )  # fmt: skip


def _training_spec(step: str, request: Mapping[str, Any], job_name: str) -> JobSpec:
    algorithm, resources = request["AlgorithmSpecification"], request["ResourceConfig"]
    inputs = []
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"]["S3DataSource"]
        sharded = source.get("S3DataDistributionType") == "ShardedByS3Key"
        local_path = f"{OPT_ML}/input/data/{channel['ChannelName']}"
        inputs.append(JobInput(channel["ChannelName"], source["S3Uri"], local_path, sharded))
    uri = f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{job_name}/output"
    synced = []
    if checkpoint := request.get("CheckpointConfig"):
        local_path = checkpoint.get("LocalPath", f"{OPT_ML}/checkpoints")
        synced.append(JobOutput("checkpoints", checkpoint["S3Uri"], local_path))
    if tensorboard := request.get("TensorBoardOutputConfig"):
        local_path = tensorboard.get("LocalPath", f"{OPT_ML}/output/tensorboard")
        synced.append(JobOutput("tensorboard", tensorboard["S3OutputPath"], local_path))
    return JobSpec(
        step=step, kind="Training", job_name=job_name, image=algorithm["TrainingImage"],
        arguments=[str(word) for word in algorithm.get("ContainerArguments", [])],
        hyperparameters=_texts(request.get("HyperParameters", {})),
        environment=_texts(request.get("Environment", {})), inputs=inputs,
        outputs=[JobOutput("model", f"{uri}/model", f"{OPT_ML}/model")],
        synced=synced, instance_type=resources.get("InstanceType", ""),
        instance_count=int(resources["InstanceCount"]), request=request,
    )  # fmt: skip


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
