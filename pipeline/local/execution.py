"""What the steps of one local run share: references, folders, images, functions, digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.execution_record import RunResult
from pipeline.local.cache import content_digest, fingerprint
from pipeline.local.images import LocalImage
from pipeline.local.selection import Selection
from pipeline.local.stopping import Stopping
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Progress
from pipeline.references import Scope
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError, StepError, nearest_name


class StepFailedError(Exception):
    """A step ended without success. line: why, in one line; exit_code: what the run ends with."""

    def __init__(self, line: str, exit_code: int) -> None:
        self.line, self.exit_code = line, exit_code
        super().__init__(line)


class StepStoppedError(Exception):
    """A step was stopped because the run ends."""


@dataclass(frozen=True)
class LambdaContext:
    """What a local function gets beside its event, in the place of Lambda's context.

    find: the path that a URI stands for.
    """

    find: Callable[[str], Path]
    registry: LocalRegistry
    run_folder: Path
    execution_id: str


LocalFunction = Callable[[Mapping[str, Any], LambdaContext], Mapping[str, Any]]


@dataclass
class Execution:
    """What the steps of one run share.

    scope resolves references to what they are; stable resolves them to what they mean for a cache key, with
    execution ids and job names left as placeholders.  limit_settings: what sets a step's time limit, by step.
    definition: what is run.  kept_texts: by file name, what a registered version keeps beside the run's record.
    """

    result: RunResult
    scope: Scope
    stable: Scope
    uris: UriFolders
    images: Mapping[str, LocalImage]
    default_image: LocalImage | None
    functions: Mapping[str, LocalFunction]
    registry: LocalRegistry
    environment: Mapping[str, str]
    progress: Progress
    force: bool
    selection: Selection | None = None
    limit_settings: Mapping[str, str] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)
    kept_texts: Mapping[str, str] = field(default_factory=dict)
    stopping: Stopping = field(default_factory=Stopping)
    _digests: dict[Path, str] = field(default_factory=dict)
    _fingerprints: dict[Path, dict[str, tuple[int, int]]] = field(default_factory=dict)

    @property
    def run_folder(self) -> Path:
        return self.result.run_folder

    def takes_part(self, step: str) -> bool:
        """False for a step that the selection leaves out."""
        return self.selection is None or self.selection.takes_part(step)

    def must_be_cached(self, step: str) -> bool:
        """True for a step that selected ones need and that is not to run itself."""
        return self.selection is not None and step in self.selection.needed

    def reason_to_run(self, step: str) -> str:
        """Why a step runs whatever is cached; empty where it need not."""
        if self.selection is not None and step in self.selection.chosen:
            return self.selection.text
        return "forced" if self.force and not self.must_be_cached(step) else ""

    def image(self, uri: str) -> LocalImage | None:
        """The local command for an image."""
        return self.images.get(uri, self.default_image)

    def required_image(self, step: str, uri: str) -> LocalImage:
        """The local command for a step's image. Raises ConfigError that names the step where there is none."""
        image = self.image(uri)
        if image is None:
            raise ConfigError(step, f"image {uri} has no local command", remedy=nearest_name(uri, self.images))
        return image

    def function(self, arn: str) -> LocalFunction | None:
        """The local function for a Lambda ARN, found by the ARN or by the function's name."""
        return self.functions.get(arn, self.functions.get(arn.rpartition(":")[2]))

    def digest(self, path: Path) -> str:
        """Content digest of a file or folder; outputs by their seal, anything else read once a run."""
        if path not in self._digests:
            self._fingerprints[path] = fingerprint(path)
            self._digests[path] = content_digest(path)
        return self._digests[path]

    def check_inputs(self, step: str, paths: Iterable[Path]) -> None:
        """Raises StepError where a file of an input is not as it was when its digest was taken for the cache key.

        A file that was added meanwhile, as file browsers do, is none that the job was given.
        """
        for path in paths:
            before, now = self._fingerprints.get(path, {}), fingerprint(path)
            changed = min((name for name in before if before[name] != now.get(name)), default=None)
            if changed is not None:
                remedy = "Leave the inputs as they are while a run goes on, then give the same command again."
                raise StepError(step, f"{path / changed if changed else path} changed while it was read", remedy=remedy)

    def note_digest(self, path: Path, digest: str) -> None:
        self._digests[path] = digest

    def finish(self, step: str, properties: Mapping[str, Any], stable_properties: Mapping[str, Any]) -> None:
        """From now on other steps may refer to this one's properties."""
        self.scope.steps[step] = properties
        self.stable.steps[step] = stable_properties
