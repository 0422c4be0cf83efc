"""What a Processing or Training step asks for, read from its resolved arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPT_ML = "/opt/ml"


@dataclass(frozen=True)
class JobInput:
    """is_manifest: the URI is that of a list of the files.  channel: what a training job is told of it."""

    name: str
    uri: str
    local_path: str
    sharded: bool = False
    is_manifest: bool = False
    channel: Mapping[str, str] = field(default_factory=dict)

    @property
    def manner(self) -> str:
        """How a job gets the input, whatever is in it: where it lies, what each instance has of it, what it is told."""
        words = [self.local_path, "sharded" if self.sharded else "", "manifest" if self.is_manifest else ""]
        words += [f"{name}={value}" for name, value in sorted(self.channel.items())]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class JobOutput:
    """archive: the name of the .tar.gz that the folder leaves as, empty where it leaves as it is.

    uri: that of the archive where there is one, else of the folder.  is_optional: nothing is kept of an empty folder.
    """

    name: str
    uri: str
    local_path: str
    archive: str = ""
    is_optional: bool = False


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
    entrypoint: list[str] = field(default_factory=list)


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
        is_manifest = source.get("S3DataType") == "ManifestFile"
        inputs.append(JobInput(entry["InputName"], source["S3Uri"], local_path, sharded, is_manifest))
    outputs = [
        JobOutput(entry["OutputName"], entry["S3Output"]["S3Uri"], entry["S3Output"]["LocalPath"])
        for entry in request.get("ProcessingOutputConfig", {}).get("Outputs", [])
    ]
    return JobSpec(
        step=step, kind="Processing", job_name=job_name, image=application["ImageUri"],
        entrypoint=[str(word) for word in application.get("ContainerEntrypoint", [])],
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
        is_manifest = source.get("S3DataType") == "ManifestFile"
        told = {
            "TrainingInputMode": channel.get("InputMode", algorithm.get("TrainingInputMode", "File")),
            "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
            "RecordWrapperType": "None", "ContentType": channel.get("ContentType", ""),
        }  # fmt: skip
        told = {name: value for name, value in told.items() if value}
        inputs.append(JobInput(channel["ChannelName"], source["S3Uri"], local_path, sharded, is_manifest, told))
    synced = []
    if checkpoint := request.get("CheckpointConfig"):
        local_path = checkpoint.get("LocalPath", f"{OPT_ML}/checkpoints")
        synced.append(JobOutput("checkpoints", checkpoint["S3Uri"], local_path))
    if tensorboard := request.get("TensorBoardOutputConfig"):
        local_path = tensorboard.get("LocalPath", f"{OPT_ML}/output/tensorboard")
        synced.append(JobOutput("tensorboard", tensorboard["S3OutputPath"], local_path))
    return JobSpec(
        step=step, kind="Training", job_name=job_name, image=algorithm["TrainingImage"],
        entrypoint=[str(word) for word in algorithm.get("ContainerEntrypoint", [])],
        arguments=[str(word) for word in algorithm.get("ContainerArguments", [])],
        hyperparameters=_texts(request.get("HyperParameters", {})),
        environment=_texts(request.get("Environment", {})), inputs=inputs,
        outputs=_training_outputs(request["OutputDataConfig"], job_name),
        synced=synced, instance_type=resources.get("InstanceType", ""),
        instance_count=int(resources["InstanceCount"]), request=request,
    )  # fmt: skip


def _training_outputs(config: Mapping[str, Any], job_name: str) -> list[JobOutput]:
    """The model, and what a job may leave beside it in output/data; archives unless the definition says NONE."""
    uri = f"{config['S3OutputPath'].rstrip('/')}/{job_name}/output"
    model, data = f"{OPT_ML}/model", f"{OPT_ML}/output/data"
    if config.get("CompressionType", "GZIP") == "NONE":
        return [JobOutput("model", f"{uri}/model", model), JobOutput("data", f"{uri}/data", data, is_optional=True)]
    return [
        JobOutput("model", f"{uri}/model.tar.gz", model, "model.tar.gz"),
        JobOutput("data", f"{uri}/output.tar.gz", data, "output.tar.gz", is_optional=True),
    ]


def model_uri(spec: JobSpec) -> str:
    """ModelArtifacts.S3ModelArtifacts: the archive, or the folder with its final slash."""
    (model,) = (output for output in spec.outputs if output.name == "model")
    return model.uri if model.archive else f"{model.uri}/"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
