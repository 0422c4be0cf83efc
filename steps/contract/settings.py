"""A step's settings: one flat frozen model, read from texts and written as texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import pydantic

from steps.contract.errors import ConfigError, nearest_name

_LIST_REMEDY = 'Write it as [1, 2] or ["a", "b"].'
# What every library that draws takes.
LARGEST_SEED = 2**32 - 1


class StepConfig(pydantic.BaseModel):
    """Base of every step's settings: frozen, no unknown fields, no NaN or infinity."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def parse_config(config_type: type[StepConfig], values: Mapping[str, str]) -> StepConfig:
    """The settings from their texts: lists and optional values in JSON, everything else as pydantic reads a text.

    Raises ConfigError that names the first field at fault.
    """
    parsed: dict[str, Any] = {}
    for name, text in values.items():
        known = config_type.model_fields.get(name)
        parsed[name] = text
        if known is not None and is_list(known.annotation) and not text.startswith("["):
            raise ConfigError(name, text, limit="a JSON list", remedy=_LIST_REMEDY)
        if known is not None and (
            text.startswith("[") or (text == "null" and type(None) in get_args(known.annotation))
        ):
            try:
                parsed[name] = json.loads(text)
            except ValueError as error:
                raise ConfigError(name, text, limit="a JSON list", remedy=_LIST_REMEDY) from error
    try:
        return config_type.model_validate(parsed)
    except pydantic.ValidationError as error:
        raise ConfigError(*describe_validation_error(error), remedy=_remedy(error, config_type)) from error


def is_list(annotation: Any) -> bool:
    """Whether a setting takes several values."""
    return get_origin(annotation) in (tuple, list)


def choices(annotation: Any) -> tuple[str, ...]:
    """The values that a setting, or each of a list, may have; empty where they are not a few words."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is Literal:
            return tuple(map(str, get_args(part)))
    return ()


def describe_validation_error(error: pydantic.ValidationError) -> tuple[str, str]:
    """Dotted field and `value (what is wrong)` of the first error that pydantic found."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "settings"
    return where, f"{first['input']!r} ({first['msg']})"


def _remedy(error: pydantic.ValidationError, config_type: type[StepConfig]) -> str:
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return nearest_name(str(first["loc"][-1]), config_type.model_fields)
    return "Change this setting."


def config_arguments(config: StepConfig) -> dict[str, str]:
    """The settings as the texts that `parse_config` reads back: hyperparameters or command line flags."""
    texts: dict[str, str] = {}
    for name, value in config.model_dump(mode="json").items():
        texts[name] = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return texts
