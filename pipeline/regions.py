"""What an account's jobs take from their own region alone: images in ECR, functions, keys.

SageMaker refuses an image of another region when a job is created ("Cross region ECR image pulls are not allowed");
Lambda reaches no function, and KMS no key, of another one. A placeholder may be of any region.
"""

from __future__ import annotations

import re

from pipeline.config_sections import PLACEHOLDER_ACCOUNT, AwsSection
from steps.contract import ConfigError

IN_ECR = re.compile(r"(?P<account>\d{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.")
BY_ARN = re.compile(r"arn:[a-z-]+:(lambda|kms):(?P<region>[a-z0-9-]+):(?P<account>\d{12}):")


def region_of(address: str) -> str:
    """The region of an image in ECR, or of a function or key by its ARN; empty of all else, and of placeholders."""
    found = IN_ECR.match(address) or BY_ARN.match(address)
    return "" if found is None or found["account"] == PLACEHOLDER_ACCOUNT else found["region"]


def is_elsewhere(address: str, region: str) -> bool:
    """Whether it is known to lie in another region."""
    return region_of(address) not in ("", region)


def check_regions(aws: AwsSection) -> None:
    """Raises ConfigError for an image, a function or a key of another region than the account's section names."""
    if is_elsewhere(aws.image_uri, aws.region):
        limit, remedy = f"an image in ECR in aws.region {aws.region}", "Copy it there (docs/containers.md)."
        raise ConfigError("aws.image_uri", aws.image_uri, limit=limit, remedy=remedy)
    if is_elsewhere(aws.resolve_inputs_function_arn, aws.region):
        arn, limit = aws.resolve_inputs_function_arn, f"a function in aws.region {aws.region}"
        raise ConfigError("aws.resolve_inputs_function_arn", arn, limit=limit, remedy="Deploy it there.")
    if aws.kms_key_id is not None and is_elsewhere(aws.kms_key_id, aws.region):
        limit = f"a key in aws.region {aws.region}"
        raise ConfigError("aws.kms_key_id", aws.kms_key_id, limit=limit, remedy="Name one of that region.")
