"""How a registered version is served: the environment of a server's image. The only file that knows the servers' names.

Both servers load the model's folder as transformers does, from /opt/ml/model, where SageMaker puts what the package
names. Neither gets a setting that the folder has itself: ends of turn, chat template, ties, rotary positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from containers.instance_types import INSTANCE_TYPES
from pipeline.config_sections import ServingSection
from pipeline.regions import is_elsewhere
from steps.contract import ConfigError

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig

MODEL_FOLDER = "/opt/ml/model"
PUBLIC_GALLERY = "public.ecr.aws/"
# Nothing is to be fetched: endpoints in a VPC may not reach the Hub, and what it has may change.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Engine:
    """Names of a server's environment variables, and how it spells a dtype and a yes."""

    model: str
    devices: str
    context_tokens: str
    dtype: str
    trust_remote_code: str
    dtype_names: Mapping[str, str]


ENGINES = {
    # DJL Serving's Large Model Inference: its own settings, and under OPTION_ all of vLLM's.
    "djl-lmi": Engine(
        model="HF_MODEL_ID",
        devices="OPTION_TENSOR_PARALLEL_DEGREE",
        context_tokens="OPTION_MAX_MODEL_LEN",
        dtype="OPTION_DTYPE",
        trust_remote_code="OPTION_TRUST_REMOTE_CODE",
        dtype_names={"bfloat16": "bf16", "float16": "fp16"},
    ),
    # AWS' image of vLLM for SageMaker: SM_VLLM_X_Y becomes the option --x-y of `vllm serve`.
    "vllm": Engine(
        model="SM_VLLM_MODEL",
        devices="SM_VLLM_TENSOR_PARALLEL_SIZE",
        context_tokens="SM_VLLM_MAX_MODEL_LEN",
        dtype="SM_VLLM_DTYPE",
        trust_remote_code="SM_VLLM_TRUST_REMOTE_CODE",
        dtype_names={"bfloat16": "bfloat16", "float16": "float16"},
    ),
}


def check_serving(section: ServingSection, region: str) -> None:
    """Raises ConfigError for an image that an endpoint in the region cannot take, and for more GPUs than an instance
    has. A placeholder may be of any region, an instance type that is not in the table of any size."""
    uri = section.image_uri
    if is_elsewhere(uri, region) or uri.startswith(PUBLIC_GALLERY):
        remedy = "Copy the image there and name it by its digest (docs/serving.md)."
        raise ConfigError("serving.image_uri", uri, limit=f"an image in ECR in aws.region {region}", remedy=remedy)
    for name in section.instance_types:
        known = INSTANCE_TYPES.get(name)
        if known is not None and section.tensor_parallel_devices > known.gpus:
            limit = f"the GPUs of {name}, {known.gpus}"
            remedy = "Lower it, or leave that type out of serving.instance_types."
            subject = "serving.tensor_parallel_devices"
            raise ConfigError(subject, section.tensor_parallel_devices, limit=limit, remedy=remedy)


def serving_environment(config: PipelineConfig) -> dict[str, str]:
    """What the server of a configuration is told, by the names of its engine."""
    section, engine = config.serving, ENGINES[config.serving.engine]
    environment = {engine.model: MODEL_FOLDER, engine.devices: str(section.tensor_parallel_devices), **OFFLINE}
    if section.max_context_tokens is not None:
        environment[engine.context_tokens] = str(section.max_context_tokens)
    if section.dtype != "auto":
        environment[engine.dtype] = engine.dtype_names[section.dtype]
    if config.data.trust_remote_code:
        environment[engine.trust_remote_code] = "true"
    return environment
