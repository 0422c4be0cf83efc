"""Sixty kills spread over a run: whatever the moment, the same command ends with the same model and the same version.

Each kill takes the run that was never disturbed, forgets what one step and the registry hold, runs, kills at a moment
of that step, and runs again. The steps after it must then come from the cache, which they do only where the killed
step gave the same bytes. Every second kill takes all processes at once, as a machine does that loses its power; the
others take the group of the command alone, so that what it started is found and ended by the next run.
"""

from __future__ import annotations

import filecmp
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from workplace import JOB_STEPS, Workplace, copy_of_source, fill_workplace, prove

from pipeline.registry import LocalRegistry, ModelVersion
from steps.contract import EXIT_DONE, read_seal

pytestmark = pytest.mark.verify

POLL_SECONDS = 0.002
LONGEST_WAIT_SECONDS = 600
# Of kills that find the run ended so many are forgiven for each that counts, and the next comes so much earlier.
MOST_MISSED = 2
EARLIER = 0.9
# What a run writes that tells of itself: ids, times and places.
OWN_TO_A_RUN = re.compile(r"[0-9a-f]{12}(?=[/\"-])")


@dataclass(frozen=True)
class Moment:
    """When to kill: once `has_come`, and then at most `spread_seconds` later, or the time that the step takes."""

    step: str
    name: str
    count: int
    has_come: Callable[[Workplace], bool]
    spread_seconds: float | None = None


def is_executing(step: str) -> Callable[[Workplace], bool]:
    def has_come(place: Workplace) -> bool:
        return place.states().get(step) == "Executing"

    return has_come


def logs(text: str) -> Callable[[Workplace], bool]:
    def has_come(place: Workplace) -> bool:
        found = place.run_folder.glob("jobs/ContinuedPretraining/*/log.txt")
        return any(text in path.read_text(errors="replace") for path in found)

    return has_come


def is_writing_a_checkpoint(place: Workplace) -> bool:
    """A set whose marker is not there yet."""
    sets = place.run_folder.glob("s3/**/checkpoints/continued_pretraining/**/step-*")
    return any(not (path / "complete.json").exists() for path in sets)


def is_registering(place: Workplace) -> bool:
    """From the moment that a version is made aside."""
    return any((place.folder / "runs" / "registry").glob("*/*"))


MOMENTS = [
    Moment("PrepareCorpus", "PrepareCorpus", 5, is_executing("PrepareCorpus")),
    Moment("TrainTokenizer", "TrainTokenizer", 7, is_executing("TrainTokenizer")),
    Moment("TokenizeCorpus", "TokenizeCorpus", 6, is_executing("TokenizeCorpus")),
    Moment("AdaptVocabulary", "AdaptVocabulary", 5, is_executing("AdaptVocabulary")),
    Moment("ContinuedPretraining", "phase 1", 7, logs("phase=1 "), 1.0),
    Moment("ContinuedPretraining", "phase 2", 7, logs("phase=2 "), 2.0),
    Moment("ContinuedPretraining", "inside a checkpoint write", 7, is_writing_a_checkpoint, 0.02),
    Moment("FineTune", "FineTune", 6, is_executing("FineTune")),
    Moment("Evaluate", "Evaluate", 5, is_executing("Evaluate")),
    Moment("RegisterModel", "registering", 5, is_registering, 0.02),
]
# Longer than the preset of seconds has, so that there is a middle to be killed in.
LONGER_TRAINING = [
    "--set", "continued_pretraining.phase_1_steps=16", "--set", "continued_pretraining.phase_2_steps=40",
]  # fmt: skip


def descendants(process_id: int) -> list[int]:
    """Every process below one, found by the parents in /proc."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [process_id]
    for number in found:
        found += [child for child, parent in parents.items() if parent == number]
    return found[1:]


def kill(process: subprocess.Popen[bytes], *, everything: bool) -> None:
    """SIGKILL to the command's group, and with `everything` to all that it started, stopped first so none escapes."""
    if everything:
        os.kill(process.pid, signal.SIGSTOP)
        below = descendants(process.pid)
        for number in [*below, process.pid]:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                continue
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def start(place: Workplace) -> subprocess.Popen[bytes]:
    (place.run_folder / "execution.json").unlink(missing_ok=True)
    return subprocess.Popen(
        place.command(*place.run_arguments(*LONGER_TRAINING)), cwd=place.folder, env=place.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def wait_for(place: Workplace, process: subprocess.Popen[bytes], has_come: Callable[[Workplace], bool]) -> bool:
    """Waits for a moment; False where the run ended before it."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while process.poll() is None:
        assert time.monotonic() < deadline, "the moment never came"
        try:
            if has_come(place):
                return True
        except (FileNotFoundError, ValueError):
            pass
        time.sleep(POLL_SECONDS)
    return False


def forget(place: Workplace, step: str) -> None:
    """Takes a step's outputs, jobs and checkpoints, and the registry, away."""
    for folder in [place.run_folder / "outputs" / step, place.run_folder / "jobs" / step]:
        shutil.rmtree(folder, ignore_errors=True)
    if step == "ContinuedPretraining":
        shutil.rmtree(place.run_folder / "s3", ignore_errors=True)
    shutil.rmtree(place.folder / "runs" / "registry", ignore_errors=True)


def sealed_bytes(place: Workplace) -> dict[str, str]:
    """sha256 of every file of the sealed outputs."""
    found: dict[str, str] = {}
    for manifest in sorted(place.run_folder.glob("outputs/*/*/*/manifest.json")):
        name = manifest.parent.relative_to(place.run_folder).as_posix()
        found |= {f"{name}/{path}": entry.sha256 for path, entry in read_seal(manifest.parent).files.items()}
    return found


def the_version(place: Workplace) -> ModelVersion:
    (version,) = LocalRegistry(place.folder / "runs" / "registry").list_versions()
    return version


def entry(version: ModelVersion) -> str:
    """The registry's entry without the times, ids and places that are each run's own.

    model_bytes counts the digits of the times in training.json too; all other files of the model are compared whole.
    """
    left_out = {"created_at", "run_folder", "model_folder", "approvals", "evidence", "model_bytes"}
    record = version.model_dump(mode="json", exclude=left_out)
    # The other files of the evidence tell times, folders and execution ids.
    kept = {name: digest for name, digest in version.evidence.items() if name.endswith("evaluation.json")}
    assert kept
    text = json.dumps([record, sorted(version.evidence), kept], sort_keys=True)
    return OWN_TO_A_RUN.sub("-", text) + str([approval.status for approval in version.approvals])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Workplace:
    """A run that nothing disturbed."""
    source = copy_of_source(tmp_path_factory.mktemp("source"))
    place = fill_workplace(tmp_path_factory.mktemp("undisturbed"), make_tiny_llama, source)
    finished = place.run(*LONGER_TRAINING)
    assert finished.returncode == EXIT_DONE, finished.stderr
    return place


@pytest.fixture
def copied(undisturbed: Workplace, tmp_path: Path) -> Iterator[Workplace]:
    """A copy of it, to disturb."""
    shutil.copytree(undisturbed.run_folder, tmp_path / "runs" / "seconds", symlinks=True)
    place = Workplace(tmp_path, undisturbed.source)
    for name in ("corpus.jsonl", "conversations.jsonl"):
        shutil.copy(undisturbed.folder / name, tmp_path / name)
    shutil.copytree(undisturbed.folder / "base", tmp_path / "base")
    yield place
    shutil.rmtree(tmp_path, ignore_errors=True)


def check_same(place: Workplace, undisturbed: Workplace) -> None:
    """The final model and the registry's entry, byte by byte."""
    ours, theirs = the_version(place), the_version(undisturbed)
    names = sorted(path.name for path in theirs.model_folder.rglob("*") if path.is_file())
    assert sorted(path.name for path in ours.model_folder.rglob("*") if path.is_file()) == names
    assert "model.safetensors" in names
    for path in theirs.model_folder.rglob("*"):
        # training.json and manifest.json tell how long it took.
        if path.is_file() and path.name not in ("training.json", "manifest.json"):
            kept = ours.model_folder / path.relative_to(theirs.model_folder)
            assert filecmp.cmp(path, kept, shallow=False), path.name
    assert entry(ours) == entry(theirs)


def disturb(place: Workplace, moment: Moment, wait_seconds: float, *, everything: bool) -> bool:
    """A run that is killed so long after the moment; False where it had ended before."""
    process = start(place)
    came = wait_for(place, process, moment.has_come)
    time.sleep(wait_seconds if came else 0)
    alive = process.poll() is None
    if alive:
        kill(process, everything=everything)
    return alive


def check_rerun(place: Workplace, moment: Moment, undisturbed: Workplace) -> None:
    """The same command again ends well, with what follows the step from the cache and the same model and version."""
    listed = place.langadapt("models", "list", "--json")
    assert listed.returncode == EXIT_DONE, listed.stderr
    rerun = place.run(*LONGER_TRAINING)
    assert rerun.returncode == EXIT_DONE, rerun.stderr
    states = place.states()
    following = JOB_STEPS[JOB_STEPS.index(moment.step) + 1 :] if moment.step in JOB_STEPS else []
    beside = {"TokenizeCorpus", "AdaptVocabulary"}
    assert all(states[step] == "Cached" for step in following if step not in beside), states
    check_same(place, undisturbed)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.name.replace(" ", "-"))
def test_killed(moment: Moment, undisturbed: Workplace, copied: Workplace) -> None:
    """A kill that comes too late, as the run has ended, is tried again, a little earlier."""
    draw = random.Random(moment.name)
    took = undisturbed.execution()["steps"][moment.step]["seconds"]
    spread = took if moment.spread_seconds is None else moment.spread_seconds
    killed = missed = 0
    while killed < moment.count and missed < MOST_MISSED * moment.count:
        forget(copied, moment.step)
        before = sealed_bytes(copied)
        # Spread evenly, with a jitter.
        wait_seconds = (killed + draw.random()) / moment.count * spread
        if not disturb(copied, moment, wait_seconds, everything=killed % 2 == 1):
            missed, spread = missed + 1, spread * EARLIER
            continue
        killed += 1
        after = sealed_bytes(copied)
        assert {name: after.get(name) for name in before} == before, "a sealed folder changed"
        check_rerun(copied, moment, undisturbed)
    claim = f"kills of a live run in {moment.name}, after which it ends with the same model and registry entry"
    prove(claim, f"{killed}, and {missed} too late", f"{moment.count}", killed == moment.count)


def test_killed_again_and_again(undisturbed: Workplace, tmp_path: Path) -> None:
    """One run from nothing, killed each time that it has got a little further."""
    place = Workplace(tmp_path, undisturbed.source)
    for name in ("corpus.jsonl", "conversations.jsonl"):
        shutil.copy(undisturbed.folder / name, tmp_path / name)
    shutil.copytree(undisturbed.folder / "base", tmp_path / "base")
    draw, kills = random.Random("again"), 0
    for number in range(40):
        process = start(place)
        try:
            process.wait(4 + 10 * draw.random() + number)
        except subprocess.TimeoutExpired:
            kill(process, everything=number % 2 == 0)
            kills += 1
            continue
        assert process.returncode == EXIT_DONE
        break
    else:
        pytest.fail("forty kills, and no end")
    check_same(place, undisturbed)
    prove("kills of one run until its end, which has the same model and entry", kills, "at least 3", kills >= 3)
