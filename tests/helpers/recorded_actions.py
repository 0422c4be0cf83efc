"""What calls of boto3 ask of IAM: action and resource of each, and what conditions may look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.client
import pytest
from policy_simulation import ACCOUNT, KEY, REGION, Request

SAGEMAKER = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
# Actions that are not named like their operation.
ACTIONS = {
    "s3:ListObjectsV2": "s3:ListBucket", "s3:HeadBucket": "s3:ListBucket", "s3:HeadObject": "s3:GetObject",
    "s3:CreateMultipartUpload": "s3:PutObject", "s3:UploadPart": "s3:PutObject",
    "s3:CompleteMultipartUpload": "s3:PutObject", "s3:ListParts": "s3:ListMultipartUploadParts",
    "ecr:BatchGetImage": "ecr:BatchGetImage",
}  # fmt: skip
# The resource of an operation, by a member of its request.
BY_NAME = {
    "PipelineName": "pipeline/{}", "EndpointName": "endpoint/{}", "EndpointConfigName": "endpoint-config/{}",
    "ModelName": "model/{}", "ModelPackageGroupName": "model-package-group/{}", "TrainingJobName": "training-job/{}",
    "ProcessingJobName": "processing-job/{}",
}  # fmt: skip
WITH_PARTS = ("CreateEndpoint", "CreateModel", "ListModelPackages", "UpdateEndpoint")
BY_ARN = ("PipelineExecutionArn", "ModelPackageArn", "ModelPackageName", "ResourceArn")
# What reading and writing asks of the key that buckets and topics are encrypted with.
KEY_USES = {"s3:GetObject": "kms:Decrypt", "s3:PutObject": "kms:GenerateDataKey", "sns:Publish": "kms:GenerateDataKey"}


@contextmanager
def recorded_calls() -> Iterator[list[tuple[str, str, dict[str, Any]]]]:
    """The calls that boto3 makes meanwhile, as (service, operation, parameters); each goes on as it would."""
    calls: list[tuple[str, str, dict[str, Any]]] = []
    go_on = botocore.client.BaseClient._make_api_call

    def noted(self: Any, operation: str, parameters: dict[str, Any]) -> Any:
        calls.append((self.meta.service_model.service_name, operation, parameters))
        return go_on(self, operation, parameters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.client.BaseClient, "_make_api_call", noted)
        yield calls


def requests_of(service: str, operation: str, parameters: dict[str, Any]) -> list[Request]:
    """What IAM is asked for a call; more than one where it passes a role or reads one resource to make another."""
    prefix = {"service-quotas": "servicequotas"}.get(service, service)
    action = ACTIONS.get(f"{prefix}:{operation}", f"{prefix}:{operation}")
    if action == "sts:GetCallerIdentity":
        # Everybody may.
        return []
    resources = [*_resources(prefix, operation, parameters)]
    context = {"s3:prefix": parameters.get("Prefix", "")} if action == "s3:ListBucket" else {}
    found = [Request(action, resource, context) for resource in resources]
    for member in ("ExecutionRoleArn", "RoleArn"):
        if member in parameters:
            found.append(
                Request("iam:PassRole", parameters[member], {"iam:PassedToService": f"{service}.amazonaws.com"})
            )
    if target := parameters.get("Target", {}).get("RoleArn"):
        found.append(Request("iam:PassRole", target, {"iam:PassedToService": f"{service}.amazonaws.com"}))
    if action in KEY_USES:
        found.append(Request(KEY_USES[action], KEY, {"kms:ViaService": f"{service}.{REGION}.amazonaws.com"}))
    if "Tags" in parameters and operation.startswith("Create") and service == "sagemaker":
        found += [Request("sagemaker:AddTags", resource) for resource in resources[:1]]
    return found


def _resources(prefix: str, operation: str, given: dict[str, Any]) -> Iterator[str]:
    if prefix == "s3":
        yield f"arn:aws:s3:::{given['Bucket']}" + (f"/{given['Key']}" if "Key" in given else "")
    elif prefix == "sns":
        yield given["TopicArn"]
    elif prefix == "logs":
        stream = given.get("logStreamName", "")
        yield f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{given['logGroupName']}:log-stream:{stream}"
    elif prefix == "scheduler":
        name, group = given.get("Name"), given.get("GroupName", "default")
        yield f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/{group}/{name}" if name else "*"
    elif prefix == "iam":
        yield f"arn:aws:iam::{ACCOUNT}:role/{given['RoleName']}"
    elif prefix == "lambda":
        yield given["FunctionName"]
    elif prefix == "ecr":
        yield f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{given['repositoryName']}"
    elif prefix in ("servicequotas", "ec2"):
        yield "*"
    elif prefix == "sagemaker":
        named = [template.format(given[member]) for member, template in BY_NAME.items() if member in given]
        found = [f"{SAGEMAKER}:{name}" for name in named] + [given[member] for member in BY_ARN if member in given]
        assert found, f"no resource known of sagemaker:{operation} {given}"
        if operation == "ListModelPackages":
            found.append(f"{SAGEMAKER}:model-package/{given['ModelPackageGroupName']}/1")
        if operation == "CreateModel":
            found += [container["ModelPackageName"] for container in given["Containers"]]
        # What something is made of is a resource of the request, too; of other requests the first is the resource.
        yield from found if operation in WITH_PARTS else found[:1]
    else:
        raise NotImplementedError(f"resources of {prefix}:{operation}")
