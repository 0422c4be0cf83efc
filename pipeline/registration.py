"""What a model version carries into the registry: the model's folder, its image, its metrics and its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.model_registry import create_model_package_from_containers
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.core.workflow.pipeline_context import PipelineSession

from pipeline.config import PipelineConfig, placeless_digest
from pipeline.jobs import Jobs
from pipeline.measurements import evaluated, fertility
from pipeline.parameters import Parameters
from pipeline.registry import SETTINGS_MEMBER
from pipeline.serving import serving_environment
from steps.schemas.model_quality import STATISTICS_FILE


@dataclass(frozen=True)
class RegisteredModel:
    """The object with a session that ModelStep asks for; the SDK's ModelBuilder could add a repacking job here."""

    sagemaker_session: PipelineSession


def registration_arguments(
    config: PipelineConfig,
    session: PipelineSession,
    parameters: Parameters,
    *,
    model_uri: PipelineVariable,
    evaluation_uri: PipelineVariable,
    metadata: Mapping[str, str | PipelineVariable],
) -> Any:
    """Arguments of a ModelStep that registers an uncompressed model folder and how it is served.

    model_uri: the folder, with its final slash. evaluation_uri: the folder of Evaluate, which holds
    the statistics that Studio shows beside the version. metadata: see `model_metadata`.
    """
    source = {"S3Uri": model_uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {
        # Not the image that trained it, which has no server.
        "Image": config.serving.image_uri,
        "ModelDataSource": {"S3DataSource": source},
        "Environment": serving_environment(config),
    }
    statistics = {"ContentType": "application/json", "S3Uri": Join("/", [evaluation_uri, STATISTICS_FILE])}
    session.init_model_step_arguments(RegisteredModel(session))
    create_model_package_from_containers(
        session,
        containers=[container],
        content_types=["application/json"],
        response_types=["application/json"],
        inference_instances=list(config.serving.instance_types),
        model_package_group_name=config.aws.model_package_group,
        approval_status=parameters.model_approval_status,
        model_metrics={"ModelQuality": {"Statistics": statistics}},
        metadata_properties={"GeneratedBy": ExecutionVariables.PIPELINE_EXECUTION_ARN},
        customer_metadata_properties=dict(metadata),
    )
    arguments = session.context
    # The session holds one capture at a time: the next step must begin its own.
    session.context = None
    return arguments


def model_metadata(
    jobs: Jobs, parameters: Parameters, resolved: Mapping[str, PipelineVariable]
) -> dict[str, str | PipelineVariable]:
    """What a person approves from and what made the model; at most 50 texts of at most 256 characters.

    resolved: ResolveInputs' outputs.
    """
    figures = {
        "bits_per_byte.base": evaluated("bits_per_byte.base"),
        "bits_per_byte.pretrained": evaluated("bits_per_byte.pretrained"),
        "bits_per_byte.candidate": evaluated("bits_per_byte.candidate"),
        "bits_per_byte.improvement": evaluated("bits_per_byte.improvement"),
        "bits_per_byte.improvement_low": evaluated("bits_per_byte.improvement_ci95[0]"),
        "bits_per_byte.improvement_high": evaluated("bits_per_byte.improvement_ci95[1]"),
        "champion.bits_per_byte": evaluated("champion.bits_per_byte"),
        "champion.improvement": evaluated("champion.improvement"),
        "champion.improvement_low": evaluated("champion.improvement_ci95[0]"),
        "documents": evaluated("documents"),
        "text_sha256": evaluated("text_sha256"),
        "tokenizer": fertility("chosen"),
        "tokens_per_word.base": fertility("tokens_per_word.base"),
        "tokens_per_word.chosen": fertility("tokens_per_word.chosen"),
    }
    if parameters.max_retention_loss is not None:
        figures["retention.loss"] = evaluated("retention.loss")
    if jobs.config.ablation:
        figures["ablation.improvement"] = evaluated("ablation.equal_bytes.improvement")
        figures["ablation.improvement_low"] = evaluated("ablation.equal_bytes.improvement_ci95[0]")
        figures["ablation.improvement_high"] = evaluated("ablation.equal_bytes.improvement_ci95[1]")
    return {
        **{name: figure.to_string() for name, figure in figures.items()},
        "champion.present": resolved["champion_present"],
        "champion_digest": resolved["champion_digest"],
        **{f"{name}_digest": resolved[f"{name}_digest"] for name in parameters.user_data()},
        **{f"code.{step}": digest for step, digest in jobs.code_digests.items()},
        # All settings that made the model: with its content, what tells it from another version.
        SETTINGS_MEMBER: jobs.lineages["FineTune"].settings_digest,
        # The same with all code: where it comes from.
        "recipe_sha256": jobs.lineages["FineTune"].digest,
        "config_sha256": placeless_digest(jobs.config),
        "image": parameters.image_uri,
        "serving_engine": jobs.config.serving.engine,
        "serving_image": jobs.config.serving.image_uri,
        "execution_id": ExecutionVariables.PIPELINE_EXECUTION_ID,
    }
