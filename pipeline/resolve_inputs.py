"""The ResolveInputs function: what lies under the input URIs now, and which model is the champion.

One file that needs the standard library alone, so that it can be uploaded as a Lambda function; boto3, which Lambda
has, is imported inside `handler`. The laptop's counterpart is in pipeline/local/inputs.py; both use `resolve_inputs`.

Event, all texts but the last:

    <name>_uri            for each input (corpus_uri, conversations_uri, base_model_uri, ...)
    model_package_group   whose newest approved version is the champion
    pipeline_name, execution_id
    allow_concurrent      true: do not refuse while another execution of this pipeline runs

Returned, all texts: `<name>_digest` for each input, champion_uri, champion_digest, champion_present ("true"/"false").
Where no version is approved the base model stands in for the champion.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

RUNNING_STATES = ("Executing", "Stopping")
BASE_MODEL = "base_model"
# What `langadapt push` names by its content (pipeline/remote/push.py).
PUSHED = re.compile(r"(.+/)?inputs/[a-z_]+/[0-9a-f]{64}/?")
# Such a folder, or the list beside it, seen from the folder that they lie in.
PUSHED_BELOW = re.compile(r"([0-9a-f]{64})(/|\.json$)")


class ResolveInputsError(ValueError):
    """An input or the state of the pipeline that a person has to change, told in one line."""

    def __init__(self, subject: str, value: str, *, limit: str | None = None, remedy: str) -> None:
        self.subject, self.value, self.limit, self.remedy = subject, value, limit, remedy
        super().__init__(f"{subject}: {value}{'' if limit is None else f'; limit {limit}'}. {remedy}")


@dataclass(frozen=True)
class StoredFile:
    """A file below a prefix: key relative to the prefix, size in bytes, and what names its content (ETag or sha256)."""

    key: str
    size: int
    content: str


class Store(Protocol):
    def files(self, uri: str) -> Sequence[StoredFile]:
        """All files below a URI; none where nothing is there."""


class Registry(Protocol):
    def newest_approved_uri(self, group: str) -> str | None:
        """URI of the newest approved version's model folder, None where none is approved."""


class Executions(Protocol):
    def running(self, pipeline_name: str) -> Sequence[str]:
        """Ids of the executions of a pipeline that run now."""


def resolve_inputs(
    event: Mapping[str, Any], store: Store, registry: Registry, executions: Executions
) -> dict[str, str]:
    """Digests of all inputs and the champion.

    Raises ResolveInputsError for an empty or missing input, and while another execution runs.
    """
    if not as_bool(event.get("allow_concurrent", False)):
        refuse_beside_others(event, executions)
    uris = {name.removesuffix("_uri"): str(uri) for name, uri in event.items() if name.endswith("_uri")}
    if BASE_MODEL not in uris:
        raise ResolveInputsError("base_model_uri", "not in the event", remedy="Pass the base model's URI.")
    digests = {name: input_digest(name, uri, store.files(uri)) for name, uri in sorted(uris.items())}
    champion_uri = registry.newest_approved_uri(str(event["model_package_group"]))
    if champion_uri is None:
        champion = {"champion_uri": uris[BASE_MODEL], "champion_digest": digests[BASE_MODEL]}
    else:
        digest = input_digest("champion", champion_uri, store.files(champion_uri))
        champion = {"champion_uri": champion_uri, "champion_digest": digest}
    present = "false" if champion_uri is None else "true"
    return {f"{name}_digest": digest for name, digest in digests.items()} | champion | {"champion_present": present}


def refuse_beside_others(event: Mapping[str, Any], executions: Executions) -> None:
    """Raises ResolveInputsError that names the other execution: checkpoints have one writer at a time."""
    own = str(event["execution_id"])
    others = sorted(set(executions.running(str(event["pipeline_name"]))) - {own})
    if others:
        subject = f"pipeline {event['pipeline_name']}"
        remedy = "Wait for it, stop it, or set AllowConcurrent to true."
        raise ResolveInputsError(subject, f"execution {others[0]} is running", limit="1 at a time", remedy=remedy)


def input_digest(name: str, uri: str, files: Iterable[StoredFile]) -> str:
    """sha256 over sorted (key relative to the prefix, size, content). Raises ResolveInputsError for no files."""
    rows = sorted((file.key, file.size, file.content) for file in files)
    if not rows:
        raise ResolveInputsError(name, f"nothing at {uri}", remedy="Put files there or name another place.")
    lines = "".join(f"{key}\0{size}\0{content}\n" for key, size, content in rows)
    return hashlib.sha256(lines.encode()).hexdigest()


def as_bool(value: object) -> bool:
    """True for true and "true"; a pipeline may pass either."""
    return value is True or str(value).lower() == "true"


# --- on SageMaker -----------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> dict[str, str]:
    """The entry point on Lambda."""
    import boto3

    sagemaker = boto3.client("sagemaker")
    return resolve_inputs(
        event, S3Store(boto3.client("s3")), SageMakerChampions(sagemaker), SageMakerExecutions(sagemaker)
    )


@dataclass(frozen=True)
class S3Store:
    """Objects in S3; client: boto3's for S3. Content is the ETag, so nothing is downloaded.

    A job gets every key that begins with its prefix. Without a final slash that may be more than the folder or the
    object that is meant: ResolveInputsError names the first such key, as else the digest and the job would disagree.
    It is raised for what was pushed in part, too: `langadapt push` writes the list beside a prefix last.
    """

    client: Any

    def files(self, uri: str) -> list[StoredFile]:
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        found = []
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for item in page.get("Contents", []):
                # A key that ends in a slash is how the console shows an empty folder.
                if item["Key"].endswith("/"):
                    continue
                key = relative_key(item["Key"], prefix)
                if key is None:
                    remedy = "End the URI of a folder with /, or rename what is beside the file."
                    value = f"{item['Key']} begins with it, too"
                    raise ResolveInputsError(uri, value, limit="keys of one folder or file", remedy=remedy)
                found.append(StoredFile(key, item["Size"], item["ETag"].strip('"')))
        refuse_several_pushes(uri, (file.key for file in found))
        if found and PUSHED.fullmatch(prefix) and not self._is_listed(bucket, prefix):
            raise ResolveInputsError(uri, "pushed in part", remedy="Give the same langadapt push again: it goes on.")
        return found

    def _is_listed(self, bucket: str, prefix: str) -> bool:
        """Whether the list of a pushed prefix is there."""
        return "Contents" in self.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix.rstrip('/')}.json")


def refuse_several_pushes(uri: str, keys: Iterable[str]) -> None:
    """Raises ResolveInputsError for the folder above what was pushed: a job would read all of it, old and new as one.

    keys: relative to the URI.
    """
    pushed = {match[1] for key in keys if (match := PUSHED_BELOW.match(key))}
    if pushed:
        remedy = "Give the parameter that langadapt push printed."
        raise ResolveInputsError(uri, f"holds {len(pushed)} pushed", limit="one of them", remedy=remedy)


def relative_key(key: str, prefix: str) -> str | None:
    """The part of a key below a prefix; the file's name where the prefix is the key; None for a mere neighbour.

    The prefix data/corpus also matches data/corpus-old/a.txt, which is not below it.
    """
    folder = prefix.rstrip("/")
    if key == folder:
        return key.rpartition("/")[2]
    if folder and not key.startswith(f"{folder}/"):
        return None
    return key[len(folder) :].lstrip("/")


@dataclass(frozen=True)
class SageMakerChampions:
    """The SageMaker Model Registry; client: boto3's for SageMaker."""

    client: Any

    def newest_approved_uri(self, group: str) -> str | None:
        pages = self.client.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=group, ModelApprovalStatus="Approved", SortBy="CreationTime", SortOrder="Descending"
        )
        for page in pages:
            for summary in page["ModelPackageSummaryList"]:
                package = self.client.describe_model_package(ModelPackageName=summary["ModelPackageArn"])
                container = package["InferenceSpecification"]["Containers"][0]
                source = container.get("ModelDataSource", {}).get("S3DataSource", {})
                uri = source.get("S3Uri") or container.get("ModelDataUrl")
                if not uri:
                    value = f"{summary['ModelPackageArn']} has no model data"
                    raise ResolveInputsError("champion", value, remedy="Reject this version.")
                return uri
        return None


@dataclass(frozen=True)
class SageMakerExecutions:
    """Executions of a pipeline; client: boto3's for SageMaker."""

    client: Any

    def running(self, pipeline_name: str) -> list[str]:
        pages = self.client.get_paginator("list_pipeline_executions").paginate(PipelineName=pipeline_name)
        summaries = [summary for page in pages for summary in page["PipelineExecutionSummaries"]]
        return [
            summary["PipelineExecutionArn"].rpartition("/")[2]
            for summary in summaries
            if summary["PipelineExecutionStatus"] in RUNNING_STATES
        ]
