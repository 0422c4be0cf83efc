"""ResolveInputs on this machine: files in the place of S3, the local registry in the place of SageMaker's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.local.execution import LambdaContext
from pipeline.registry import LocalRegistry
from pipeline.resolve_inputs import ResolveInputsError, StoredFile, resolve_inputs
from steps.contract import StepError, all_files, file_sha256, refusing_vanished


def local_handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, str]:
    """The ResolveInputs function for the local executor. Raises StepError where an input is missing or empty."""
    store, champions = LocalStore(context.find), LocalChampions(context.registry)
    try:
        return resolve_inputs(event, store, champions, NoOtherExecutions())
    except ResolveInputsError as error:
        raise StepError(error.subject, error.value, limit=error.limit, remedy=error.remedy) from error


@dataclass(frozen=True)
class LocalStore:
    """Files of this machine, their content named by sha256. find: the path that a URI stands for."""

    find: Callable[[str], Path]

    def files(self, uri: str) -> list[StoredFile]:
        root = self.find(uri)
        with refusing_vanished(root):
            if root.is_file():
                return [StoredFile(root.name, root.stat().st_size, file_sha256(root))]
            if not root.exists():
                return []
            if not root.is_dir():
                raise StepError(str(root), "neither a file nor a folder", remedy="Name a file or a folder.")
            paths = {name: root / name for name in all_files(root)}
            return [StoredFile(name, path.stat().st_size, file_sha256(path)) for name, path in paths.items()]


@dataclass(frozen=True)
class LocalChampions:
    """The newest approved version of a local registry."""

    registry: LocalRegistry

    def newest_approved_uri(self, group: str) -> str | None:
        version = self.registry.newest_approved(group)
        return None if version is None else version.model_folder.resolve().as_uri()


class NoOtherExecutions:
    """The lock of the run folder has seen to it that there is none."""

    def running(self, pipeline_name: str) -> list[str]:
        return []
