"""The single looks of a preflight: one question to one service each, and what its answer means for an execution."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.preflight_needs import QuotaNeed
from pipeline.resolve_inputs import PUSHED, ResolveInputsError, refuse_several_pushes, relative_key
from steps.contract import size_text

OK, MISSING, NOT_ALLOWED, NOT_PRICED = "ok", "missing", "not allowed to look", "not priced"
SERVICE = "sagemaker.amazonaws.com"
IMAGE = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<repository>[^@:]+)(?:@(?P<digest>sha256:[0-9a-f]{64})|:(?P<tag>[\w.-]+))"
)
# Manifests of single images and of lists of them; without the list ECR converts them into an old form.
MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One line of the checklist. name: what was looked at. found: what is there. remedy: what to do."""

    name: str
    state: str
    found: str
    remedy: str = ""

    @property
    def text(self) -> str:
        text = f"{self.name}: {self.found}"
        return f"{text}. {self.remedy}" if self.remedy else text


def bucket_check(account: Account, bucket: str) -> Check:
    """The bucket exists, in the region of the jobs."""
    name = f"bucket {bucket}"
    try:
        answer = account.call("s3", "HeadBucket", Bucket=bucket)
    except AwsError as error:
        if error.kind != "not_found":
            raise
        return Check(name, MISSING, "there is none of this name", f"Make it in {account.region}, or set aws.bucket.")
    region = answer.get("BucketRegion") or answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region")
    if region != account.region:
        remedy = f"Take a bucket in {account.region}: jobs read from their own region."
        return Check(name, MISSING, f"in region {region}", remedy)
    return Check(name, OK, f"in {region}")


def role_check(account: Account, role_arn: str) -> Check:
    """The role exists, in the caller's account, and SageMaker may take it."""
    name, role = f"role {role_arn}", role_arn.rpartition("/")[2]
    try:
        found = account.call("iam", "GetRole", RoleName=role)["Role"]
    except AwsError as error:
        if error.kind != "not_found":
            raise
        return Check(name, MISSING, "there is none of this name", "Make it, or set aws.role_arn.")
    if found["Arn"] != role_arn:
        return Check(name, MISSING, f"the account's own is {found['Arn']}", "Set aws.role_arn to it.")
    if not trusts(found.get("AssumeRolePolicyDocument") or {}, SERVICE):
        remedy = f"Let {SERVICE} assume it (sts:AssumeRole in its trust policy)."
        return Check(name, MISSING, f"does not trust {SERVICE}", remedy)
    return Check(name, OK, f"trusts {SERVICE}")


def trusts(policy: Mapping[str, Any], service: str) -> bool:
    """Whether a trust policy lets a service assume the role. Conditions are not looked at."""
    for statement in _listed(policy.get("Statement")):
        principal = statement.get("Principal")
        services = ["*"] if principal == "*" else _listed((principal or {}).get("Service"))
        actions = _listed(statement.get("Action"))
        is_named = {"*", service} & {*services} and {"*", "sts:*", "sts:AssumeRole"} & {*actions}
        if statement.get("Effect") == "Allow" and is_named:
            return True
    return False


def function_check(account: Account, function_arn: str) -> Check:
    """The function exists, in the region of the pipeline."""
    name = f"function {function_arn}"
    try:
        state = account.call("lambda", "GetFunction", FunctionName=function_arn)["Configuration"].get("State", "Active")
    except AwsError as error:
        if error.kind != "not_found":
            raise
        return Check(name, MISSING, "there is none of this name", "Deploy it, or set aws.resolve_inputs_function_arn.")
    # Inactive: idle for long; the next call wakes it.
    is_usable = state in ("Active", "Inactive")
    return Check(name, OK if is_usable else MISSING, state, "" if is_usable else "Wait for it, or deploy it again.")


def image_check(account: Account, image: str) -> Check:
    """The image lies in ECR, in the region of the jobs, under its digest."""
    name, parts = f"image {image}", IMAGE.fullmatch(image)
    if parts is None:
        return Check(name, MISSING, "no image of ECR", "Push it to ECR: jobs take images from there alone.")
    if parts["region"] != account.region:
        return Check(name, MISSING, f"in region {parts['region']}", f"Push it to ECR in {account.region}.")
    wanted = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"]}
    try:
        answer = account.call(
            "ecr", "BatchGetImage", registryId=parts["registry"], repositoryName=parts["repository"],
            imageIds=[wanted], acceptedMediaTypes=list(MANIFESTS),
        )  # fmt: skip
    except AwsError as error:
        if error.kind != "not_found":
            raise
        return Check(name, MISSING, "there is no such repository", "Make it and push the image (docs/containers.md).")
    if not answer.get("images"):
        reasons = [failure.get("failureCode", "") for failure in answer.get("failures", [])]
        return Check(name, MISSING, ", ".join(reasons) or "not there", "Push the image (docs/containers.md).")
    return Check(name, OK, "there")


def code_check(account: Account, uri: str) -> Check:
    """A step's code archive lies where its job looks for it."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        size = account.call("s3", "HeadObject", Bucket=bucket, Key=key)["ContentLength"]
    except AwsError as error:
        if error.kind != "not_found":
            raise
        return Check(f"code {uri}", MISSING, "not there", "Send it: langadapt push code, or langadapt upsert.")
    return Check(f"code {uri}", OK, size_text(size))


def data_check(account: Account, uri: str, steps: Sequence[str]) -> Check:
    """Something lies at a URI that steps read; where it was pushed, all of it."""
    name = f"data {uri}"
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    page = account.call("s3", "ListObjectsV2", Bucket=bucket, Prefix=prefix)
    files = [item for item in page.get("Contents", []) if not item["Key"].endswith("/")]
    if not files:
        remedy = "Push it (langadapt push) and start with the parameter that it prints."
        return Check(name, MISSING, f"nothing there for {', '.join(steps)}", remedy)
    if PUSHED.fullmatch(prefix) and not _is_there(account, bucket, f"{prefix.rstrip('/')}.json"):
        return Check(name, MISSING, "pushed in part", "Give the same langadapt push again: it goes on.")
    try:
        refuse_several_pushes(uri, (relative_key(item["Key"], prefix) or "" for item in files))
    except ResolveInputsError as error:
        return Check(name, MISSING, f"{error.value}; limit {error.limit}", error.remedy)
    count = f"{len(files):,}{' or more' if page.get('IsTruncated') else ''} file{'s' if len(files) > 1 else ''}"
    return Check(name, OK, f"{count}, {size_text(sum(item['Size'] for item in files))}")


def offering_checks(account: Account, instance_types: Sequence[str], subnets: Sequence[str]) -> list[Check]:
    """Each instance type is offered in a zone of the region, or of the subnets where there are some."""
    if not instance_types:
        return []
    zones = None
    if subnets:
        found = account.pages("ec2", "DescribeSubnets", "Subnets", SubnetIds=list(subnets))
        zones = {subnet["AvailabilityZone"] for subnet in found}
    offered: dict[str, set[str]] = {}
    wanted = [{"Name": "instance-type", "Values": [kind.removeprefix("ml.") for kind in instance_types]}]
    for entry in account.pages("ec2", "DescribeInstanceTypeOfferings", "InstanceTypeOfferings",
                               LocationType="availability-zone", Filters=wanted):  # fmt: skip
        offered.setdefault(f"ml.{entry['InstanceType']}", set()).add(entry["Location"])
    checks = []
    for kind in instance_types:
        have = offered.get(kind, set())
        usable = have if zones is None else have & zones
        if usable:
            checks.append(Check(f"instance type {kind}", OK, f"offered in {', '.join(sorted(usable))}"))
        elif have and zones is not None:
            value = f"offered in {', '.join(sorted(have))}, the subnets are in {', '.join(sorted(zones))}"
            remedy = "Name a subnet in one of these zones in aws.subnets."
            checks.append(Check(f"instance type {kind}", MISSING, value, remedy))
        else:
            remedy = "Take another type, or another region."
            checks.append(Check(f"instance type {kind}", MISSING, f"not offered in {account.region}", remedy))
    return checks


def quota_checks(account: Account, needs: Sequence[QuotaNeed]) -> list[Check]:
    """Each quota allows the instances that steps take side by side. What is in use elsewhere is not known."""
    names = {need.quota_name for need in needs}
    quotas = _quotas(account, "ListServiceQuotas", names)
    if names - quotas.keys():
        # Quotas that were never changed may be in the list of the defaults alone.
        quotas = _quotas(account, "ListAWSDefaultServiceQuotas", names - quotas.keys()) | quotas
    return [_quota_check(need, quotas.get(need.quota_name)) for need in needs]


def _quotas(account: Account, operation: str, names: set[str]) -> dict[str, tuple[float, str]]:
    """Value and code by name."""
    entries = account.pages("service-quotas", operation, "Quotas", ServiceCode="sagemaker")
    return {
        entry["QuotaName"]: (entry["Value"], entry["QuotaCode"]) for entry in entries if entry["QuotaName"] in names
    }


def _quota_check(need: QuotaNeed, quota: tuple[float, str] | None) -> Check:
    name, steps = f"quota {need.quota_name}", " and ".join(need.steps)
    wanted = f"{need.instances} for {steps}{' side by side' if len(need.steps) > 1 else ''}"
    if quota is None:
        return Check(name, MISSING, f"not listed; {wanted}", "Take an instance type that SageMaker has here.")
    value, code = quota
    if value >= need.instances:
        return Check(name, OK, f"{value:g}; {wanted}")
    remedy = f"Ask for {need.instances} (Service Quotas, Amazon SageMaker, {code})"
    if len(need.steps) > 1:
        remedy += ", or set aws.max_parallel_steps to 1"
    return Check(name, MISSING, f"{value:g}; {wanted}", f"{remedy}.")


def _is_there(account: Account, bucket: str, key: str) -> bool:
    try:
        account.call("s3", "HeadObject", Bucket=bucket, Key=key)
    except AwsError as error:
        if error.kind == "not_found":
            return False
        raise
    return True


def _listed(value: Any) -> list[Any]:
    """A member of a policy that may be one value or a list of them."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
