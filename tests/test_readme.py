"""Every command that the README shows is run, in its order, on the sample and a DAG of seconds a step."""

import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest
from account_stand_in import AccountStandIn
from reader_account import answering, own_account
from shown_commands import commands_of, kind_of
from transformers import AutoModelForCausalLM
from workplace import PRESET, ROOT, Workplace, fill_workplace

from pipeline.local.run import STEP_MODULES
from steps.contract import EXIT_DONE

FIRST_COMMAND = "langadapt run"
# What the README names by a word that stands for the reader's own.
README_WORDS = {
    "data.corpus=DIR": "data.corpus={folder}/corpus.jsonl",
    "data.conversations=FILE": "data.conversations={folder}/conversations.jsonl",
    "data.base_model=DIR": "data.base_model={folder}/base",
    "runs/laptop": "{folder}/runs/seconds",
    "FILE": "{folder}/conversations.jsonl",
    "data.corpus=az_laws.jsonl": "data.corpus={folder}/corpus.jsonl",
    "data.conversations=az_qa.jsonl": "data.conversations={folder}/conversations.jsonl",
    "data.extra_heldout=az_heldout_wiki.jsonl": "data.extra_heldout={folder}/extra.txt",
    "own.yaml": "{folder}/own.yaml",
    "base_model": "{folder}/base",
}


def readme_commands() -> list[str]:
    """Every langadapt and python -m command that the README shows, in its order."""
    return commands_of(ROOT / "README.md")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Workplace:
    """What the first command leaves, which makes the sample, and a second version from another learning rate."""
    workplace = fill_workplace(tmp_path_factory.mktemp("reader"), make_tiny_llama)
    extra = "Dünən axşam dostlarla parka getdik.\n\nHava sərin idi, amma heç kim üşümədi.\n"
    (workplace.folder / "extra.txt").write_text(extra, "utf-8")
    for more in ([], ["--set", "fine_tune.learning_rate=0.004"]):
        finished = workplace.langadapt("run", "--config", str(PRESET), *more)
        assert finished.returncode == EXIT_DONE, finished.stderr
    return workplace


@pytest.fixture(scope="module")
def account(place: Workplace) -> Iterator[AccountStandIn]:
    with own_account(place.folder) as served:
        yield served


# As `python -m` runs each, but in one process: seven would import torch seven times.
SHOW_HELP = """
import runpy, sys
for step in sys.argv[1:]:
    sys.argv = [step, "--help"]
    try:
        runpy.run_module(f"steps.{step}", run_name="__main__")
    except SystemExit as ended:
        print(f"{step} ended with {ended.code}")
"""


@functools.cache
def check_help_of_steps() -> None:
    command = [sys.executable, "-c", SHOW_HELP, *STEP_MODULES]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert shown.returncode == EXIT_DONE, shown.stderr
    parts = re.split(r"^(\w+) ended with (\S+)\n", shown.stdout, flags=re.MULTILINE)
    assert list(zip(parts[1::3], parts[2::3], strict=True)) == [(step, str(EXIT_DONE)) for step in STEP_MODULES]
    assert all("--output" in part for part in parts[:-1:3])


def test_the_first_command_comes_first() -> None:
    assert readme_commands()[0] == FIRST_COMMAND


@pytest.mark.parametrize("command", readme_commands()[1:])
def test_the_commands_of_the_readme(
    place: Workplace, account: AccountStandIn, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [README_WORDS.get(word, word).format(folder=place.folder) for word in shlex.split(command)]
    if words[:2] == ["python", "-m"]:
        assert words[2] in ("steps.<step>", "steps.<name>")
        check_help_of_steps()
        return
    words = words[1:]
    if words[0] == "run" and "--help" not in words:
        # A registry of its own: no candidate of this test is better than the version that another command approves.
        words += ["--config", str(PRESET), "--registry", str(place.folder / "registry-of-readme")]
    with answering(kind_of(words), place, account) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        shown = place.langadapt(*words)
    assert shown.returncode == EXIT_DONE, shown.stderr
    assert shown.stdout
    if words[0] == "sample":
        assert {"corpus.jsonl", "conversations.jsonl", "base_model"} <= {
            path.name for path in (place.folder / "DIR").iterdir()
        }
        AutoModelForCausalLM.from_pretrained(place.folder / "DIR" / "base_model")
        refused = place.langadapt(*words)
        assert refused.returncode == 1
        assert refused.stderr.startswith("error: sample: ")


def test_the_make_commands_of_the_readme_exist() -> None:
    targets = re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text("utf-8"))
    assert {"run", "test", "verify", "results"} <= set(targets)
    for target in sorted(set(targets)):
        shown = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert shown.returncode == 0, shown.stderr
