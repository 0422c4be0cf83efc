"""The pages for a reader's own language, base model and gate, command by command, in a folder like a checkout's."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from reader_account import answering, own_account
from shown_commands import commands_of, kind_of
from workplace import ROOT, Workplace, copy_of_source, prove

from steps.contract import EXIT_DONE, EXIT_GATE_CLOSED

pytestmark = pytest.mark.verify

DOCS = ROOT / "docs"
# The approved version is that of the same training, so the gate is closed, or by the limit that the page gives.
MAY_CLOSE = ("--param MaxBitsPerByte=8", "--param MinImprovement=5")


class Reader(Workplace):
    """A reader at a checkout: the walk's run, and the sample where this user has it already."""

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "turkish"

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for name, value in super().environment.items() if name != "LANGADAPT_CACHE"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A folder with the pages and the code as they are now; nothing was run in it."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(DOCS, folder / "docs")
    return Reader(folder, copy_of_source(tmp_path_factory.mktemp("source")))


def words_of(command: str, folder: Path) -> list[str]:
    own = {"own.yaml": str(folder / "own.yaml"), "base_model": str(folder / "demo" / "base_model")}
    return [own.get(word, word) for word in shlex.split(command)[1:]]


def test_the_walk_through_turkish(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    page = DOCS / "own-language.md"
    plain = [line for line in page.read_text("utf-8").splitlines() if line.startswith(("    ls ", "    head "))]
    for line in plain:
        shown = subprocess.run(shlex.split(line), cwd=reader.folder, capture_output=True, text=True)
        prove(line.strip(), shown.returncode, "exit code 0", shown.returncode == 0 and bool(shown.stdout))
    assert reader.langadapt("sample", "demo").returncode == EXIT_DONE
    commands = commands_of(page)
    assert len(commands) >= 12
    with own_account(reader.folder) as account:
        for command in commands:
            words = words_of(command, reader.folder)
            with answering(kind_of(words), reader, account) as variables, monkeypatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                shown = reader.langadapt(*words)
            prove(command, shown.returncode, "exit code 0", shown.returncode == EXIT_DONE)
            if command.endswith("--only PrepareCorpus"):
                line = next(line for line in shown.stderr.splitlines() if "PrepareCorpus         Succeeded" in line)
                same = "documents=63 words=1503 bytes=12735 dropped=1 homoglyphs_repaired=1 personal_data=0"
                prove("the figures of the page's line", line.split("  ")[-1], same, line.endswith(same))
    fertility = json.loads((reader.output("TrainTokenizer") / "fertility.json").read_text())
    prove("the tokenizer of the page", fertility["chosen"], "unigram-1408", fertility["chosen"] == "unigram-1408")
    statuses = [version["status"] for version in reader.versions()]
    prove("versions registered and approved by the walk", statuses, "['Approved']", statuses == ["Approved"])


@pytest.mark.parametrize("page", ["own-base-model.md", "quality-gate.md", "troubleshooting.md"])
def test_the_commands_of_this_machine(reader: Reader, page: str) -> None:
    """After the walk, which leaves a run and an approved version."""
    for command in commands_of(DOCS / page):
        words = [word.replace("runs/laptop", "runs/turkish") for word in words_of(command, reader.folder)]
        # The others are done by the walk, ask an account, or stand in words without what belongs behind them.
        if words[0] not in ("run", "doctor") and words != ["status", "runs/turkish"]:
            continue
        shown = reader.langadapt(*words)
        allowed = {EXIT_DONE, EXIT_GATE_CLOSED} if any(part in command for part in MAY_CLOSE) else {EXIT_DONE}
        if words[0] == "status":
            allowed = {EXIT_DONE, EXIT_GATE_CLOSED}
        print(shown.stdout[-400:], shown.stderr[-400:])
        prove(command, shown.returncode, f"exit code {sorted(allowed)}", shown.returncode in allowed)
