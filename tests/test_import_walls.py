"""Who may import whom: infra -> pipeline -> steps.configs, steps.schemas, steps.contract, and nobody back."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.function_code import function_files
from pipeline.code_archive import imported_modules

ROOT = Path(__file__).parents[1]
SHARED_WITH_PIPELINE = ("steps.configs", "steps.schemas", "steps.contract")
HEAVY = ("torch", "transformers", "tokenizers", "datasets", "peft", "trl", "accelerate")
# What brings the SageMaker SDK with it: the rest of pipeline must not, at import.
WITH_SDK = (
    "definition", "jobs", "job_parts", "measurements", "parameters", "quality_gate", "registration", "offline_session",
)  # fmt: skip


def modules(folder):
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts)


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path):
    """Names imported anywhere in a file; `from a import b` counts as a and a.b."""
    return set(imported_modules(name_of(path), path))


def top(name):
    return name.split(".")[0]


def within(name, package):
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("path", modules("steps"), ids=name_of)
def test_steps_know_nothing_of_pipeline_and_aws(path):
    forbidden = {"boto3", "botocore", "sagemaker", "pipeline", "infra", "containers"}
    assert not {name for name in imports(path) if top(name) in forbidden}


@pytest.mark.parametrize("path", modules("pipeline"), ids=name_of)
def test_pipeline_reads_settings_schemas_and_contract_of_steps_only(path):
    found = {name for name in imports(path) if within(name, "steps") and name != "steps"}
    # `from steps.contract import run` yields steps.contract.run too, which is within it.
    assert not {name for name in found if not any(within(name, allowed) for allowed in SHARED_WITH_PIPELINE)}
    assert not {name for name in imports(path) if top(name) in {*HEAVY, "infra"}}


@pytest.mark.parametrize("folder", ["steps/configs", "steps/schemas"])
def test_what_pipeline_shares_stays_light(folder):
    for path in modules(folder):
        assert {top(name) for name in imports(path)} <= {"__future__", "typing", "pydantic", "steps"}, path


@pytest.mark.parametrize("path", modules("containers"), ids=name_of)
def test_launcher_needs_the_standard_library_only(path):
    """The container's image may hold any version of anything: the launcher must not care."""
    # Started by the launcher in processes of its own, as a step is.
    more = {"torch"} if path.stem == "all_reduce_check" else set()
    assert {top(name) for name in imports(path)} - more <= {"__future__", "containers", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", modules("infra"), ids=name_of)
def test_infra_reads_of_steps_what_pipeline_reads(path):
    found = {name for name in imports(path) if within(name, "steps") and name != "steps"}
    assert not {name for name in found if not any(within(name, allowed) for allowed in SHARED_WITH_PIPELINE)}
    assert (
        not {name for name in imports(path) if top(name) in {*HEAVY, "boto3", "botocore"}} or "handlers" in path.parts
    )


FUNCTIONS = [*(name_of(path) for path in modules("infra/handlers") if "def handler(" in path.read_text("utf-8")),
             "pipeline.resolve_inputs"]  # fmt: skip


@pytest.mark.parametrize("module", FUNCTIONS)
def test_a_function_brings_all_that_lambda_does_not_have(module):
    """Its own files, and of libraries the standard one and boto3 alone."""
    files = function_files(module)
    packed = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in files}
    for path in files:
        names = {
            name for name in imports(ROOT / path) if top(name) not in {*sys.stdlib_module_names, "boto3", "botocore"}
        }
        # `from a import b` yields a.b too, which is no module where b is a name in a.
        assert not {name for name in names if name not in packed and name.rpartition(".")[0] not in packed}, path


def test_importing_pipeline_brings_no_heavy_library_even_indirectly():
    names = [name_of(path) for path in modules("pipeline") if path.stem not in (*WITH_SDK, "__main__")]
    code = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    tops = {top(name) for name in loaded.stdout.split()}
    assert not tops & {*HEAVY, "sagemaker", "boto3"}


def test_no_module_is_named_after_a_library():
    libraries = {"numpy", "sagemaker", "boto3", "botocore", "rich", "typer", "yaml", "pydantic", *HEAVY}
    named = {path.stem for folder in ("pipeline", "steps", "containers", "infra") for path in modules(folder)}
    assert not named & libraries
