"""The images' requirements: what the steps import and no more, pinned with hashes, in one voice with pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from containers import check_environment
from pipeline.code_archive import imported_modules

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TARGETS = ("cpu", "gpu")
# Distributions that are not named as what they are imported by.
DISTRIBUTIONS = {"huggingface_hub": "huggingface-hub", "liger_kernel": "liger-kernel"}
LEFT_TO_THE_BASE = {"torch", "triton", "flash-attn"}
ON_GPUS_ALONE = {"liger-kernel", "bitsandbytes"}
NOT_IMPORTED_BY_STEPS = {
    "accelerate": "peft, trl and from_pretrained's device_map import it",
    "tensorboard": "torch.utils.tensorboard imports it",
    "bitsandbytes": "peft and transformers import it for a model in 4 bits",
}


def listed(target: str) -> dict[str, Requirement]:
    """The lines of requirements-<target>.in, by name; -r is followed."""
    found: dict[str, Requirement] = {}
    for line in (CONTAINERS / f"requirements-{target}.in").read_text("utf-8").splitlines():
        if line.startswith("-r requirements-"):
            found |= listed(line.removeprefix("-r requirements-").removesuffix(".in"))
        elif line and not line.startswith("#"):
            found[Requirement(line).name] = Requirement(line)
    return found


def pinned(target: str) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of requirements-<target>.txt with its hashes."""
    found: list[tuple[Requirement, list[str]]] = []
    for line in (CONTAINERS / f"requirements-{target}.txt").read_text("utf-8").splitlines():
        words = line.removesuffix("\\").strip()
        if line.startswith("    --hash="):
            found[-1][1].append(words.removeprefix("--hash="))
        elif line and not line.startswith("#"):
            found.append((Requirement(words), []))
    return found


def imported_by_steps() -> set[str]:
    """Top names of third-party modules that any module of the steps imports, as distributions."""
    tops = set()
    for path in (ROOT / "steps").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tops |= {name.partition(".")[0] for name in imported_modules(module, path)}
    tops -= {*sys.stdlib_module_names, "steps", "__future__"}
    return {DISTRIBUTIONS.get(name, name) for name in tops}


def test_what_the_steps_import_is_listed_and_nothing_else() -> None:
    wanted = imported_by_steps() - LEFT_TO_THE_BASE
    assert listed("cpu").keys() == (wanted | NOT_IMPORTED_BY_STEPS.keys()) - ON_GPUS_ALONE
    assert listed("gpu").keys() == wanted | NOT_IMPORTED_BY_STEPS.keys()
    left = set((CONTAINERS / "requirements-base.txt").read_text("utf-8").splitlines()[1:])
    assert left == LEFT_TO_THE_BASE == set(check_environment.LEFT_TO_BASE)


def test_the_ranges_are_those_of_the_project() -> None:
    extra = PROJECT["optional-dependencies"]["gpu"]
    ranges = {Requirement(text).name: Requirement(text).specifier for text in [*PROJECT["dependencies"], *extra]}
    for name, wanted in listed("gpu").items():
        assert wanted.specifier == ranges.get(name, wanted.specifier), name
    # huggingface-hub and jinja2 come with transformers, which says what it needs of them.
    assert listed("gpu").keys() - ranges.keys() == {"huggingface-hub", "jinja2"}
    assert str(ranges["torch"]) == f">={check_environment.OLDEST_TORCH}"


@pytest.mark.parametrize("target", TARGETS)
def test_each_requirement_is_pinned_with_hashes(target: str) -> None:
    requirements = pinned(target)
    assert len(requirements) > 60
    for requirement, hashes in requirements:
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert "*" not in specifier.version
        assert requirement.url is None
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_of_the_bases_is_among_them(target: str) -> None:
    names = {requirement.name for requirement, _ in pinned(target)}
    assert not names & LEFT_TO_THE_BASE
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "pytorch", "triton"))]
    assert listed(target).keys() <= names
    assert not names & {"sagemaker", "boto3", "typer-slim", "pytest"}


def test_versions_are_those_that_are_tested() -> None:
    lines = (CONTAINERS / "constraints.txt").read_text("utf-8").splitlines()
    constraints = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement, _ in pinned("gpu"):
        version = str(requirement.specifier).removeprefix("==")
        assert constraints.get(requirement.name, version) == version, requirement
    ranges = {Requirement(text).name: Requirement(text).specifier for text in PROJECT["dependencies"]}
    for requirement, _ in pinned("gpu"):
        if requirement.name in ranges:
            assert ranges[requirement.name].contains(str(requirement.specifier).removeprefix("==")), requirement


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_both_pythons_get_each_package_once(python: str) -> None:
    """The base of the proof has Python 3.11, that of AWS 3.12."""
    there = {"python_version": python, "python_full_version": f"{python}.2", "sys_platform": "linux"}
    for target in TARGETS:
        names = [wanted.name for wanted, _ in pinned(target) if wanted.marker is None or wanted.marker.evaluate(there)]
        assert len(names) == len(set(names))
        assert listed(target).keys() <= set(names)


def test_gpu_has_all_that_cpu_has() -> None:
    cpu, gpu = ({str(requirement) for requirement, _ in pinned(target)} for target in TARGETS)
    assert {Requirement(text).name for text in gpu - cpu} == ON_GPUS_ALONE
    assert not cpu - gpu


def test_the_image_imports_at_its_building_what_steps_import_later() -> None:
    modules = {name.partition(".")[0] for name in check_environment.IMPORTED}
    names = {DISTRIBUTIONS.get(name, name) for name in modules}
    assert names == (imported_by_steps() | {"accelerate"}) - ON_GPUS_ALONE
    assert check_environment.IMPORTED_IF_REQUIRED.keys() == ON_GPUS_ALONE
