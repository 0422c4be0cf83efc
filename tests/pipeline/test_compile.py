"""Compiling: the same bytes everywhere, without account, network, telemetry or a trace left behind."""

import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from pipeline.compile import compile_definition, offline_sdk
from pipeline.config import load_config, preset_names
from pipeline.lint import lint_definition
from steps.contract import ConfigError

ROOT = Path(__file__).parents[2]
# Any attempt to reach out ends the process: also one in a thread, whose error would only be printed.
COMPILE_WITHOUT_NETWORK = """
import os, socket, sys
def refuse(*arguments, **named):
    sys.stderr.write("a socket was opened\\n"); sys.stderr.flush(); os._exit(3)
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
from pipeline.compile import compile_definition
from pipeline.config import load_config
sys.stdout.write(compile_definition(load_config(sys.argv[1])))
"""
ODD_ENVIRONMENT = {
    "AWS_PROFILE": "no-such-profile",
    "AWS_REGION": "nowhere-1",
    "AWS_CONFIG_FILE": "/nonexistent/config",
    "AWS_CA_BUNDLE": "/nonexistent/bundle.pem",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_DEFAULTS_MODE": "auto",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/",
    "SAGEMAKER_ADMIN_CONFIG_OVERRIDE": "s3://nobody/config.yaml",
    "SAGEMAKER_USER_CONFIG_OVERRIDE": "/nonexistent/config.yaml",
}


def compile_elsewhere(preset, folder, **environment):
    """Compiles in a new process that starts in another folder and may open no socket."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "SAGEMAKER_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-c", COMPILE_WITHOUT_NETWORK, preset],
        env={**plain, "PYTHONPATH": str(ROOT), "HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def first_compilation(tmp_path_factory):
    before = os.times()
    done = compile_elsewhere("azerbaijani-1b-p4d", tmp_path_factory.mktemp("first"), PYTHONHASHSEED="1")
    after = os.times()
    return done, sum(after[2:4]) - sum(before[2:4])


def test_a_new_process_compiles_offline_in_under_ten_seconds_and_says_nothing(first_compilation):
    done, seconds = first_compilation
    assert done.stderr == ""
    assert json.loads(done.stdout)["Version"] == "2020-12-01"
    # Processor time of the whole process, imports included: other work on the machine does not count.
    assert seconds < 10


def test_bytes_are_the_same_in_another_process_and_with_odd_settings(first_compilation, tmp_path):
    again = compile_elsewhere("azerbaijani-1b-p4d", tmp_path, PYTHONHASHSEED="2", TZ="Asia/Baku", **ODD_ENVIRONMENT)
    assert again.stdout == first_compilation[0].stdout
    assert again.stderr == ""


def test_bytes_are_the_same_twice_in_one_process(first_compilation):
    config = load_config("azerbaijani-1b-p4d")
    assert compile_definition(config) == compile_definition(config) == first_compilation[0].stdout


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_compiles_and_passes_the_lint(compiled_text, preset):
    text = compiled_text(preset)
    assert lint_definition(text) == []
    assert text.endswith("}\n")
    assert str(Path.home()) not in text
    assert str(ROOT) not in text


def surroundings():
    """Everything outside of its own module that compiling touches for a while."""
    from sagemaker.core.config.config_manager import SageMakerConfig

    checks = SageMakerConfig.__dict__["validate_sagemaker_config"]
    return dict(os.environ), checks, logging.root.manager.disable, list(warnings.filters)


def test_surroundings_are_as_before(compiled_text):
    compiled_text()
    before = surroundings()
    compile_definition(load_config("laptop"))
    assert surroundings() == before


def test_surroundings_are_restored_after_an_error(compiled_text):
    compiled_text()
    before = surroundings()
    seen = []
    with pytest.raises(ZeroDivisionError):
        fail_inside(seen)
    (changed,) = seen
    assert changed[0]["AWS_DEFAULT_REGION"] == "eu-north-1"
    assert not [index for index, part in enumerate(changed) if part == before[index]]
    assert surroundings() == before


def fail_inside(seen):
    with offline_sdk(load_config("laptop", overrides=["aws.region=eu-north-1"])):
        seen.append(surroundings())
        raise ZeroDivisionError


def test_importing_the_compiler_imports_no_sdk():
    command = [sys.executable, "-c", "import sys, pipeline.compile; print(*sys.modules)"]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not {"sagemaker", "boto3", "botocore"} & set(loaded)


def test_an_instance_type_that_processing_lacks_is_refused_by_name():
    config = load_config("laptop", overrides=["compute.evaluate_model.instance_type=ml.p4d.24xlarge"])
    with pytest.raises(ConfigError, match=r"InstanceType \(Evaluate\): ml\.p4d\.24xlarge; limit one of the \d+ values"):
        compile_definition(config)


def test_a_setting_too_long_for_the_service_is_refused_by_name():
    config = load_config("laptop", overrides=[f"fine_tune.target_modules=[{', '.join(['q_proj'] * 400)}]"])
    with pytest.raises(ConfigError, match=r"\.target_modules \(FineTune\): \d+ characters; limit at most"):
        compile_definition(config)
