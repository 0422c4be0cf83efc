"""What other steps may read of a finished step, by the names of the service's Describe calls.

A job's properties are its request and what became of it: its name, its status, where its model lies, its last metrics.
Times and costs, which say nothing here of what they are on the service, are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.references import reference_kind
from pipeline.step_graph import Node

ARN_PREFIX = "arn:aws:sagemaker:local:000000000000"
MODEL_PACKAGE_PROPERTIES = (
    "ModelPackageArn", "ModelPackageGroupName", "ModelPackageVersion", "ModelApprovalStatus",
)  # fmt: skip
# In the place of a value that only a run knows.
UNKNOWN: dict[str, Any] = {"Get": "Execution.Unknown"}


def processing_properties(request: Mapping[str, Any], job_name: Any) -> dict[str, Any]:
    """Properties of a finished Processing step."""
    return {
        **request, "ProcessingJobName": job_name, "ProcessingJobStatus": "Completed",
        "ProcessingJobArn": f"{ARN_PREFIX}:processing-job/{job_name}",
    }  # fmt: skip


def training_properties(
    request: Mapping[str, Any], job_name: Any, model_uri: Any, metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """Properties of a finished Training step. metrics: the last value of each of its MetricDefinitions, by name."""
    properties = {
        **request, "TrainingJobName": job_name, "TrainingJobStatus": "Completed", "SecondaryStatus": "Completed",
        "TrainingJobArn": f"{ARN_PREFIX}:training-job/{job_name}", "ModelArtifacts": {"S3ModelArtifacts": model_uri},
    }  # fmt: skip
    if metrics:
        rows = [{"MetricName": name, "Value": value} for name, value in metrics.items()]
        properties["FinalMetricDataList"] = rows
    return properties


def promised_properties(node: Node) -> dict[str, Any]:
    """The properties that a step will have, before it ran: what is not known yet is a reference in its place."""
    match node.type:
        case "Processing":
            return processing_properties(node.arguments, UNKNOWN)
        case "Training":
            definitions = node.arguments.get("AlgorithmSpecification", {}).get("MetricDefinitions", [])
            metrics = {entry["Name"]: UNKNOWN for entry in definitions}
            return training_properties(node.arguments, UNKNOWN, UNKNOWN, metrics)
        case "Lambda":
            outputs = node.definition.get("OutputParameters", [])
            return {"OutputParameters": {entry["OutputName"]: UNKNOWN for entry in outputs}}
        case "RegisterModel":
            return dict.fromkeys(MODEL_PACKAGE_PROPERTIES, UNKNOWN)
        case "Condition":
            return {"Outcome": UNKNOWN}
    return {}


def is_unknown(value: Any) -> bool:
    """Whether a promised property is known only once its step ran."""
    return reference_kind(value) is not None
