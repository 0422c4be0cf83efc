"""The pipeline's parameters: what Studio's form shows, each with a default from the configuration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import get_args

from sagemaker.core.workflow.parameters import (
    Parameter,
    ParameterBoolean,
    ParameterFloat,
    ParameterInteger,
    ParameterString,
)

from pipeline.config import PipelineConfig


@dataclass(frozen=True)
class Parameters:
    """In the order of the form. Those of the source corpus, of the extra held-out text and of questions exist only
    with them."""

    corpus_uri: ParameterString
    conversations_uri: ParameterString
    base_model_uri: ParameterString
    source_corpus_uri: ParameterString | None
    extra_heldout_uri: ParameterString | None
    accuracy_uri: ParameterString | None
    image_uri: ParameterString
    model_approval_status: ParameterString
    max_bits_per_byte: ParameterFloat
    min_improvement: ParameterFloat
    max_retention_loss: ParameterFloat | None
    continued_pretraining_instance_type: ParameterString
    continued_pretraining_instance_count: ParameterInteger
    fine_tune_instance_type: ParameterString
    evaluate_instance_type: ParameterString
    allow_concurrent: Parameter

    @classmethod
    def of(cls, config: PipelineConfig) -> Parameters:
        """The parameters of a configuration and their defaults."""
        data, compute, thresholds = config.data, config.compute, config.thresholds
        statuses = list(get_args(type(config).model_fields["model_approval_status"].annotation))
        retention = None if data.source_corpus is None else thresholds.max_retention_loss
        return cls(
            corpus_uri=ParameterString("CorpusUri", input_uri(config, "corpus")),
            conversations_uri=ParameterString("ConversationsUri", input_uri(config, "conversations")),
            base_model_uri=ParameterString("BaseModelUri", input_uri(config, "base_model")),
            source_corpus_uri=None
            if data.source_corpus is None
            else ParameterString("SourceCorpusUri", input_uri(config, "source_corpus")),
            extra_heldout_uri=None
            if data.extra_heldout is None
            else ParameterString("ExtraHeldoutUri", input_uri(config, "extra_heldout")),
            accuracy_uri=None
            if data.accuracy is None
            else ParameterString("AccuracyUri", input_uri(config, "accuracy")),
            image_uri=ParameterString("ImageUri", config.aws.image_uri),
            model_approval_status=ParameterString(
                "ModelApprovalStatus", config.model_approval_status, enum_values=statuses
            ),
            max_bits_per_byte=ParameterFloat("MaxBitsPerByte", thresholds.max_bits_per_byte),
            min_improvement=ParameterFloat("MinImprovement", thresholds.min_improvement),
            max_retention_loss=None if retention is None else ParameterFloat("MaxRetentionLoss", retention),
            continued_pretraining_instance_type=ParameterString(
                "ContinuedPretrainingInstanceType", compute.continued_pretraining.instance_type
            ),
            continued_pretraining_instance_count=ParameterInteger(
                "ContinuedPretrainingInstanceCount", compute.continued_pretraining.instance_count
            ),
            fine_tune_instance_type=ParameterString("FineTuneInstanceType", compute.fine_tune.instance_type),
            evaluate_instance_type=ParameterString("EvaluateInstanceType", compute.evaluate_model.instance_type),
            allow_concurrent=ParameterBoolean("AllowConcurrent", default_value=False),
        )

    def declared(self) -> list[Parameter]:
        """The parameters that this pipeline has. Raises TypeError for anything else, which the SDK drops silently."""
        values = [getattr(self, item.name) for item in dataclasses.fields(self)]
        declared = [value for value in values if value is not None]
        for value in declared:
            if not isinstance(value, Parameter):
                raise TypeError(f"no pipeline parameter: {value!r}")
        return declared

    def user_data(self) -> dict[str, ParameterString]:
        """URIs of the data that a user gives, by the name that steps know it under."""
        named = {
            "corpus": self.corpus_uri,
            "conversations": self.conversations_uri,
            "base_model": self.base_model_uri,
            "source_corpus": self.source_corpus_uri,
            "extra_heldout": self.extra_heldout_uri,
            "accuracy": self.accuracy_uri,
        }
        return {name: uri for name, uri in named.items() if uri is not None}

    def texts(self) -> dict[str, ParameterString]:
        """The part of the user's data that is running text."""
        texts = ("corpus", "source_corpus", "extra_heldout")
        return {name: uri for name, uri in self.user_data().items() if name in texts}

    def questions(self) -> dict[str, ParameterString]:
        """The part of the user's data that accuracy is measured on."""
        return {} if self.accuracy_uri is None else {"accuracy": self.accuracy_uri}


def input_uri(config: PipelineConfig, name: str) -> str:
    """The default URI of a user's data: the configured one where it is an s3:// URI, else a place in our bucket.

    A path of this machine is never in a definition; the local runner passes what it maps the URI to.
    """
    configured = getattr(config.data, name)
    if configured is not None and configured.startswith("s3://"):
        return configured
    return f"s3://{config.aws.bucket}/{config.aws.prefix}/inputs/{name}/"
