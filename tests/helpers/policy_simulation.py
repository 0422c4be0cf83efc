"""What a role of a synthesised template may do: its policies with the template's references resolved, judged by moto.

Who evaluates actions and resources is moto's IAMPolicy. Conditions are judged here, before: a statement whose condition
does not hold for a request is left out, as IAM does. A role's rights are those of its own policies, of managed policies
of the template that it has, and of policies of resources that name it.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from environments import ACCOUNT, FULL
from moto.iam.access_control import IAMPolicy, PermissionResult

REGION: str = FULL["region"]
PSEUDO_PARAMETERS = {
    "AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "stack", "AWS::NoValue": "",
}  # fmt: skip
# In the place of the key's ARN.
KEY = "the key"
# ARN of a resource by its type; {id} is its logical id, which stands for its name.
ARNS = {
    "AWS::IAM::Role": f"arn:aws:iam::{ACCOUNT}:role/{{id}}",
    "AWS::IAM::ManagedPolicy": f"arn:aws:iam::{ACCOUNT}:policy/{{id}}",
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::KMS::Key": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{{id}}",
    "AWS::SQS::Queue": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{id}}",
    "AWS::SNS::Topic": f"arn:aws:sns:{REGION}:{ACCOUNT}:{{id}}",
    "AWS::Lambda::Function": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{id}}",
    "AWS::CloudWatch::Alarm": f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{{id}}",
    "AWS::ECR::Repository": f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{{id}}",
    "AWS::CodeBuild::Project": f"arn:aws:codebuild:{REGION}:{ACCOUNT}:project/{{id}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{{name}}:*",
    "AWS::Events::Rule": f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{{id}}",
    "AWS::EC2::VPC": f"arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/{{id}}",
    "AWS::EC2::SecurityGroup": f"arn:aws:ec2:{REGION}:{ACCOUNT}:security-group/{{id}}",
}
# The reference of these is their ARN.
REFERENCED_BY_ARN = ("AWS::SNS::Topic", "AWS::IAM::ManagedPolicy")


@dataclass(frozen=True)
class Request:
    """context: values of condition keys. A request over TLS, as all of boto3's are."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}{f' with {dict(self.context)}' if self.context else ''}"


# Policies, by what their logical ids hold, of people.
PEOPLE = {"Operators": ("Operators",), "Maintainers": ("Operators", "Maintainers")}


class ResolvedTemplate:
    """A template whose references have sample values. buckets: logical id of the bucket of data."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self.resources: Mapping[str, Any] = template["Resources"]

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties, resolved, by logical id."""
        return {logical_id: self.resolved(resource.get("Properties", {}))
                for logical_id, resource in self.resources.items() if resource["Type"] == kind}  # fmt: skip

    def only(self, kind: str, part: str) -> str:
        """The logical id of the one resource of a type whose logical id holds a part."""
        (found,) = [key for key, resource in self.resources.items() if resource["Type"] == kind and part in key]
        return found

    def arn(self, logical_id: str) -> str:
        resource = self.resources[logical_id]
        return ARNS[resource["Type"]].format(id=logical_id, name=self._name(logical_id))

    def resolved(self, value: Any) -> Any:
        """A value with its references in it resolved."""
        if isinstance(value, list):
            return [self.resolved(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function == "Ref":
                return self._reference(argument)
            if function == "Fn::GetAtt":
                logical_id, attribute = argument
                if attribute == "GroupId":
                    return f"sg-{self._digits(logical_id)}"
                return self.arn(logical_id) if attribute == "Arn" else f"{logical_id}.{attribute}"
            if function == "Fn::Join":
                separator, parts = argument
                return separator.join(str(self.resolved(part)) for part in parts)
            if function == "Fn::Sub" and isinstance(argument, str):
                for name, text in PSEUDO_PARAMETERS.items():
                    argument = argument.replace(f"${{{name}}}", text)
                return argument
            if function.startswith("Fn::"):
                return f"{function}({json.dumps(self.resolved(argument))})"
        return {key: self.resolved(item) for key, item in value.items()}

    def statements(self, role: str) -> list[dict[str, Any]]:
        """The statements that give rights to a role, by its logical id, and those that take them from all."""
        properties = self.resolved(self.resources[role]["Properties"])
        documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
        documents += [policy["PolicyDocument"] for policy in self.of_type("AWS::IAM::Policy").values()
                      if role in policy.get("Roles", [])]  # fmt: skip
        managed = self.of_type("AWS::IAM::ManagedPolicy")
        attached = properties.get("ManagedPolicyArns", [])
        documents += [policy["PolicyDocument"] for key, policy in managed.items()
                      if self.arn(key) in attached or role in policy.get("Roles", [])]  # fmt: skip
        found = [statement for document in documents for statement in document["Statement"]]
        for kind in ("AWS::S3::BucketPolicy", "AWS::KMS::Key", "AWS::ECR::Repository"):
            for key, resource in self.of_type(kind).items():
                found += self._of_resource(key, resource, self.arn(role))
        return found

    def managed_statements(self, policy: str) -> list[dict[str, Any]]:
        """The statements of a managed policy, by its logical id."""
        return self.resolved(self.resources[policy]["Properties"])["PolicyDocument"]["Statement"]

    def _of_resource(self, logical_id: str, resource: Mapping[str, Any], role_arn: str) -> list[dict[str, Any]]:
        """Statements of a resource's policy that are about a role. The account's own, as of a key, leave it to IAM."""
        text = resource.get("KeyPolicy") or resource.get("RepositoryPolicyText") or resource.get("PolicyDocument") or {}
        found = []
        for statement in text.get("Statement", []):
            principals = statement["Principal"]
            named = principals if principals == "*" else principals.get("AWS", [])
            if named == "*" or role_arn in _listed(named):
                about = {"Resource": self.arn(logical_id)} if "Resource" not in statement else {}
                found.append({key: value for key, value in statement.items() if key != "Principal"} | about)
        return found

    def _reference(self, name: str) -> str:
        if name in PSEUDO_PARAMETERS:
            return PSEUDO_PARAMETERS[name]
        if name in self.resources and self.resources[name]["Type"] in REFERENCED_BY_ARN:
            return self.arn(name)
        return self._name(name)

    def _name(self, logical_id: str) -> str:
        """What stands for the name that the resource gets; buckets' names have small letters."""
        properties = self.resources.get(logical_id, {}).get("Properties", {})
        kind = self.resources.get(logical_id, {}).get("Type", "")
        if kind == "AWS::EC2::Subnet":
            return f"subnet-{self._digits(logical_id)}"
        named = {"AWS::Logs::LogGroup": "LogGroupName", "AWS::CloudWatch::Alarm": "AlarmName"}.get(kind, "")
        given = properties.get(named, logical_id)
        name = given if isinstance(given, str) else logical_id
        return name.lower() if kind == "AWS::S3::Bucket" else name

    def _digits(self, logical_id: str) -> str:
        return sha256(logical_id.encode()).hexdigest()[:17]


class Rights:
    """Who may do what in an environment. Roles are named by what their logical ids hold, Operators and Maintainers
    are people with these policies, the latter with both. KEY stands for the one key."""

    def __init__(self, template: Mapping[str, Any]) -> None:
        self.template = ResolvedTemplate(template)
        self.bucket = self.template.arn(self.template.only("AWS::S3::Bucket", "StorageBucket"))
        self._key = self.template.arn(self.template.only("AWS::KMS::Key", ""))
        self._statements: dict[str, list[dict[str, Any]]] = {}

    def role_arn(self, part: str) -> str:
        return self.template.arn(self.template.only("AWS::IAM::Role", part))

    def may(self, who: str, request: Request) -> bool:
        if who not in self._statements:
            if who in PEOPLE:
                policies = [self.template.only("AWS::IAM::ManagedPolicy", name) for name in PEOPLE[who]]
                found = [statement for policy in policies for statement in self.template.managed_statements(policy)]
            else:
                found = self.template.statements(self.template.only("AWS::IAM::Role", who))
            self._statements[who] = found
        resource = self._key if request.resource == KEY else request.resource
        return is_allowed(self._statements[who], Request(request.action, resource, request.context))

    def refused(self, who: str, requests: Iterable[Request]) -> list[str]:
        return sorted({str(request) for request in requests if not self.may(who, request)})

    def objects(self, key: str) -> str:
        return f"{self.bucket}/{key}"

    def settings(self, handler: str) -> dict[str, Any]:
        """What a function of infra/handlers/ reads from SETTINGS."""
        (found,) = [made for made in self.template.of_type("AWS::Lambda::Function").values()
                    if made["Handler"].endswith(f"{handler}.handler")]  # fmt: skip
        return json.loads(found["Environment"]["Variables"]["SETTINGS"])


def is_allowed(statements: Iterable[Mapping[str, Any]], request: Request) -> bool:
    """Whether statements allow a request, and none of them denies it."""
    context = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3", **request.context}
    applying = [{key: value for key, value in statement.items() if key != "Condition"}
                for statement in statements if _holds(statement.get("Condition", {}), context)]  # fmt: skip
    document = json.dumps({"Version": "2012-10-17", "Statement": applying})
    permitted = IAMPolicy(document).is_action_permitted(request.action, request.resource)
    return permitted == PermissionResult.PERMITTED


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """Whether all parts of a condition hold. A key that a request does not have makes a plain operator false."""
    return all(
        _operator_holds(operator, context.get(key), [str(value) for value in _listed(values)])
        for operator, keys in condition.items()
        for key, values in keys.items()
    )


def _operator_holds(operator: str, actual: str | None, expected: Sequence[str]) -> bool:
    if operator.endswith("IfExists"):
        return actual is None or _operator_holds(operator.removesuffix("IfExists"), actual, expected)
    if operator == "Null":
        return (actual is None) == (expected[0].lower() == "true")
    negated = operator.removeprefix("String").removeprefix("Arn").startswith("Not")
    if actual is None:
        return negated
    plain = operator.replace("Not", "")
    if plain in ("StringEquals", "Bool"):
        found = actual in expected
    elif plain in ("StringLike", "ArnLike", "ArnEquals"):
        found = any(fnmatch.fnmatchcase(actual, pattern) for pattern in expected)
    elif plain == "NumericLessThan":
        return float(actual) < float(expected[0])
    else:
        raise NotImplementedError(f"condition operator {operator}")
    return found != negated


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
