"""What of the aws section is still a placeholder: good for an offline compile, nothing that a request may name."""

from __future__ import annotations

from pipeline.config import AwsSection, PipelineConfig
from steps.contract import ConfigError


def own_bucket(settings: PipelineConfig) -> str:
    """The configured bucket. Raises ConfigError where it is the placeholder."""
    return _own("bucket", settings.aws.bucket)


def _own(name: str, value: str) -> str:
    if value == AwsSection.model_fields[name].default:
        remedy = f"Set aws.{name} in a configuration (--config FILE), or with --set aws.{name}=..."
        raise ConfigError(f"aws.{name}", value, limit="your own, no placeholder", remedy=remedy)
    return value
