"""What an endpoint is for deploy_approved_model: its settings, its state, and how SageMaker is told to change it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VARIANT = "all"
MISSING = re.compile(r"could not find|does not exist", re.IGNORECASE)
# Of 63 that a name may have; version and digest follow.
ENDPOINT_CHARACTERS = 40


@dataclass(frozen=True)
class Settings:
    """group: of model packages. role_arn: what the endpoint's containers run as. alarms: names; any of them rolls an
    update back. bake_seconds: that the old fleet is kept beside the new one. startup_seconds: until a container has
    its model and answers."""

    group: str
    endpoint: str
    role_arn: str
    instance_type: str
    instance_count: int
    alarms: tuple[str, ...]
    bake_seconds: int = 600
    startup_seconds: int = 1_800
    inference_ami: str = ""
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Package:
    """A version as the registry tells it. decided_at: when its status was last set."""

    arn: str
    version: int
    status: str
    decided_at: str


@dataclass(frozen=True)
class Endpoint:
    """config: the name of what it serves; none until it is in service."""

    arn: str
    status: str
    config: str
    tags: Mapping[str, str]
    failure: str = ""


def deployment_name(settings: Settings, package: Package) -> str:
    """The name of model and endpoint configuration: the same for the same package, version, status and settings."""
    identity = json.dumps([package.arn, package.version, package.status, asdict(settings)], sort_keys=True)
    return f"{name_start(settings.endpoint)}{package.version}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def name_start(endpoint: str) -> str:
    """What the names of all deployments of an endpoint begin with."""
    return f"{endpoint[:ENDPOINT_CHARACTERS].rstrip('-')}-v"


def deployment_config(settings: Settings) -> dict[str, Any]:
    """How an update goes on: a second fleet, a share of the traffic first where there are several instances."""
    routing: dict[str, Any] = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": settings.bake_seconds}
    if settings.instance_count > 1:
        routing |= {"Type": "CANARY", "CanarySize": {"Type": "INSTANCE_COUNT", "Value": 1}}
    # Two waits, each until a container answers, and room.
    limit = min(28_800, max(3_600, 2 * settings.bake_seconds + 2 * settings.startup_seconds))
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": settings.bake_seconds,
            "MaximumExecutionTimeoutInSeconds": limit,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in settings.alarms]},
    }


@dataclass(frozen=True)
class SageMakerEndpoints:
    """The one endpoint of the settings; client: boto3's for SageMaker. What has been made before is made no second
    time, so that a deployment that broke off goes on."""

    client: Any
    settings: Settings

    def find(self) -> Endpoint | None:
        found = described(self.client.describe_endpoint, EndpointName=self.settings.endpoint)
        if found is None:
            return None
        pages = self.client.get_paginator("list_tags").paginate(ResourceArn=found["EndpointArn"])
        tags = {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
        config, failure = found.get("EndpointConfigName", ""), " ".join(found.get("FailureReason", "").split())
        return Endpoint(found["EndpointArn"], found["EndpointStatus"], config, tags, failure)

    def create(self, name: str, package: Package, tags: Mapping[str, str]) -> None:
        self._prepare(name, package)
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        self.client.create_endpoint(EndpointName=self.settings.endpoint, EndpointConfigName=name, Tags=listed)

    def update(self, name: str, package: Package) -> None:
        self._prepare(name, package)
        self.client.update_endpoint(
            EndpointName=self.settings.endpoint,
            EndpointConfigName=name,
            DeploymentConfig=deployment_config(self.settings),
        )

    def tag(self, endpoint: Endpoint, name: str, value: str) -> None:
        self.client.add_tags(ResourceArn=endpoint.arn, Tags=[{"Key": name, "Value": value}])

    def _prepare(self, name: str, package: Package) -> None:
        """Model and endpoint configuration."""
        chosen = self.settings
        if described(self.client.describe_model, ModelName=name) is None:
            network = {"VpcConfig": {"Subnets": [*chosen.subnets], "SecurityGroupIds": [*chosen.security_groups]}}
            self.client.create_model(
                ModelName=name,
                ExecutionRoleArn=chosen.role_arn,
                Containers=[{"ModelPackageName": package.arn}],
                # The server fetches nothing: SageMaker puts the model beside it.
                EnableNetworkIsolation=True,
                **(network if chosen.subnets else {}),
            )
        if described(self.client.describe_endpoint_config, EndpointConfigName=name) is None:
            variant = {
                "VariantName": VARIANT,
                "ModelName": name,
                "InstanceType": chosen.instance_type,
                "InitialInstanceCount": chosen.instance_count,
                "ModelDataDownloadTimeoutInSeconds": chosen.startup_seconds,
                "ContainerStartupHealthCheckTimeoutInSeconds": chosen.startup_seconds,
                **({"InferenceAmiVersion": chosen.inference_ami} if chosen.inference_ami else {}),
            }
            self.client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])


def described(describe: Any, **named: str) -> dict[str, Any] | None:
    """What a Describe call tells, None where there is nothing of this name."""
    from botocore.exceptions import ClientError

    try:
        return describe(**named)
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        # SageMaker mostly tells what is missing by a ValidationException, and then by its message alone.
        if code == "ResourceNotFound" or (code == "ValidationException" and MISSING.search(message)):
            return None
        raise
