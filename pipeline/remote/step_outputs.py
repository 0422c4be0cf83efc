"""What a step's job on SageMaker has left in S3, as far as a person wants to see it: small files alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.references import typed_value
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from steps.contract import StepError

# Of an object that is read whole into memory.
MAX_READ_BYTES = 32 * 1024 * 1024
MANIFEST = "manifest.json"
_S3_URI = re.compile(r"s3://([^/]+)/(.+)")


@dataclass(frozen=True)
class StepJob:
    """The job of a step. type: as in a definition."""

    type: Literal["Processing", "Training"]
    name: str

    def describe(self, account: Account) -> dict[str, Any]:
        """What the service tells of it. Raises AwsError."""
        operation, member = f"Describe{self.type}Job", f"{self.type}JobName"
        return account.call("sagemaker", operation, **{member: self.name})


def step_job(row: Mapping[str, Any]) -> StepJob | None:
    """The job of a step as ListPipelineExecutionSteps tells it; None where it has none, or none yet."""
    metadata = row.get("Metadata", {})
    if arn := metadata.get("ProcessingJob", {}).get("Arn"):
        return StepJob("Processing", arn.rpartition("/")[2])
    if arn := metadata.get("TrainingJob", {}).get("Arn"):
        return StepJob("Training", arn.rpartition("/")[2])
    return None


def function_outputs(definition: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """What a Lambda step has given, by name, in the types that its definition declares.

    row: the step as ListPipelineExecutionSteps tells it. Raises ConfigError for a value of another type.
    """
    types = {entry["OutputName"]: entry["OutputType"] for entry in definition.get("OutputParameters", [])}
    told = row.get("Metadata", {}).get("Lambda", {}).get("OutputParameters", [])
    return {
        entry["Name"]: typed_value(f"{row['StepName']}.{entry['Name']}", entry["Value"],
                                   types.get(entry["Name"], "String"))
        for entry in told
    }  # fmt: skip


def output_uris(described: Mapping[str, Any]) -> dict[str, str]:
    """URI of each output of a job, without a final slash, by its name; of a training job `model` alone."""
    rows = described.get("ProcessingOutputConfig", {}).get("Outputs", [])
    uris = {row["OutputName"]: row["S3Output"]["S3Uri"] for row in rows if "S3Output" in row}
    if model := described.get("ModelArtifacts", {}).get("S3ModelArtifacts"):
        uris["model"] = model
    return {name: uri.rstrip("/") for name, uri in uris.items()}


def read_object(account: Account, uri: str) -> bytes:
    """The content of an object. Raises AwsError, StepError for one that is too large to be looked at."""
    match = _S3_URI.fullmatch(uri)
    if match is None:
        raise StepError("S3 URI", uri, limit="s3://BUCKET/KEY", remedy="Correct the definition.")
    answer = account.call("s3", "GetObject", Bucket=match[1], Key=match[2])
    if answer["ContentLength"] > MAX_READ_BYTES:
        raise StepError(uri, f"{answer['ContentLength']:,} bytes", limit=f"{MAX_READ_BYTES:,}",
                        remedy="Look at it in S3.")  # fmt: skip
    with account.told("s3", "GetObject"):
        return answer["Body"].read()


def sealed_metrics(account: Account, uris: Mapping[str, str]) -> tuple[str, list[str]]:
    """The metrics of a step's seal as a run shows them, and its warnings; both empty for outputs without our seal.

    Raises AwsError.
    """
    for uri in uris.values():
        try:
            manifest = json.loads(read_object(account, f"{uri}/{MANIFEST}"))
        except AwsError as error:
            if error.kind != "not_found":
                raise
            continue
        except ValueError:
            # Somebody else's file of that name.
            continue
        if isinstance(manifest, dict) and isinstance(metrics := manifest.get("metrics"), dict):
            warned = [f"{entry['name']}: {entry['message']}" for entry in manifest.get("warnings", [])]
            return metrics_text(metrics), warned
    return "", []


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """As the line that a step ends its log with (steps.contract.report)."""
    return " ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in metrics.items()
    )
