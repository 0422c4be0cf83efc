"""Checks an image while it is built: its base comes by digest, and what was installed fits what the base brought.

    python3 -m containers.check_environment base REFERENCE ALLOW_UNPINNED FILE
    python3 -m containers.check_environment installed REQUIREMENTS FILE

The first, before anything is installed, refuses a base that is not named by its digest, unless ALLOW_UNPINNED is `yes`,
and notes the versions of what is left to the base in FILE. The second, after the installation, compares: these versions
are still the same, torch is new enough, every requirement is installed as pinned, what each of them and torch ask for
is there, and every library that a step imports can be imported. Either ends with exit code 1 and one line.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PINNED = re.compile(r".+@sha256:[0-9a-f]{64}")
OLDEST_PYTHON = (3, 11)
# As pyproject.toml has it; a test compares.
OLDEST_TORCH = "2.10"
# Not touched by the installation: builds of these go with the base's CUDA.
LEFT_TO_BASE = ("torch", "triton", "flash-attn")
# What torch brings along or the base's system has; none of it is among the requirements.
OF_TORCH_ALONE = ("nvidia-", "cuda-", "triton")
# What the steps import (a test compares), and what their libraries import later.
IMPORTED = (
    "accelerate", "datasets", "gigatoken", "huggingface_hub", "jinja2", "matplotlib", "numpy", "peft", "pyarrow",
    "pydantic", "regex", "rich", "rustbpe", "safetensors", "sentencepiece", "tokenizers", "torch",
    "torch.utils.tensorboard", "transformers", "trl", "zstandard",
)  # fmt: skip
# Imported where their distribution is among the requirements, or its dependency is.
IMPORTED_IF_REQUIRED = {"bitsandbytes": ("bitsandbytes",), "liger-kernel": ("liger_kernel", "triton")}


class EnvironmentFaultError(Exception):
    """What is wrong with the image, in one line."""


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["base", reference, allow_unpinned, record]:
                note_base(reference, allow_unpinned == "yes", Path(record))
            case ["installed", requirements, record]:
                print(check_installed(Path(requirements), json.loads(Path(record).read_text("utf-8"))))
            case _:
                raise EnvironmentFaultError(f"arguments: {arguments}; limit base or installed. See this file's head.")
    except EnvironmentFaultError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


def note_base(reference: str, allow_unpinned: bool, record: Path) -> None:
    """Writes the versions of what is left to the base. Raises EnvironmentFaultError for a base that cannot serve."""
    if not allow_unpinned and not PINNED.fullmatch(reference):
        remedy = "Name the base image by its digest, or build for a trial with ALLOW_UNPINNED_BASE=yes."
        raise EnvironmentFaultError(f"base image: {reference!r}; limit NAME@sha256:DIGEST. {remedy}")
    if sys.version_info[:2] < OLDEST_PYTHON:
        found, limit = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST_PYTHON))
        raise EnvironmentFaultError(f"python3: {found}; limit {limit} or newer. Take another base image.")
    versions = {name: version_of(name) for name in LEFT_TO_BASE}
    if versions["torch"] is None:
        raise EnvironmentFaultError("torch: missing; limit a base image that has it. Take another base image.")
    record.write_text(json.dumps(versions), "utf-8")


def check_installed(requirements: Path, before: Mapping[str, str | None]) -> str:
    """One line on what was found. Raises EnvironmentFaultError at the first thing that does not fit."""
    after = {name: version_of(name) for name in LEFT_TO_BASE}
    for name in LEFT_TO_BASE:
        if after[name] != before[name]:
            change = f"{before[name] or 'missing'} before the installation, {after[name] or 'missing'} after"
            raise EnvironmentFaultError(f"{name}: {change}. Leave it out of the requirements.")
    pinned = pins(requirements)
    check_versions(pinned)
    modules = [*IMPORTED, *(module for name in IMPORTED_IF_REQUIRED if name in pinned
                            for module in IMPORTED_IF_REQUIRED[name])]  # fmt: skip
    for module in modules:
        import_one(module)
    kept = ", ".join(f"{name} {after[name] or 'missing'}" for name in LEFT_TO_BASE)
    return f"{len(pinned)} packages as pinned, {len(modules)} modules import; of the base, unchanged: {kept}"


def version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def packaging(module: str) -> Any:
    """A module of `packaging`, which is among the requirements: the launcher beside this file needs nothing of it."""
    return importlib.import_module(f"packaging.{module}")


def pins(requirements: Path) -> dict[str, str]:
    """Version by name of the lines that hold for this Python and system. The file's lines are uv's."""
    pinned: dict[str, str] = {}
    for line in requirements.read_text("utf-8").splitlines():
        if line and not line.startswith(("#", " ")):
            wanted = packaging("requirements").Requirement(line.removesuffix("\\"))
            if wanted.marker is None or wanted.marker.evaluate():
                pinned[wanted.name] = str(wanted.specifier).removeprefix("==")
    return pinned


def check_versions(pinned: Mapping[str, str]) -> None:
    """Raises EnvironmentFaultError unless torch is new enough, all is as pinned, and what asks for what is content."""
    torch = version_of("torch")
    if packaging("version").Version(torch) < packaging("version").Version(OLDEST_TORCH):
        raise EnvironmentFaultError(f"torch: {torch}; limit {OLDEST_TORCH} or newer. Take a newer base image.")
    for name, version in pinned.items():
        if version_of(name) != version:
            raise EnvironmentFaultError(f"{name}: {version_of(name) or 'missing'}; limit {version} as pinned.")
    for name in [*pinned, "torch"]:
        for wanted in asked_for(name):
            found = version_of(wanted.name)
            if found is None or not wanted.specifier.contains(found, prereleases=True):
                raise EnvironmentFaultError(f"{name}: asks for {wanted}, and there is {found or 'none'}.")


def asked_for(name: str) -> Iterator[Any]:
    """What a distribution asks for here, its extras and, of torch, the builds that go with CUDA left out."""
    for text in importlib.metadata.requires(name) or []:
        wanted = packaging("requirements").Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        if name == "torch" and wanted.name.startswith(OF_TORCH_ALONE):
            continue
        yield wanted


def import_one(module: str, load: Callable[[str], object] = importlib.import_module) -> None:
    """Raises EnvironmentFaultError where a module cannot be imported, whatever it is that its import raises."""
    try:
        load(module)
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentFaultError(f"{module}: cannot be imported: {cause}") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
