"""Every row of docs/bad-inputs.md given to `langadapt` in a process of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from bad_inputs import ROWS, Place
from workplace import ROOT, Workplace, fill_workplace, prove

from steps.contract import EXIT_DONE, EXIT_USER_ERROR, file_sha256

pytestmark = pytest.mark.verify


def table_of_the_document():
    """The table and its patterns, as tests/test_bad_inputs.py reads them."""
    spec = importlib.util.spec_from_file_location("table_of_bad_inputs", ROOT / "tests" / "test_bad_inputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: re.compile(module.pattern(line.removeprefix("error: "))) for name, line in module.table().items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Workplace:
    """A workplace with a finished run and a registered version."""
    workplace = fill_workplace(tmp_path_factory.mktemp("workplace"), make_tiny_llama)
    finished = workplace.run()
    assert finished.returncode == EXIT_DONE, finished.stderr
    return workplace


def kept(workplace: Workplace) -> dict[str, str]:
    """sha256 of the data, of every sealed output and of the registry."""
    folders = [workplace.run_folder / "outputs", workplace.folder / "runs" / "registry", workplace.folder / "base"]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    files += workplace.folder.glob("*.jsonl")
    return {str(path): file_sha256(path) for path in files}


def kept_names(workplace: Workplace) -> set[Path]:
    """Everything below the sealed outputs and the registry."""
    return {path for name in ("seconds/outputs", "registry") for path in (workplace.folder / "runs" / name).rglob("*")}


def fault_of(row: str, done: subprocess.CompletedProcess[str], pattern: re.Pattern[str]) -> str:
    """What is wrong with how a bad input ended; empty where all is as the table has it."""
    is_one_line = done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    if done.returncode == EXIT_USER_ERROR and is_one_line and pattern.search(done.stderr):
        return ""
    return f"{row}: exit {done.returncode}, {done.stderr!r}"


def test_every_row_in_a_process_of_its_own(place: Workplace, tmp_path: Path) -> None:
    patterns, before, prepared = table_of_the_document(), kept(place), place.output("PrepareCorpus")
    faults, skipped = [], []
    made: list[str] = []
    for row, build in ROWS.items():
        bad = tmp_path / row
        bad.mkdir()
        case = build(Place(place.folder, bad, prepared))
        if case is None:
            skipped.append(row)
            continue
        # Without the progress of the steps before the one that fails.
        names = kept_names(place)
        done = place.langadapt(*case.arguments, *(["--quiet"] if case.step else []))
        if (bad / "read_only").exists():
            subprocess.run(["umount", bad / "read_only"], check=True)
        if fault := fault_of(row, done, patterns[row]):
            faults.append(fault)
            print(fault, flush=True)
        # What is refused before the first step makes nothing at all.
        if not case.step:
            made += [f"{row}: {path}" for path in sorted(kept_names(place) - names)]
    # A step that fails makes nothing, but the steps before it may have: there what was there must be as it was.
    after = kept(place)
    changed = [path for path, sha in before.items() if after.get(path) != sha]
    ran = len(ROWS) - len(skipped)
    prove("bad inputs told in one line, exit code 1", f"{ran - len(faults)} of {ran}", "all, 40 or more",
          not faults and ran >= 40)  # fmt: skip
    prove("files changed by them among inputs, sealed outputs and registry", len(changed), "0", not changed)
    prove("files made by those that are refused before the first step", "; ".join(made) or 0, "0", not made)
    prove("rows that this machine could not make", ", ".join(skipped) or "none", "named", True)
