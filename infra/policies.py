"""What statements, trust and ARNs have in common. Every action and resource is written out where it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Acknowledgment, ArnFormat, Aws, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import Construct


def allow(
    *, actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Any] | None = None
) -> iam.PolicyStatement:
    """A statement of an identity's policy that allows actions on resources."""
    return iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=dict(conditions or {}))


def service_trust(service: str, *, source_arn: str | None = None) -> iam.ServicePrincipal:
    """A service that may assume a role, for this account alone and, where given, for resources of one ARN pattern.

    A service that works for others as well must not be talked into using our role (the confused deputy).
    """
    conditions: dict[str, Any] = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
    if source_arn is not None:
        conditions["ArnLike"] = {"aws:SourceArn": source_arn}
    return iam.ServicePrincipal(service, conditions=conditions)


def arn(scope: Construct, *, service: str, resource: str) -> str:
    """ARN of a resource of this account and region; resource: such as pipeline/langadapt."""
    return Stack.of(scope).format_arn(service=service, resource=resource, arn_format=ArnFormat.NO_RESOURCE_NAME)


def acknowledge_wildcards(policy: Construct, *, resources: Sequence[str], reason: str) -> None:
    """Records why wildcards in resources of one policy stand. cdk-nag has no finding without such a reason."""
    stack = Stack.of(policy)
    findings = [f"AwsSolutions-IAM5[Resource::{_flat(stack.resolve(resource))}]" for resource in resources]
    Validations.of(policy).acknowledge(*(Acknowledgment(id=finding, reason=reason) for finding in findings))


def _flat(value: Any) -> str:
    """A resolved ARN as cdk-nag writes it: references in angle brackets."""
    if isinstance(value, str):
        return value
    [(function, argument)] = value.items()
    if function == "Fn::Join":
        return argument[0].join(_flat(part) for part in argument[1])
    return f"<{'.'.join(argument) if isinstance(argument, list) else argument}>"
