"""Brings the endpoint to the newest approved version of a model package group.

An event of the registry is only the occasion: what is done follows from what the registry and the endpoint say now. So
events may come twice, late or out of order. The newest approved version is the one that the pipeline measures new
candidates against, too (pipeline/resolve_inputs.py).

    endpoint                              what is done
    is being created or updated           the event waits in its queue
    does not exist                        created, if the event is that version's approval
    serves the newest approved version    nothing
    serves another one                    updated: a second fleet beside the first, traffic moves, alarms roll back
    was rolled back from this approval    nothing: the same approval is tried once; reject and approve it to try again
    was changed by hand since             nothing, until another version is to be served, or this one is approved anew
    failed, or out of service             a person is told
    no version is approved any more       left as it is, and a person is told

Model, endpoint configuration and what was tried are named by package, version, status and settings; tags of the
endpoint keep what was tried, served and told. Each message stays in the queue until the deployment has ended, so that
the end is told, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from infra.handlers.events import (
    EventError,
    SnsTopic,
    Topic,
    client,
    queued_events,
    required,
    settings_from_environment,
    text_at,
)
from infra.handlers.served_endpoint import (
    Endpoint,
    Package,
    SageMakerEndpoints,
    Settings,
    deployment_name,
    described,
    name_start,
)

DETAIL_TYPE = "SageMaker Model Package State Change"
APPROVED, PENDING = "Approved", "PendingManualApproval"
IN_SERVICE = "InService"
BUSY = ("Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting")
TRIED_TAG, SERVED_TAG, TOLD_TAG = "langadapt:tried", "langadapt:served", "langadapt:told"


@dataclass(frozen=True)
class Outcome:
    """waits: whether the event is to come again."""

    line: str
    waits: bool = False


class Registry(Protocol):
    def describe(self, arn: str) -> Package | None:
        """A version, None where it was deleted."""

    def approved(self, group: str) -> Iterable[str]:
        """ARNs of the approved versions; the list may be a little behind."""


class Endpoints(Protocol):
    def find(self) -> Endpoint | None: ...

    def create(self, name: str, package: Package, tags: Mapping[str, str]) -> None: ...

    def update(self, name: str, package: Package) -> None: ...

    def tag(self, endpoint: Endpoint, name: str, value: str) -> None: ...


def deploy(
    event: Mapping[str, Any], registry: Registry, endpoints: Endpoints, topic: Topic, settings: Settings
) -> Outcome:
    """What one event leads to. Raises EventError for an event that is none of the group's."""
    package_arn = named_package(event, settings.group)
    endpoint = endpoints.find()
    if endpoint is not None and endpoint.status in BUSY:
        return Outcome(f"endpoint {settings.endpoint} is {endpoint.status}", waits=True)
    named = registry.describe(package_arn)
    if named is not None and named.status == PENDING and not is_served(named, endpoint, settings):
        return Outcome(f"version {named.version} waits for a decision")
    wanted = newest_approved(registry, settings.group, package_arn)
    if wanted is None:
        return none_approved(endpoint, endpoints, topic, settings)
    name = deployment_name(settings, wanted)
    tried = f"{name} {wanted.decided_at}"
    if endpoint is None:
        # Somebody may have taken the endpoint away: a rejection of another version does not bring it back.
        if wanted.arn != package_arn:
            return Outcome(f"there is no endpoint {settings.endpoint}; version {wanted.version} was approved before")
        endpoints.create(name, wanted, {TRIED_TAG: tried})
        return Outcome(f"endpoint {settings.endpoint} is created with version {wanted.version}", waits=True)
    if endpoint.status != IN_SERVICE or endpoint.config == name or endpoint.tags.get(TRIED_TAG) == tried:
        return ended(endpoint, name, wanted, tried, endpoints, topic, settings)
    endpoints.update(name, wanted)
    endpoints.tag(endpoint, TRIED_TAG, tried)
    return Outcome(f"endpoint {settings.endpoint} is updated to version {wanted.version}", waits=True)


def ended(
    endpoint: Endpoint,
    name: str,
    wanted: Package,
    tried: str,
    endpoints: Endpoints,
    topic: Topic,
    settings: Settings,
) -> Outcome:
    """How the deployment of a version has ended. name: of its configuration. Each is told once, and left as it is."""
    here = f"Endpoint {settings.endpoint}"
    again = f"reject and approve version {wanted.version}"
    if endpoint.status != IN_SERVICE:
        line = f"{here} is {endpoint.status}: {endpoint.failure or 'no reason given'}"
        remedy = f"Delete it (aws sagemaker delete-endpoint --endpoint-name {settings.endpoint}), mend the cause, then "
        remedy += f"{again}."
    elif endpoint.config == name:
        line = f"{here} serves version {wanted.version} of {settings.group}"
        remedy = f"Ask it: langadapt chat --endpoint {settings.endpoint}"
        if endpoint.tags.get(SERVED_TAG) != tried:
            endpoints.tag(endpoint, SERVED_TAG, tried)
    elif endpoint.tags.get(SERVED_TAG) == tried:
        line = f"{here} was changed by hand: it serves {endpoint.config}, not version {wanted.version}"
        remedy = f"It is left so. To have version {wanted.version} again, {again}."
    else:
        line = f"{here}: the update to version {wanted.version} was rolled back"
        remedy = f"{endpoint.failure}\n" if endpoint.failure else ""
        remedy += f"It goes on with {endpoint.config}. Look at its logs and alarms; reject version {wanted.version}, "
        remedy += "or reject and approve it to try again."
    return told(line, remedy, tried, endpoint, endpoints, topic)


def is_served(package: Package, endpoint: Endpoint | None, settings: Settings) -> bool:
    """Whether an endpoint serves a version, with whatever settings."""
    start = f"{name_start(settings.endpoint)}{package.version}-"
    return endpoint is not None and endpoint.config.startswith(start)


def named_package(event: Mapping[str, Any], group: str) -> str:
    """ARN of the version that an event names. Raises EventError for another group's."""
    required(event, "detail-type", DETAIL_TYPE)
    required(event, "detail.ModelPackageGroupName", group)
    arn = text_at(event, "detail.ModelPackageArn")
    if ":model-package/" not in arn:
        raise EventError("event detail.ModelPackageArn", arn, limit="a model package's ARN")
    return arn


def newest_approved(registry: Registry, group: str, named: str) -> Package | None:
    """The approved version with the highest number, None where none is approved.

    named: a version that may have changed a moment ago, so that the list does not know yet.
    """
    described = [registry.describe(arn) for arn in {named, *registry.approved(group)}]
    approved = [package for package in described if package is not None and package.status == APPROVED]
    return max(approved, key=lambda package: package.version, default=None)


def none_approved(endpoint: Endpoint | None, endpoints: Endpoints, topic: Topic, settings: Settings) -> Outcome:
    """Nothing is taken away from users without a person."""
    if endpoint is None:
        return Outcome(f"no version of {settings.group} is approved")
    line = f"Endpoint {settings.endpoint} serves a version of {settings.group} that is not approved, as none is"
    remedy = "Approve another version, or take the endpoint away: "
    remedy += f"aws sagemaker delete-endpoint --endpoint-name {settings.endpoint}"
    return told(line, remedy, f"none approved {endpoint.config}", endpoint, endpoints, topic)


def told(line: str, more: str, about: str, endpoint: Endpoint, endpoints: Endpoints, topic: Topic) -> Outcome:
    """The outcome of what a person is told once."""
    mark = hashlib.sha256(f"{line}\0{about}".encode()).hexdigest()
    if endpoint.tags.get(TOLD_TAG) != mark:
        topic.tell(line, f"{line}.\n{more}")
        endpoints.tag(endpoint, TOLD_TAG, mark)
    return Outcome(line)


# --- on SageMaker -----------------------------------------------------------------------------------------------------


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """The entry point on Lambda: messages of a queue; those that are to come again are named in the answer."""
    given = settings_from_environment()
    topic = SnsTopic(client("sns"), given.pop("topic_arn"))
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    settings = Settings(**values)
    registry, endpoints = SageMakerRegistry(client("sagemaker")), SageMakerEndpoints(client("sagemaker"), settings)
    waiting = []
    for message, body in queued_events(event):
        outcome = deploy(body, registry, endpoints, topic, settings)
        print(json.dumps({"message": message, **asdict(outcome)}))
        if outcome.waits:
            waiting.append({"itemIdentifier": message})
    return {"batchItemFailures": waiting}


@dataclass(frozen=True)
class SageMakerRegistry:
    """The SageMaker Model Registry; client: boto3's for SageMaker."""

    client: Any

    def describe(self, arn: str) -> Package | None:
        found = described(self.client.describe_model_package, ModelPackageName=arn)
        if found is None:
            return None
        decided_at = found.get("LastModifiedTime") or found["CreationTime"]
        return Package(
            arn, found["ModelPackageVersion"], found["ModelApprovalStatus"], f"{decided_at:%Y-%m-%dT%H:%M:%S.%f}"
        )

    def approved(self, group: str) -> list[str]:
        pages = self.client.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=group, ModelApprovalStatus=APPROVED
        )
        return [summary["ModelPackageArn"] for page in pages for summary in page["ModelPackageSummaryList"]]
