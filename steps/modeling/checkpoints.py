"""Checkpoints of unfinished training: written by all processes beside the training, counted only when complete.

A set is a folder `step-00000120` with torch.distributed.checkpoint's files, progress.json, and complete.json: the
marker, written last, with size and sha256 of every other file. A set under construction has no marker. A marker may
also arrive before its files, for S3 delivers in any order: a set whose files do not match its marker is incomplete
too, is passed over with a warning, and the one before it is used.

State travels by reference: `training_state` names the tensors of model and optimizer, loading fills them, and saving
copies them to the host's memory, from where a thread writes them while training goes on. One set at most is under way.
Sets reshard: they may be read by another number of processes than wrote them.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from pydantic import ValidationError
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from transformers import PreTrainedModel

from steps.contract import FileEntry, StepError, file_sha256, mendable_error, warn, write_json
from steps.modeling.checkpoint_metadata import TensorReader
from steps.modeling.checkpoint_settings import MARKER_NAME
from steps.modeling.parallel import Processes
from steps.modeling.stopping import StopRequest

NO_MARKER = f"no {MARKER_NAME}"
PROGRESS_NAME = "progress.json"
# A set may take longer than the one before it: as much longer is allowed for.
CAUTION = 1.5
# torch warns that one process saves alone, which is meant here; it does so in a thread of its own, where no context
# reaches.
ALONE_WARNING = "torch.distributed is disabled"
warnings.filterwarnings("ignore", message=ALONE_WARNING, category=UserWarning)


def training_state(model: PreTrainedModel, optimizer: torch.optim.AdamW | None) -> dict[str, torch.Tensor]:
    """Parameters and the optimizer's moments by name, as references.

    Moments that the optimizer has not made yet are made here, zero, as it would make them: torch.distributed.checkpoint
    loads only what the template names. A shared embedding and head appear once.
    """
    state = {f"model.{name}": parameter.detach() for name, parameter in model.named_parameters()}
    if optimizer is None:
        return state
    names = {parameter: name for name, parameter in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            moments = optimizer.state[parameter]
            if not moments:
                # Where a fused AdamW keeps it.
                moments["step"] = torch.zeros((), device=parameter.device if group["fused"] else None)
                moments["exp_avg"] = torch.zeros_like(parameter, requires_grad=False)
                moments["exp_avg_sq"] = torch.zeros_like(parameter, requires_grad=False)
            for kind, value in moments.items():
                state[f"optimizer.{names[parameter]}.{kind}"] = value
    return state


@dataclass(frozen=True)
class SetUnderWay:
    """A set that a thread is writing. written: the seconds that it took, once it is complete."""

    step: int
    folder: Path
    written: Future[float]


class CheckpointStore:
    """The sets of one training. Without a folder nothing is kept and nothing is found.

    All processes must make the same calls. Each machine may have its own copy of the folder, as on SageMaker, where
    S3 brings the copies together at the next start. As a context it waits at its end for the set under way.
    """

    def __init__(self, folder: Path | None, key: str, kept: int, processes: Processes) -> None:
        self.folder = None if folder is None else folder / key
        self.kept = kept
        self.processes = processes
        # The writing threads speak over a group of their own: over the common one they would answer the training.
        self._group = processes.new_group() if folder is not None else None
        on_gpu = processes.device.type == "cuda"
        self._stager = DefaultStager(StagingOptions(on_gpu, False, False, False))
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._under_way: SetUnderWay | None = None
        # Of the newest set, from the copy to the marker.
        self.last_seconds = 0.0

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Waits for the set under way. Beside an error that ends the training anyway its own fault is but told."""
        try:
            self.finish()
        except (StepError, RuntimeError, OSError) as late:
            if error is None:
                raise
            warn("checkpoint-unfinished", str(late))
        finally:
            self._writer.shutdown()
            self._stager.close()

    def _set(self, step: int) -> Path:
        assert self.folder is not None
        return self.folder / f"step-{step:08d}"

    def _steps(self) -> list[int]:
        """Steps with a folder, complete or not, newest first."""
        if self.folder is None or not self.folder.is_dir():
            return []
        found = [path.name.removeprefix("step-") for path in self.folder.glob("step-*") if path.is_dir()]
        return sorted((int(name) for name in found if name.isdigit()), reverse=True)

    def save(
        self, step: int, state: dict[str, torch.Tensor], progress: dict[str, Any], *, in_background: bool = False
    ) -> None:
        """Writes the set of a step, its marker last, then removes the sets that are too old.

        in_background: returns once the state is copied; `poll` and `finish` tell how it went. A set that cannot be
        written ends the training, for hours without one may be lost: raises StepError where the disk is at fault, also
        for the set before this one. The unfinished set is removed, those before it stay.
        """
        if self.folder is None:
            return
        self.finish()
        folder, started = self._set(step), time.monotonic()
        with self._removing_failed(folder):
            if self.processes.local_rank == 0:
                _remove(folder)
                folder.mkdir(parents=True, exist_ok=True)
            self.processes.gather(None)
            alone = self.processes.world_size == 1
            with _telling_faults(folder):
                copied = dcp.async_save(
                    state, storage_writer=FileSystemWriter(folder), async_stager=self._stager,
                    process_group=self._group, no_dist=alone,
                )  # fmt: skip
        assert isinstance(copied, Future)
        written = self._writer.submit(self._complete, step, folder, copied, progress, started)
        self._under_way = SetUnderWay(step, folder, written)
        if not in_background:
            self.finish()

    def _complete(self, step: int, folder: Path, tensors: Future, progress: dict[str, Any], started: float) -> float:
        """In the writing thread: waits for the tensors' files, then writes what makes a set of them."""
        with _telling_faults(folder):
            tensors.result()
        if self.processes.is_first:
            write_json(folder / PROGRESS_NAME, progress)
        # Each process describes what it wrote: another machine's files may not be here.
        own = [path for path in folder.iterdir() if path.name.startswith(f"__{self.processes.rank}_")]
        if self.processes.is_first:
            own += [folder / ".metadata", folder / PROGRESS_NAME]
        entries = {path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in own}
        files = {name: entry for part in self.processes.gather(entries, self._group) for name, entry in part.items()}
        if self.processes.is_first:
            write_json(folder / MARKER_NAME, {"step": step, "files": dict(sorted(files.items()))})
        self._prune(step)
        return time.monotonic() - started

    def poll(self) -> None:
        """Raises what the set under way has met, without waiting for it."""
        if self._under_way is not None and self._under_way.written.done():
            self.finish()

    def finish(self) -> None:
        """Waits until the set under way is complete. Raises what it has met (see `save`)."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            with self._removing_failed(under_way.folder):
                self.last_seconds = under_way.written.result()

    def fits(self, stop: StopRequest, grace_seconds: float) -> bool:
        """True where one more set can be written before the grace period after SIGTERM ends, in every process.

        Judged by the seconds that the newest set took; the first one is tried in any case.
        """
        self.finish()
        passed, needed = (max(values) for values in
                          zip(*self.processes.gather((stop.seconds_ago, self.last_seconds)), strict=True))  # fmt: skip
        return self.folder is None or passed + CAUTION * needed <= grace_seconds

    @contextmanager
    def _removing_failed(self, folder: Path) -> Iterator[None]:
        """Removes a set that could not be written, and raises the one line of the fault where it can be mended."""
        try:
            yield
        except Exception as error:
            # Asked before room is made: the line tells how little there was.
            fault = mendable_error(error, folder)
            if self.processes.local_rank == 0:
                _remove(folder)
            if fault is None:
                raise
            raise fault from error

    def _prune(self, newest: int) -> None:
        """Removes all but the last `kept` sets, and sets later than the newest: they belong to a broken past."""
        if self.processes.local_rank == 0:
            older = [step for step in self._steps() if step <= newest]
            for step in set(self._steps()) - set(older[: self.kept]):
                _remove(self._set(step))

    def latest(self) -> int | None:
        """The newest step whose set is complete on every machine, None without any."""
        looks_here = self.processes.local_rank == 0
        listed = self.processes.gather(self._steps() if looks_here else None)
        on_each = [set(steps) for steps in listed if steps is not None]
        # Every byte of a set is read to know that it is complete: the newest that is ends the search.
        for step in sorted(set.intersection(*on_each), reverse=True):
            found = self.processes.gather(self._is_complete(step) if looks_here else None)
            if False not in found:
                return step
        return None

    def _is_complete(self, step: int) -> bool:
        folder = self._set(step)
        fault = find_fault(folder)
        if fault == NO_MARKER:
            # As a kill inside its writing leaves it, which is no fault of anything.
            print(f"checkpoint {folder.name} was not written to its end: passed over", flush=True)
        elif fault is not None:
            warn("checkpoint-passed-over", f"{folder.name}: {fault}")
        return fault is None

    def read_progress(self, step: int) -> dict[str, Any]:
        """What `save` was given beside the tensors."""
        return json.loads((self._set(step) / PROGRESS_NAME).read_text())

    def load(self, step: int, state: dict[str, torch.Tensor]) -> None:
        """Fills the tensors of `state` (see `training_state`) from the set of a step. Nothing in the set is run: a list
        of tensors that names anything else is a StepError."""
        alone = self.processes.world_size == 1
        with warnings.catch_warnings(), _telling_faults(self._set(step)):
            warnings.filterwarnings("ignore", message=ALONE_WARNING)
            dcp.load(state, storage_reader=TensorReader(self._set(step)), no_dist=alone)


@contextmanager
def _telling_faults(folder: Path) -> Iterator[None]:
    """torch's CheckpointException is no Exception and hides what went wrong: raises what the first process met."""
    try:
        yield
    except CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        fault = mendable_error(cause, folder)
        raise fault or RuntimeError(f"checkpoint {folder.name}: {type(cause).__name__}: {cause}") from cause


def find_fault(folder: Path) -> str | None:
    """Why a set does not count, None for a complete one."""
    try:
        marker = json.loads((folder / MARKER_NAME).read_text())
        entries = {name: FileEntry.model_validate(entry) for name, entry in marker["files"].items()}
    except FileNotFoundError:
        return NO_MARKER
    except (ValueError, KeyError, ValidationError):
        return f"{MARKER_NAME} cannot be read"
    for name, entry in entries.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != entry.bytes:
            return f"{name} has {path.stat().st_size} bytes, not {entry.bytes}"
        if file_sha256(path) != entry.sha256:
            return f"the content of {name} differs from its marker"
    return None


def _remove(folder: Path) -> None:
    """Removes a set, its marker first, so that a half removed one never counts."""
    (folder / MARKER_NAME).unlink(missing_ok=True)
    while folder.is_dir():
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            # Machines that share the folder remove it together; look again for what is left.
            continue
