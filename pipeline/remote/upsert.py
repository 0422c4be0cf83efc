"""`langadapt upsert`: the compiled definition as a pipeline of the account, created or brought up to date."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.code_upload import upload_code
from pipeline.remote.definition_changes import definition_changes
from pipeline.remote.placeholders import refuse_placeholders
from pipeline.remote.writes import Writes, encryption, request_token

# Beyond it a definition goes by way of the bucket; the SageMaker SDK draws the line there, too.
MAX_INLINE_BYTES = 100 * 1024
# Of a pipeline, beside its definition: member of a request and what a deployed one without it counts as.
SETTINGS: dict[str, Any] = {
    "PipelineDisplayName": None, "PipelineDescription": "", "RoleArn": None, "ParallelismConfiguration": None,
}  # fmt: skip


@dataclass
class Upserted:
    """outcome: created, updated or unchanged.  changes: a line for each.  archives: URIs of those that were sent."""

    pipeline: str
    outcome: str
    arn: str = ""
    changes: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)


def upsert(config: PipelineConfig, writes: Writes) -> Upserted:
    """Compiles the definition, sends the code that the bucket lacks, creates or updates the pipeline.

    Raises ConfigError for a placeholder or a finding of the lint, AwsError and StepError as the requests do.
    """
    from pipeline.compile import compile_definition
    from pipeline.local.run import STEP_MODULES

    refuse_placeholders(config)
    definition = compile_definition(config)
    account = writes.account
    deployed = deployed_pipeline(account, config.aws.pipeline_name)
    archives = upload_code(config, STEP_MODULES, account, writes)
    settings = pipeline_settings(config)
    if deployed is None:
        return _create(config, definition, settings, archives, writes)
    changes = definition_changes(json.loads(deployed["PipelineDefinition"]), json.loads(definition))
    changes += setting_changes(deployed, settings)
    changes += _set_tags(config, deployed["PipelineArn"], writes)
    result = Upserted(config.aws.pipeline_name, "unchanged", deployed["PipelineArn"], changes, archives)
    if not changes:
        return result
    result.outcome = "updated"
    if any(not line.startswith("tag ") for line in changes):
        name = config.aws.pipeline_name
        writes.send("sagemaker", "UpdatePipeline", PipelineName=name, **settings,
                    **definition_arguments(config, definition, writes))  # fmt: skip
    return result


def deployed_pipeline(account: Account, name: str) -> dict[str, Any] | None:
    """The pipeline as DescribePipeline tells it, None where there is none. Raises AwsError."""
    try:
        return account.call("sagemaker", "DescribePipeline", PipelineName=name)
    except AwsError as error:
        if error.kind == "not_found":
            return None
        raise


def pipeline_settings(config: PipelineConfig) -> dict[str, Any]:
    """What a pipeline has beside its definition, as members of the request."""
    settings: dict[str, Any] = {
        "PipelineDisplayName": config.aws.pipeline_name,
        "PipelineDescription": f"langadapt, {config.preset}: an open foundation model adapted to a new language, "
        "measured, and registered only if it is better.",
        "RoleArn": config.aws.pipeline_role_arn or config.aws.role_arn,
    }
    if config.aws.max_parallel_steps is not None:
        settings["ParallelismConfiguration"] = {"MaxParallelExecutionSteps": config.aws.max_parallel_steps}
    return settings


def setting_changes(deployed: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """`name old -> new` of each setting that is to be another. One that is not given stays as it is deployed."""
    return [
        f"{name}: {deployed.get(name, absent) or '(none)'} -> {settings[name]}"
        for name, absent in SETTINGS.items()
        if name in settings and deployed.get(name, absent) != settings[name]
    ]


def definition_arguments(config: PipelineConfig, definition: str, writes: Writes) -> dict[str, Any]:
    """The members of the request that carry a definition; a large one is put into the bucket first."""
    content = json.dumps(json.loads(definition), ensure_ascii=False, separators=(",", ":"))
    encoded = content.encode()
    if len(encoded) <= MAX_INLINE_BYTES:
        return {"PipelineDefinition": content}
    key = f"{config.aws.prefix}/definitions/{hashlib.sha256(encoded).hexdigest()}.json"
    writes.send("s3", "PutObject", Bucket=config.aws.bucket, Key=key, Body=encoded, ContentType="application/json",
                ChecksumAlgorithm="SHA256", **encryption(config.aws.kms_key_id))  # fmt: skip
    return {"PipelineDefinitionS3Location": {"Bucket": config.aws.bucket, "ObjectKey": key}}


def _create(
    config: PipelineConfig, definition: str, settings: dict[str, Any], archives: list[str], writes: Writes
) -> Upserted:
    name = config.aws.pipeline_name
    request = {"PipelineName": name, **settings, **definition_arguments(config, definition, writes)}
    if config.aws.tags:
        request["Tags"] = _tag_list(config.aws.tags)
    answer = writes.send("sagemaker", "CreatePipeline", **request, ClientRequestToken=request_token("create", request))
    return Upserted(name, "created", answer.get("PipelineArn", ""), [], archives)


def _set_tags(config: PipelineConfig, arn: str, writes: Writes) -> list[str]:
    """Sets the tags that the pipeline lacks or has with another value; others may have tags of their own on it."""
    if not config.aws.tags:
        return []
    rows = writes.account.pages("sagemaker", "ListTags", "Tags", ResourceArn=arn)
    there = {row["Key"]: row["Value"] for row in rows}
    wanted = {name: value for name, value in config.aws.tags.items() if there.get(name) != value}
    if wanted:
        writes.send("sagemaker", "AddTags", ResourceArn=arn, Tags=_tag_list(wanted))
    return [f"tag {name}: {there.get(name, '(none)')} -> {value}" for name, value in wanted.items()]


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": name, "Value": value} for name, value in tags.items()]
