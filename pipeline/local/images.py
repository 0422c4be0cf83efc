"""What stands for a container image on this machine, and the command that a job becomes with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.local.cache import command_members
from pipeline.local.job_spec import OPT_ML, JobSpec
from steps.contract import ConfigError

_PYTHON = re.compile(r"python(3(\.\d+)?)?")
# /opt/ml itself or a path below it, also behind an equals sign or inside a shell command; not /opt/mlflow.
_CONTAINER_PATH = re.compile(rf"(?<![\w./-]){OPT_ML}(?![\w.-])")


@dataclass(frozen=True)
class LocalImage:
    """What stands for an image on this machine.

    command: takes the place of the image's entry point; the definition's arguments follow it. A step's own
    ContainerEntrypoint, which takes that place on the service, is passed over unless runs_entrypoint says otherwise.
    digest: names the environment that the command runs in, for the cache key.
    runs_entrypoint: a step that has a ContainerEntrypoint runs it, with this Python where its first word is python,
    and then its arguments; `command` serves the steps that have none.
    """

    command: Sequence[str] = ()
    digest: str = ""
    runs_entrypoint: bool = False


def check_command(step: str, image_uri: str, entrypoint: Sequence[Any], image: LocalImage) -> None:
    """Raises ConfigError where neither the image nor the step says what to run."""
    if not image.command and not (image.runs_entrypoint and entrypoint):
        value = f"image {image_uri} has no local command"
        raise ConfigError(step, value, remedy="Give it one, or the step a ContainerEntrypoint that is run.")


def job_command(spec: JobSpec, image: LocalImage) -> list[str]:
    """The words that a job runs, with paths as the container has them. Raises ConfigError where there are none."""
    check_command(spec.step, spec.image, spec.entrypoint, image)
    if image.runs_entrypoint and spec.entrypoint:
        first, *rest = spec.entrypoint
        program = sys.executable if _PYTHON.fullmatch(PurePosixPath(first).name) else first
        return [program, *rest, *spec.arguments]
    return [*image.command, *spec.arguments]


def image_members(spec: JobSpec, image: LocalImage) -> dict[str, str]:
    """What of an image counts for a job's cache key: its name, its digest and what it runs."""
    members = {"image": f"{spec.image} {image.digest}".strip()}
    if image.runs_entrypoint and spec.entrypoint:
        return members | {f"entrypoint {index}": word for index, word in enumerate(spec.entrypoint)}
    return members | command_members(list(image.command))


def at_root(text: str, root: Path) -> str:
    """A text in which each path below the container's /opt/ml leads below `root`."""
    return _CONTAINER_PATH.sub(lambda match: str(root), text)
