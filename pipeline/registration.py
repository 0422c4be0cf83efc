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

from pipeline.config import PipelineConfig
from pipeline.parameters import Parameters

# What serving containers read: where the model's folder lies, and that nothing is to be fetched.
SERVING_ENVIRONMENT = {"HF_MODEL_ID": "/opt/ml/model", "HF_HUB_OFFLINE": "1"}


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
    """Arguments of a ModelStep that registers an uncompressed model folder.

    model_uri: the folder, with its final slash. evaluation_uri: the folder that holds evaluation.json.
    metadata: what a person approves from; texts of at most 256 characters, at most 50 of them.
    """
    source = {"S3Uri": model_uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {
        "Image": parameters.image_uri,
        "ModelDataSource": {"S3DataSource": source},
        "Environment": dict(SERVING_ENVIRONMENT),
    }
    statistics = {"ContentType": "application/json", "S3Uri": Join("/", [evaluation_uri, "evaluation.json"])}
    session.init_model_step_arguments(RegisteredModel(session))
    create_model_package_from_containers(
        session,
        containers=[container],
        content_types=["application/json"],
        response_types=["application/json"],
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
