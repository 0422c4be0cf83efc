"""The executor under faults of the machine: a full or read-only disk, kills, inputs that change, a clock that jumps.

Each ends in one line and the right exit code; what is sealed stays as it was, and the same call goes on afterwards.
"""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_disk import SmallDisk, mounted
from small_jobs import SmallRuns, processing, states, training

from pipeline.local.failure_lines import with_own_paths
from steps.contract import EXIT_BUG, EXIT_DONE, EXIT_USER_ERROR, StepError

ROOT = Path(__file__).parents[3]
SMALL = "(output / 'a.txt').write_text('sealed')"


@pytest.fixture
def runs(tmp_path: Path) -> SmallRuns:
    return SmallRuns(tmp_path)


def writes(size_bytes: int) -> str:
    """A job's code; it may have to write into its log first, as many jobs do."""
    return f"print('working', flush=True); (output / 'large').write_bytes(bytes({size_bytes}))"


# --- a full disk ------------------------------------------------------------------------------------------------------


class RunsOnDisk(SmallRuns):
    """Runs whose run folder lies on a small disk; worker and registry do not."""

    def __init__(self, folder: Path, disk: SmallDisk) -> None:
        super().__init__(folder)
        self.disk, self.run_folder = disk, disk.folder / "run"

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.run_folder.glob("outputs/**/*") if path.is_file()]
        return {str(path.relative_to(self.run_folder)): path.read_bytes() for path in paths}

    def rest_of_disk(self, left_bytes: int) -> None:
        """Takes all of the disk but so much."""
        with (self.disk.folder / "filling").open("wb") as stream:
            stream.write(bytes(max(0, self.disk.free_bytes - left_bytes)))


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[RunsOnDisk]:
    with mounted(tmp_path / "disk", 512) as disk:
        yield RunsOnDisk(tmp_path, disk)


# No room for the lock, the first record, the second, the job's tree, its output; room enough.
@pytest.mark.parametrize("left_bytes", [0, 4_096, 8_192, 12_288, 36_864, 98_304])
def test_wherever_the_disk_gets_full_the_run_ends_in_one_line_and_goes_on_later(on_disk, left_bytes):
    first, second = processing("First", SMALL), processing("Second", writes(40_000), "First")
    assert on_disk.run(first).exit_code == EXIT_DONE
    sealed = on_disk.files()
    on_disk.rest_of_disk(left_bytes)

    try:
        result = on_disk.run(first, second)
        code, errors = result.exit_code, [line for line in on_disk.lines if line.startswith("error: ")]
        print(left_bytes, states(result), errors)
        assert (code, len(errors)) in ((EXIT_USER_ERROR, 1), (EXIT_DONE, 0))
        assert code == EXIT_DONE or result.failure in errors[0]
    except OSError as error:
        # The lock of the run or its folder had no place, before anything was said.
        assert left_bytes == 0
        errors = [str(error)]
    assert all("No space left" in line or "exit code" in line for line in errors)
    assert {name: content for name, content in on_disk.files().items() if name in sealed} == sealed

    on_disk.disk.clear()
    result = on_disk.run(first, second)
    assert (result.exit_code, states(result)["First"]) == (EXIT_DONE, "Cached")
    assert (result.outputs["Second"]["out"] / "large").read_bytes() == bytes(40_000)


def test_a_disk_that_is_full_stops_the_steps_that_still_run(on_disk):
    """The record of the run has no place either: the long step is not left to work for nothing."""
    filling = "time.sleep(0.5); (output / 'large').write_bytes(bytes(2_000_000))"
    began = time.monotonic()
    result = on_disk.run(processing("Long", "time.sleep(60)"), processing("Large", filling))
    print(result.failure)
    assert (result.exit_code, time.monotonic() - began < 30) == (EXIT_USER_ERROR, True)
    assert states(result) == {"Long": "Stopped", "Large": "Failed"}


def test_checkpoints_of_a_full_disk_serve_the_next_run(on_disk):
    code = (
        "place = checkpoints / 'step'; done = int(place.read_text()) if place.exists() else 0; "
        "place.write_text(str(done + 1)); (output / 'from').write_text(str(done)); "
        "(output / 'large').write_bytes(bytes(600_000))"
    )
    assert on_disk.run(training("Train", code)).exit_code == EXIT_USER_ERROR
    on_disk.disk.resize(2_048)
    result = on_disk.run(training("Train", code))
    assert (result.exit_code, (result.outputs["Train"]["model"] / "from").read_text()) == (EXIT_DONE, "1")


def test_a_read_only_run_folder_ends_in_one_line(on_disk):
    assert on_disk.run(processing("First", SMALL)).exit_code == EXIT_DONE
    before = on_disk.files()
    on_disk.disk.make_read_only(True)
    with pytest.raises(OSError, match="Read-only file system"):
        on_disk.run(processing("First", SMALL), processing("Second", SMALL))
    on_disk.disk.make_read_only(False)
    assert on_disk.files() == before
    assert on_disk.run(processing("First", SMALL), processing("Second", SMALL)).exit_code == EXIT_DONE


# --- memory and signals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", EXIT_USER_ERROR), ("SIGSEGV", EXIT_BUG), ("SIGABRT", EXIT_BUG)])
def test_a_kill_is_most_likely_for_want_of_memory_and_no_bug(runs, name, code):
    result = runs.run(processing("First", SMALL), processing("Killed", f"os.kill(os.getpid(), signal.{name})", "First"))
    print(result.failure)
    assert result.exit_code == code
    assert result.failure.startswith(f"Killed: killed by {name}")
    assert ("most likely for want of memory (this machine has " in result.failure) == (name == "SIGKILL")
    assert states(result)["First"] == "Succeeded"


# --- inputs -----------------------------------------------------------------------------------------------------------


def reads(uri: Path, code: str, name: str = "Read"):
    """A step that reads a file or folder of the user's."""
    step = processing(name, code)
    source = {"S3Uri": uri.as_uri(), "LocalPath": "/opt/ml/processing/input/text", "S3DataType": "S3Prefix"}
    step["Arguments"]["ProcessingInputs"] = [{"InputName": "text", "S3Input": source}]
    return step


@pytest.mark.parametrize("change", ["write_text('other')", "unlink()", "rename(place.with_name('b.txt'))"])
def test_an_input_that_changes_while_it_is_read_is_not_sealed(runs, tmp_path, change):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder / "more.txt").write_text("more")
    code = f"{SMALL}; place = Path({str(folder / 'a.txt')!r}); place.exists() and not (place.parent / 'done').exists()"
    changing = f"{code} and place.{change}"
    result = runs.run(reads(folder, changing))
    print(result.failure)
    assert result.exit_code == EXIT_USER_ERROR
    assert result.failure.startswith(
        f"Read: {folder / 'a.txt'} changed while it was read. Leave the inputs as they are"
    )
    assert runs.files() == {}
    assert runs.run(reads(folder, SMALL)).exit_code == EXIT_DONE


def test_a_file_that_a_manifest_lists_and_that_changes_meanwhile_is_not_sealed(runs, tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "list.manifest").write_text(json.dumps([{"prefix": f"{tmp_path.as_uri()}/"}, "a.txt"]))
    step = reads(tmp_path / "list.manifest", f"{SMALL}; Path({str(tmp_path / 'a.txt')!r}).write_text('other')")
    step["Arguments"]["ProcessingInputs"][0]["S3Input"]["S3DataType"] = "ManifestFile"
    result = runs.run(step)
    assert result.exit_code == EXIT_USER_ERROR
    assert result.failure.startswith(f"Read: {tmp_path / 'a.txt'} changed while it was read. ")
    assert runs.files() == {}


def test_a_file_that_is_added_meanwhile_is_no_change_of_the_input(runs, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_text("hello")
    result = runs.run(reads(folder, f"{SMALL}; Path({str(folder / '.DS_Store')!r}).touch()"))
    assert (result.exit_code, result.failure) == (EXIT_DONE, "")


def test_a_failed_jobs_line_names_the_users_own_file(runs, tmp_path):
    text = tmp_path / "mine" / "a.jsonl"
    text.parent.mkdir()
    text.write_text("{}")
    fails = (
        "name = str(root / 'processing/input/text'); (root / 'output').mkdir(exist_ok=True); "
        "(root / 'output/message').write_text(f'error: {name}/a.jsonl: 1; limit 2. Mend {name}/a.jsonl.'); sys.exit(1)"
    )
    assert runs.run(reads(text, fails)).failure.startswith(f"Read: {text}: 1; limit 2. Mend {text}. (log: ")
    folder = text.parent
    assert runs.run(reads(folder, fails)).failure.startswith(f"Read: {text}: 1; limit 2. Mend {text}. (log: ")
    # In the log's last line, too.
    raises = "sys.exit(str(root / 'processing/input/text') + ' is odd')"
    assert f"exit code 1: {folder} is odd (log: " in runs.run(reads(folder, raises)).failure


def test_only_whole_names_are_replaced():
    places = {Path("/jobs/in/a"): Path("/home/me/corpus"), Path("/jobs/in/a/x.txt"): Path("/home/me/x.txt")}
    said = "/jobs/in/a/x.txt, /jobs/in/a/y.txt: /jobs/in/abc /jobs/in/a-b /jobs/in/a.old (/jobs/in/a). '/jobs/in/a'"
    assert with_own_paths(said, places) == (
        "/home/me/x.txt, /home/me/corpus/y.txt: /jobs/in/abc /jobs/in/a-b /jobs/in/a.old (/home/me/corpus). "
        "'/home/me/corpus'"
    )
    assert with_own_paths(said, {}) == said


def test_odd_things_among_the_inputs_are_named_or_passed_over(runs, tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    os.mkfifo(folder / "pipe.txt")
    lists = "(output / 'names').write_text(' '.join(sorted(os.listdir(root / 'processing/input/text'))))"
    result = runs.run(reads(folder, lists))
    assert (result.outputs["Read"]["out"] / "names").read_text() == "a.txt"
    (folder / "gone.txt").symlink_to(tmp_path / "nothing")
    result = runs.run(reads(folder, lists))
    assert (result.exit_code, result.failure.split(". ")[0]) == (
        EXIT_USER_ERROR, f"Read: {folder / 'gone.txt'}: a link to nothing",
    )  # fmt: skip
    result = runs.run(reads(folder / "pipe.txt", lists))
    assert (result.exit_code, "neither a file nor a folder" in result.failure) == (EXIT_USER_ERROR, True)


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("years", "state"), [(10, "Cached"), (0, "Cached"), (-10, "Succeeded")], ids=["future", "now", "past"]
)
def test_a_clock_that_jumped_loses_no_result_and_invents_none(runs, years, state):
    step = processing("First", SMALL) | {"CacheConfig": {"Enabled": True, "ExpireAfter": "P30D"}}
    result = runs.run(step)
    (path,) = runs.run_folder.glob("outputs/First/*/seal.json")
    seal = json.loads(path.read_text())
    path.write_text(json.dumps(seal | {"sealed_at": time.time() + years * 31_557_600}))
    output = result.outputs["First"]["out"] / "a.txt"
    os.utime(output, (time.time() + years * 31_557_600,) * 2)

    result = runs.run(step)
    assert (result.exit_code, states(result)["First"], output.read_text()) == (EXIT_DONE, state, "sealed")
    assert 0 <= result.steps["First"].seconds < 60
    assert runs.run(step).steps["First"].state == "Cached"


def test_durations_are_measured_by_the_clock_that_never_jumps():
    """time.time tells when something was written, nothing else: each place that reads it is named here."""
    allowed = {
        "pipeline/registry.py": 2,  # created_at and an approval's at
        "pipeline/local/cache.py": 1,  # sealed_at
        "pipeline/local/job_steps.py": 1,  # the age of a seal, for ExpireAfter
        "pipeline/remote/execution_view.py": 1,  # how long a step works already, whose begin the service tells
        "pipeline/remote/schedule_expression.py": 1,  # whether the time of a schedule has passed
        "pipeline/remote/start.py": 1,  # the name of an execution
    }
    found: dict[str, int] = {}
    for folder in ("pipeline", "steps", "containers"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            calls = [
                node for node in ast.walk(ast.parse(path.read_text("utf-8")))
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in (("time", "time"), ("time", "time_ns"), ("datetime", "now"))
            ]  # fmt: skip
            if calls:
                found[path.relative_to(ROOT).as_posix()] = len(calls)
    assert found == allowed


def test_a_run_folder_that_is_a_file_is_refused(runs):
    runs.run_folder.write_text("")
    with pytest.raises((StepError, OSError)):
        runs.run(processing("First", SMALL))
