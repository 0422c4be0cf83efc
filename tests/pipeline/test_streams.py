"""Commands whose streams are closed or full, whose folder has gone, names that lead nowhere: one line, no traceback."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.registry import LocalRegistry

ROOT = Path(__file__).parents[2]
COMMAND = f"{shlex.quote(sys.executable)} -m pipeline"
FULL = Path("/dev/full")


def in_a_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a line of the shell gives; `langadapt` in it is this package's command."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANGADAPT_")}
    return subprocess.run(
        ["sh", "-c", line.replace("langadapt", COMMAND, 1)], cwd=folder, env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has a registry with one version."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    registry = LocalRegistry(tmp_path / "runs" / "registry")
    registry.register(group="langadapt", model=tmp_path / "model", metadata={}, metrics={}, request={})
    return tmp_path


@pytest.mark.parametrize("line", ["langadapt models list >&-", "langadapt models list --json >&- 2>&-"])
def test_a_closed_stream_is_one_that_nobody_reads(folder: Path, line: str) -> None:
    done = in_a_shell(line, folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_is_told_where_output_is_closed_and_its_code_stays_where_errors_are(folder: Path) -> None:
    done = in_a_shell("langadapt models show 7 >&-", folder)
    assert done.returncode == 1
    assert done.stderr.startswith("error: version: 7; limit ")
    done = in_a_shell("langadapt models list 2>&-", folder)
    assert done.returncode == 0
    assert "PendingManualApproval" in done.stdout
    assert in_a_shell("langadapt models show 7 2>&-", folder).returncode == 1


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["models list", "models list --json", "models show 1", "doctor --json", "--help"])
def test_an_answer_that_finds_no_space_is_an_error_of_one_line(folder: Path, words: str) -> None:
    done = in_a_shell(f"langadapt {words} >/dev/full", folder)
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output: No space left on device. Make space or name another place, then try again.\n"
    )


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_an_error_that_finds_no_space_as_json_is_told_on_standard_error(folder: Path) -> None:
    done = in_a_shell("langadapt models show 7 --json >/dev/full", folder)
    assert done.returncode == 1
    assert done.stderr.startswith("error: version: 7; limit ")
    assert "Traceback" not in done.stderr


def test_a_folder_that_was_deleted_is_named(folder: Path) -> None:
    for option, read in (
        ("", lambda done: done.stderr),
        ("--json", lambda done: json.loads(done.stdout)["error"]["line"]),
    ):
        (folder / "gone").mkdir()
        done = in_a_shell(f"cd gone && rmdir ../gone && exec langadapt models list {option}", folder)
        assert done.returncode == 1
        assert read(done).strip().removeprefix("error: ") == (
            "current folder: does not exist any more. Change to another one."
        )


@pytest.mark.parametrize(("words", "begin"), [
    ("run --run-dir=''", "Invalid value for '--run-dir': empty; name a folder, or . for this one."),
    ("run --run-dir='~nobody-of-this-name/runs'", "path: ~nobody-of-this-name/runs has no home folder."),
    ("sample '~nobody-of-this-name/a'", "path: ~nobody-of-this-name/a has no home folder."),
])  # fmt: skip
def test_a_name_that_leads_nowhere_is_refused(folder: Path, words: str, begin: str) -> None:
    before = sorted(path for path in folder.rglob("*"))
    done = in_a_shell(f"langadapt {words}", folder)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {begin}"), done.stderr
    assert sorted(path for path in folder.rglob("*")) == before
