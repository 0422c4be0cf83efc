"""How a version is served: what the package names, by engine; what is refused of it; what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.compile import compile_definition
from pipeline.config import load_config
from pipeline.serving import ENGINES, MODEL_FOLDER, serving_environment
from steps.contract import ConfigError

# Every setting at once, and what each server is told of it.
ALL = ("serving.max_context_tokens=8192", "serving.dtype=bfloat16", "serving.tensor_parallel_devices=4",
       "serving.instance_types=[ml.g5.12xlarge]", "data.trust_remote_code=true")  # fmt: skip
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
TOLD = {
    "djl-lmi": {
        "HF_MODEL_ID": MODEL_FOLDER, "OPTION_TENSOR_PARALLEL_DEGREE": "4", "OPTION_MAX_MODEL_LEN": "8192",
        "OPTION_DTYPE": "bf16", "OPTION_TRUST_REMOTE_CODE": "true",
    },
    "vllm": {
        "SM_VLLM_MODEL": MODEL_FOLDER, "SM_VLLM_TENSOR_PARALLEL_SIZE": "4", "SM_VLLM_MAX_MODEL_LEN": "8192",
        "SM_VLLM_DTYPE": "bfloat16", "SM_VLLM_TRUST_REMOTE_CODE": "true",
    },
}  # fmt: skip


def registration(compiled: str) -> dict[str, Any]:
    (step,) = json.loads(compiled)["Steps"][-1]["Arguments"]["IfSteps"]
    return step["Arguments"]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_is_told_in_its_own_words(engine: str) -> None:
    config = load_config(overrides=[f"serving.engine={engine}", *ALL])
    assert serving_environment(config) == {**TOLD[engine], **OFFLINE}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_the_model_folder_says_itself_is_left_to_it(engine: str) -> None:
    """No code of the model's own, no length, no dtype, unless somebody asked for it."""
    found = serving_environment(load_config(overrides=[f"serving.engine={engine}"]))
    names = ENGINES[engine]
    assert found == {names.model: MODEL_FOLDER, names.devices: "1", **OFFLINE}
    assert not any("TRUST" in name for name in found)


@pytest.mark.parametrize(("preset", "engine"), [("azerbaijani-8b-p5", "djl-lmi"), ("laptop", "vllm")])
def test_the_package_names_a_server(compiled_text: Callable[..., str], preset: str, engine: str) -> None:
    """What compiles has passed the service's own shape of CreateModelPackage."""
    override = f"serving.engine={engine}"
    config = load_config(preset, overrides=[override])
    found = registration(compiled_text(preset, override))
    (container,) = found["InferenceSpecification"]["Containers"]
    assert container["Environment"] == serving_environment(config)
    assert container["Image"] == config.serving.image_uri != config.aws.image_uri
    types = found["InferenceSpecification"]["SupportedRealtimeInferenceInstanceTypes"]
    assert types == list(config.serving.instance_types)
    told = found["CustomerMetadataProperties"]
    assert (told["serving_engine"], told["serving_image"]) == (engine, config.serving.image_uri)
    assert len(told) <= 50


def test_what_serves_a_model_is_no_part_of_which_model_it_is(compiled_text: Callable[..., str]) -> None:
    image = "serving.image_uri=444455556666.dkr.ecr.us-west-2.amazonaws.com/lmi@sha256:" + "1" * 64
    before, after = (compiled_text("laptop", *more) for more in ((), ("serving.engine=vllm", image)))
    one, other = (registration(text)["CustomerMetadataProperties"] for text in (before, after))
    assert {name for name in one if one[name] != other[name]} == {"serving_engine", "serving_image", "config_sha256"}
    assert one["settings_sha256"] == other["settings_sha256"]
    # No job gets another argument, so that none runs again.
    jobs = [[step for step in json.loads(text)["Steps"] if step["Type"] != "Condition"] for text in (before, after)]
    assert jobs[0] == jobs[1]


def test_placeholders_are_known_by_their_name() -> None:
    """A compile needs no account; what sends the definition refuses what is named so."""
    config = load_config()
    for value in (config.aws.bucket, config.aws.role_arn, config.aws.image_uri, config.serving.image_uri):
        assert "placeholder" in value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("serving.engine=tgi", "serving.engine: 'tgi'; limit 'djl-lmi' or 'vllm'."),
        ("serving.image_uri=763104351884.dkr.ecr.us-west-2.amazonaws.com/vllm:1", "serving.image_uri: "),
        ("serving.instance_types=[]", "serving.instance_types: []; limit at least 1 in the list."),
        ("serving.instance_types=ml.g5.xlarge", "limit a list. Write it in brackets: [ml.g5.xlarge]."),
        ("serving.max_context_tokens=0", "serving.max_context_tokens: 0; limit greater than or equal to 16."),
        ("serving.dtype=float32", "serving.dtype: 'float32'; limit 'auto', 'bfloat16' or 'float16'."),
        ("serving.tensor_parallel=2", "serving.tensor_parallel: no such field. Did you mean tensor_parallel_devices?"),
    ],
)
def test_wrong_settings_are_named(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert words in str(caught.value)


DIGEST = f"@sha256:{'1' * 64}"


@pytest.mark.parametrize(
    "image", ["public.ecr.aws/djl/lmi", "444455556666.dkr.ecr.eu-west-1.amazonaws.com/lmi",
              "444455556666.dkr-ecr.eu-west-1.on.aws/lmi"]
)  # fmt: skip
def test_an_image_that_no_endpoint_of_the_region_can_take_is_refused(image: str) -> None:
    override = f"serving.image_uri={image}{DIGEST}"
    with pytest.raises(ConfigError, match=f"serving.image_uri: {image}{DIGEST}; limit an image in ECR in aws.region"):
        load_config(overrides=[override])
    if "eu-west-1" in image:
        assert load_config(overrides=[override, "aws.region=eu-west-1"]).serving.image_uri == image + DIGEST
    # The placeholder goes with any region.
    load_config(overrides=["aws.region=eu-west-1"])


def test_more_gpus_than_an_instance_has_are_refused() -> None:
    types = "serving.instance_types=[ml.g5.12xlarge, ml.g5.xlarge, ml.unheard.xlarge]"
    with pytest.raises(ConfigError, match=r"tensor_parallel_devices: 4; limit the GPUs of ml.g5.xlarge, 1. Lower it"):
        load_config(overrides=[types, "serving.tensor_parallel_devices=4"])
    for known in ("ml.g5.12xlarge", "ml.unheard.xlarge"):
        load_config(overrides=[f"serving.instance_types=[{known}]", "serving.tensor_parallel_devices=4"])


def test_an_instance_type_that_serves_nothing_is_refused_by_the_services_shape() -> None:
    config = load_config(overrides=["serving.instance_types=[ml.g5.xlarge, ml.p9.huge]"])
    with pytest.raises(ConfigError, match=r"SupportedRealtimeInferenceInstanceTypes\[1\].*ml\.p9\.huge; limit one of"):
        compile_definition(config)
