"""Configuration -> the pipeline definition's JSON, offline and in a stable form.

Needs no credentials, opens no socket, leaves no trace of this machine, and gives the same bytes as long as the
configuration, the steps' code and the SDK are the same. Importing this module is light: the SageMaker SDK, seconds to
import, is imported when something is compiled.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.lint import check_definition
from pipeline.shown_texts import PARAMETER_TEXTS

# Settings of the surroundings that would change what is compiled, or make the SDK look for an account.
HIDDEN_PREFIXES = ("AWS_", "SAGEMAKER_", "BOTO_")


def compile_definition(config: PipelineConfig) -> str:
    """The definition as JSON text, ending in a newline, checked against the service's shapes and limits.

    Raises ConfigError that names the field at fault.
    """
    text = json.dumps(compile_document(config), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    check_definition(text)
    return text


def compile_document(config: PipelineConfig) -> dict[str, Any]:
    """The definition as plain values, not yet checked."""
    with offline_sdk(config) as session:
        from pipeline.definition import build_pipeline

        document = json.loads(build_pipeline(config, session).definition())
    # A definition has descriptions of parameters, the SDK's classes have none.
    for parameter in document["Parameters"]:
        parameter["Description"] = PARAMETER_TEXTS[parameter["Name"]]
    # The SDK writes null for what a pipeline does not have.
    return {key: value for key, value in document.items() if value is not None}


@contextmanager
def offline_sdk(config: PipelineConfig) -> Iterator[Any]:
    """The SageMaker SDK, imported and quick, with a PipelineSession that needs no account; all is restored after."""
    with offline(config.aws.region), quiet(), uncollected():
        from pipeline.offline_session import OfflineSession

        with unchecked_sdk_config():
            yield OfflineSession(config)


@contextmanager
def offline(region: str) -> Iterator[None]:
    """Surroundings in which the SDK finds a region and nothing else; all is as before at the end."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(HIDDEN_PREFIXES)}
    with ExitStack() as restore:
        restore.callback(_replace_variables, kept)
        _replace_variables(
            {
                # Importing the SDK builds clients: they ask for a region, and for credentials that they never use.
                "AWS_DEFAULT_REGION": region,
                "AWS_ACCESS_KEY_ID": "offline",
                "AWS_SECRET_ACCESS_KEY": "offline",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                # A configuration of the SDK on this machine must not get into the definition.
                "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": os.devnull,
                "SAGEMAKER_USER_CONFIG_OVERRIDE": os.devnull,
                "SAGEMAKER_VALIDATE_ROLE": "false",
            }
        )
        yield


def _replace_variables(values: dict[str, str]) -> None:
    """Makes `values` the only environment variables with a hidden prefix."""
    for name in [name for name in os.environ if name.startswith(HIDDEN_PREFIXES)]:
        del os.environ[name]
    os.environ.update(values)


@contextmanager
def unchecked_sdk_config() -> Iterator[None]:
    """Keeps the SDK from checking its own configuration, which we wrote, some thirty times (seconds)."""
    from sagemaker.core.config.config_manager import SageMakerConfig

    checks = SageMakerConfig.__dict__["validate_sagemaker_config"]
    try:
        SageMakerConfig.validate_sagemaker_config = staticmethod(lambda sagemaker_config=None: None)
        yield
    finally:
        SageMakerConfig.validate_sagemaker_config = checks


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps the garbage collector away: it would walk again and again over the SDK's classes, which stay until the end.

    A third of the time of an import; they are not looked at later either, nor when the program ends.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the SDK below errors: it narrates each default, and warns that a pipeline session starts no job."""
    level = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
