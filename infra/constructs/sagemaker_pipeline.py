"""The pipeline: the definition that pipeline/compile.py makes, with this account's names in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from pipeline.compile import compile_definition
from pipeline.config import PipelineConfig
from pipeline.config_sections import AwsSection, ServingSection

PLACEHOLDER_KEY = "arn:aws:kms:us-west-2:111122223333:key/langadapt-placeholder-key"
PLACEHOLDER_SUBNET = "subnet-langadapt-placeholder-"
PLACEHOLDER_SECURITY_GROUP = "sg-langadapt-placeholder"


@dataclass(frozen=True)
class DefinitionNames:
    """What of the account pipeline and definition name; texts of which all may be tokens."""

    bucket: str
    job_role_arn: str
    pipeline_role_arn: str
    resolve_inputs_arn: str
    image_uri: str
    key_arn: str
    serving_image_uri: str
    subnets: tuple[str, ...] = ()
    security_group: str | None = None


def with_placeholders(config: PipelineConfig, *, subnets: int) -> PipelineConfig:
    """The configuration whose definition has a placeholder for each name of the account that a token will take.

    A token is no text before it is resolved, and the definition is checked as a text. subnets: how many there are.
    """
    defaults = AwsSection()
    changes = {
        "bucket": defaults.bucket,
        "role_arn": defaults.role_arn,
        "resolve_inputs_function_arn": defaults.resolve_inputs_function_arn,
        "image_uri": defaults.image_uri,
        "kms_key_id": PLACEHOLDER_KEY,
        "subnets": tuple(f"{PLACEHOLDER_SUBNET}{number}" for number in range(subnets)),
        "security_group_ids": (PLACEHOLDER_SECURITY_GROUP,) if subnets else (),
    }
    return config.model_copy(update={"aws": config.aws.model_copy(update=changes)})


def definition_with_names(config: PipelineConfig, names: DefinitionNames) -> str:
    """The compact definition with the account's names in the place of the placeholders.

    config: as `with_placeholders` gives it. Raises ConfigError as compile_definition does.
    """
    text = json.dumps(json.loads(compile_definition(config)), ensure_ascii=False, separators=(",", ":"))
    defaults = AwsSection()
    replaced = {
        defaults.role_arn: names.job_role_arn,
        defaults.resolve_inputs_function_arn: names.resolve_inputs_arn,
        defaults.image_uri: names.image_uri,
        ServingSection().image_uri: names.serving_image_uri,
        PLACEHOLDER_KEY: names.key_arn,
        defaults.bucket: names.bucket,
        **{f"{PLACEHOLDER_SUBNET}{number}": subnet for number, subnet in enumerate(names.subnets)},
        **({PLACEHOLDER_SECURITY_GROUP: names.security_group} if names.security_group else {}),
    }
    for placeholder, name in replaced.items():
        text = text.replace(placeholder, name)
    assert "langadapt-placeholder" not in text, "a placeholder without a name"
    return text


class SagemakerPipeline(Construct):
    """The pipeline of the account, as Studio shows it. parameters: as its definition declares them."""

    def __init__(self, scope: Construct, construct_id: str, *, config: PipelineConfig, names: DefinitionNames) -> None:
        """config: as `with_placeholders` gives it."""
        super().__init__(scope, construct_id)
        aws = config.aws
        self.name = aws.pipeline_name
        body = definition_with_names(config, names)
        self.parameters: list[dict[str, Any]] = json.loads(body)["Parameters"]
        parallel = None if aws.max_parallel_steps is None else {"MaxParallelExecutionSteps": aws.max_parallel_steps}
        self.resource = sagemaker.CfnPipeline(
            self, "Pipeline",
            pipeline_name=aws.pipeline_name, pipeline_display_name=aws.pipeline_name,
            pipeline_description=f"langadapt, {config.preset}: an open foundation model adapted to a new language, "
            "measured, and registered only if it is better.",
            pipeline_definition={"PipelineDefinitionBody": body},
            role_arn=names.pipeline_role_arn, parallelism_configuration=parallel,
        )  # fmt: skip
