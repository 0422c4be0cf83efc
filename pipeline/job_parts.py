"""The parts of a job's request: inputs, outputs, channels, flags and metrics in the SageMaker SDK's shapes."""

from __future__ import annotations

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.shapes import (
    Channel,
    DataSource,
    MetricDefinition,
    ProcessingInput,
    ProcessingOutput,
    ProcessingS3Input,
    ProcessingS3Output,
    S3DataSource,
)
from sagemaker.core.workflow.functions import Join

from steps.contract import METRICS_LINE_PREFIX

PROCESSING_FOLDER = "/opt/ml/processing"
OUTPUT_NAME = "output"
NUMBER_PATTERN = r"([0-9.eE+-]+)"


def metric_definition(name: str) -> MetricDefinition:
    """Reads one value out of a line such as `metrics: step=20 phase=2 loss=3.1`."""
    return MetricDefinition(name=name, regex=f"{METRICS_LINE_PREFIX}(?:.* )?{name}={NUMBER_PATTERN}")


def flag(name: str, value: str | PipelineVariable) -> str | PipelineVariable:
    """`--name=value`; a value of the execution is joined in by the service."""
    return Join("", [f"--{name}=", value]) if isinstance(value, PipelineVariable) else f"--{name}={value}"


def processing_input(name: str, uri: str | PipelineVariable) -> ProcessingInput:
    source = ProcessingS3Input(
        s3_uri=uri,
        local_path=f"{PROCESSING_FOLDER}/input/{name}",
        s3_data_type="S3Prefix",
        s3_input_mode="File",
        s3_data_distribution_type="FullyReplicated",
    )
    return ProcessingInput(input_name=name, s3_input=source)


def processing_output(uri: PipelineVariable) -> ProcessingOutput:
    target = ProcessingS3Output(s3_uri=uri, local_path=f"{PROCESSING_FOLDER}/output", s3_upload_mode="EndOfJob")
    return ProcessingOutput(output_name=OUTPUT_NAME, s3_output=target)


def channel(name: str, uri: str | PipelineVariable) -> Channel:
    source = S3DataSource(s3_data_type="S3Prefix", s3_uri=uri, s3_data_distribution_type="FullyReplicated")
    return Channel(channel_name=name, data_source=DataSource(s3_data_source=source), input_mode="File")
