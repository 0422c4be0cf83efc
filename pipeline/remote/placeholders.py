"""Which settings of a configuration still are the placeholders that an offline compile is content with."""

from __future__ import annotations

from pipeline.config import PipelineConfig
from pipeline.config_sections import PLACEHOLDER_ACCOUNT
from steps.contract import ConfigError

# Settings that a definition carries into the account.
OWN_SETTINGS = (
    "aws.bucket", "aws.role_arn", "aws.resolve_inputs_function_arn", "aws.image_uri", "serving.image_uri",
)  # fmt: skip


def placeholders(config: PipelineConfig, settings: tuple[str, ...] = OWN_SETTINGS) -> dict[str, str]:
    """The settings, of those named, whose value is a placeholder, with that value."""
    found = {}
    for name in settings:
        section, _, field = name.partition(".")
        value = str(getattr(getattr(config, section), field))
        if "langadapt-placeholder" in value or f"{PLACEHOLDER_ACCOUNT}" in value:
            found[name] = value
    return found


def refuse_placeholders(config: PipelineConfig, settings: tuple[str, ...] = OWN_SETTINGS) -> None:
    """Raises ConfigError that names every setting that still is a placeholder."""
    found = placeholders(config, settings)
    if found:
        first, value = next(iter(found.items()))
        remedy = f"Set {' and '.join([', '.join([*found][:-1]), [*found][-1]] if len(found) > 1 else found)}."
        raise ConfigError(first, f"{value} is a placeholder", limit="your account's own", remedy=remedy)
