"""Every row of docs/bad-inputs.md is made for real: one line on standard error, as the table has it, and exit code 1.

Nothing changes on disk: neither inputs nor outputs nor the registry. tests/verify/test_bad_inputs_whole.py gives each
row to `langadapt` in a process of its own.
"""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
from pathlib import Path

import pytest
from bad_inputs import ROWS, Place
from workplace import fill_workplace

from pipeline.__main__ import main
from pipeline.registry import LocalRegistry
from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, file_sha256, run_step

DOCUMENT = Path(__file__).parents[1] / "docs" / "bad-inputs.md"
CONFIGS = {"prepare_corpus": PrepareCorpusConfig, "train_tokenizer": TrainTokenizerConfig}
# What a line of the table stands for: a path, a number, any words.
PLACEHOLDERS = {"PATH": r"\S+", "NUMBER": r"[\d,.]+", "TEXT": ".+"}


def table() -> dict[str, str]:
    """The error line of each row by the row's name."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|.*\| ``(error: .*?)`` \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    return dict(rows)


def pattern(line: str) -> str:
    """A line of the table as a regular expression."""
    parts = re.split(f"({'|'.join(PLACEHOLDERS)})", line)
    return "".join(PLACEHOLDERS.get(part) or re.escape(part) for part in parts)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Path:
    """A workplace with good data, a registered version, and a prepared corpus."""
    folder = tmp_path_factory.mktemp("workplace")
    fill_workplace(folder, make_tiny_llama)
    prepare = importlib.import_module("steps.prepare_corpus")
    arguments = [f"--corpus={folder / 'corpus.jsonl'}", f"--output={folder / 'prepared'}"]
    assert run_step(prepare.prepare_corpus, PrepareCorpusConfig, prepare.FOLDERS, arguments=arguments) == EXIT_DONE
    LocalRegistry(folder / "runs" / "registry").register(
        group="langadapt", model=folder / "base", metadata={}, metrics={}, request={}
    )
    return folder


def content(folder: Path) -> dict[str, str]:
    """sha256 of every file but what compiling keeps for the next run."""
    kept = ("definitions", "code")
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in folder.rglob("*")
        if path.is_file() and not set(kept) & set(path.relative_to(folder).parts)
    }


def in_this_process(arguments: list[str], step: tuple[str, ...]) -> int:
    """The exit code of the command, or of the step where only a step meets the fault."""
    if step:
        module = importlib.import_module(f"steps.{step[0]}")
        return run_step(getattr(module, step[0]), CONFIGS[step[0]], module.FOLDERS, arguments=step[1:])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_input_is_one_line_and_changes_nothing(
    name: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(good)
    place = Place(good, tmp_path / "bad", good / "prepared")
    place.bad.mkdir()
    case = ROWS[name](place)
    if case is None:
        pytest.skip("this process may not mount a file system")
    try:
        before = content(good), content(place.bad)
        code = in_this_process(case.arguments, case.step)
        line = capfd.readouterr().err
        assert code == EXIT_USER_ERROR
        assert line.count("\n") == 1, line
        assert re.fullmatch(pattern(table()[name]), line.rstrip("\n")), line
        # A step that fails leaves its own output folder behind, unsealed and marked.
        after = content(good), {path: sha for path, sha in content(place.bad).items() if not path.startswith("out/")}
        assert not (place.bad / "out" / "manifest.json").exists()
        assert after == before
    finally:
        if (place.bad / "read_only").exists():
            subprocess.run(["umount", place.bad / "read_only"], check=True)


def test_the_table_and_the_rows_are_the_same() -> None:
    assert list(table()) == list(ROWS)
    assert len(ROWS) >= 40
