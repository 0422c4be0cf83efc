"""Python and the libraries: what is installed, against the ranges that pyproject.toml states."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pipeline.doctor_finding import MISSING, OK, Finding

# What each extra's library brings; extras of later versions have no entry in pyproject.toml yet.
EXTRAS = {
    "liger-kernel": "fused kernels on an NVIDIA GPU: less memory for the logits, so larger batches. "
    "Install it: pip install 'langadapt[gpu]'",
    "flash-attn": "nothing so far: every step uses torch's own attention",
    "aws-cdk-lib": "deploying the account with CDK, in a later version",
}


def check_python() -> Finding:
    """Python's version against requires-python."""
    wanted, version = requirements()["python"], platform.python_version()
    if is_within(version, wanted):
        return Finding("python", OK, f"{version} ({wanted})")
    return Finding("python", MISSING, f"{version}, wanted {wanted}", remedy="Install such a Python.", needed=True)


def check_required_libraries() -> Iterator[Finding]:
    """Each library that a run needs."""
    for name, wanted in requirements().items():
        if name != "python":
            yield check_library(name, wanted)


def check_library(name: str, wanted: str) -> Finding:
    """One library's version against its range, empty for any version."""
    remedy = f"Install it: pip install '{name}{wanted}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, MISSING, f"not installed, wanted {wanted or 'any version'}", remedy=remedy, needed=True)
    if is_within(version, wanted):
        return Finding(name, OK, f"{version} ({wanted or 'any version'})")
    return Finding(name, MISSING, f"{version}, wanted {wanted}", remedy=remedy, needed=True)


def check_extras() -> Iterator[Finding]:
    """Libraries that a run goes without."""
    for name, brings in EXTRAS.items():
        try:
            yield Finding(name, OK, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, MISSING, "not installed", brings=f"brings {brings}")


def requirements() -> dict[str, str]:
    """The range of Python, as `python`, and of each required library: of the checkout, else of the installation."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        lines, python = table["dependencies"], table["requires-python"]
    else:
        installed = importlib.metadata.metadata("langadapt")
        lines = [line for line in installed.get_all("Requires-Dist") or [] if "extra ==" not in line]
        python = installed["Requires-Python"]
    ranges = {"python": python}
    for line in lines:
        match = re.match(r"([A-Za-z0-9._-]+)\s*\(?([^;)]*)", line)
        assert match is not None, f"no requirement: {line}"
        ranges[match[1]] = match[2].replace(" ", "")
    return ranges


def is_within(version: str, wanted: str) -> bool:
    """Whether a version lies in a range of >=, >, <, <=, == and !=, by the numbers that it begins with.

    `2.10.0rc1` counts as 2.10.0, `2.10.0+cpu` too. The library that reads every form of version may be the one missing.
    """
    own = release(version)
    for clause in filter(None, wanted.split(",")):
        match = re.fullmatch(r"(>=|<=|==|!=|>|<)([0-9][0-9a-z.]*)", clause)
        assert match is not None, f"a range that the doctor cannot read: {clause}"
        limit = release(match[2])
        width = max(len(own), len(limit))
        left, right = (numbers + (0,) * (width - len(numbers)) for numbers in (own, limit))
        holds = {
            ">=": left >= right, "<=": left <= right, "==": left == right, "!=": left != right,
            ">": left > right, "<": left < right,
        }  # fmt: skip
        if not holds[match[1]]:
            return False
    return True


def release(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(int(number) for number in match[0].split(".")) if match else ()
