"""Every command that the pages show exists, with its options; and some test runs one of its kind.

Here they are read as a call reads them, and nothing is called. tests/test_readme.py runs those of the README,
tests/verify/test_docs_whole.py those of the newer pages, and other pages have tests of their own.
"""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer
from shown_commands import commands_of

from pipeline.__main__ import app

ROOT = Path(__file__).parents[1]
# What docs/bad-inputs.md shows is wrong on purpose, and has its own test.
PAGES = sorted(
    {*ROOT.glob("docs/*.md"), *ROOT.glob("README.*.md"), ROOT / "infra" / "README.md"}
    - {ROOT / "docs" / "bad-inputs.md"}
)
# What the variable of infra/README.md may hold; docs/aws-smoke.md states its own.
ANY_ACCOUNT = "--preset aws-smoke"
COMMANDS = typer.main.get_command(app)
# Words that stand for the reader's own where a number or a known word is asked for.
WORDS = {"NUMBER": "1", "STEP": "FineTune", "{step}": "FineTune"}
# In words a page may mean a command with what belongs behind it left out.
WITHOUT_ARGUMENTS = re.compile(r"langadapt [a-z-]+( [a-z-]+)?")
# Kinds that the README does not show, and the file whose tests run them.
RUN_ELSEWHERE = {
    "preflight": "tests/pipeline/remote/test_preflight.py",
    "models reject": "tests/pipeline/test_model_commands.py",
    "models reject --remote": "tests/pipeline/remote/test_model_packages.py",
    "models show --remote": "tests/pipeline/remote/test_model_packages.py",
    "models approve --remote": "tests/pipeline/remote/test_model_packages.py",
    "push code": "tests/pipeline/remote/test_push.py",
}


def shown() -> list[tuple[str, str]]:
    """Page and command, the variable of docs/aws-smoke.md filled in."""
    found = []
    for page in PAGES:
        account = re.search(r'^    ACCOUNT="(.+)"$', page.read_text("utf-8"), flags=re.MULTILINE)
        filled = account[1] if account else ANY_ACCOUNT
        found += [(page.name, command.replace("$ACCOUNT", filled)) for command in commands_of(page)]
    return [(page, command) for page, command in found if "..." not in command]


def words_of(command: str) -> list[str]:
    """The words behind the program's name; what a page puts in brackets may be given and is."""
    return [WORDS.get(word, word) for word in shlex.split(re.sub(r"[\[\]](?=--|[ ]|$)", "", command))]


def kind(command: str) -> str:
    """The command's name, with that of its group's command, and --remote, which another program answers."""
    words = words_of(command)[1:]
    grouped = words[:2] if words[0] in ("models", "push", "schedule") else words[:1]
    return " ".join([*grouped, *(["--remote"] if "--remote" in words else [])])


@pytest.mark.parametrize(("page", "command"), [entry for entry in shown() if entry[1].startswith("langadapt")])
def test_a_command_of_langadapt_exists_with_its_options(page: str, command: str) -> None:
    words = words_of(command)[1:]
    found = COMMANDS
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        assert words[0] in found.commands, page
        found = found.commands[words.pop(0)]
    # Reads the words as a call does, and calls nothing.
    if words or not WITHOUT_ARGUMENTS.fullmatch(command):
        found.make_context("langadapt", words)


@pytest.mark.parametrize(("page", "command"), [entry for entry in shown() if entry[1].startswith("python -m steps.")])
def test_a_command_of_a_step_has_folders_and_settings_that_there_are(page: str, command: str) -> None:
    words = shlex.split(command)
    name = words[2].removeprefix("steps.")
    if name in ("<step>", "<name>"):
        return
    source = (ROOT / "steps" / f"{name}.py").read_text("utf-8")
    folders = {*re.findall(r'Folder\("(\w+)"', source), "output", "checkpoints"}
    (config,) = (
        value for value in vars(importlib.import_module(f"steps.configs.{name}")).values()
        if isinstance(value, type) and value.__name__ == f"{name.title().replace('_', '')}Config"
    )  # fmt: skip
    given = {word[2:].partition("=")[0] for word in words if word.startswith("--")} - {"help"}
    assert given <= folders | set(config.model_fields), page


def test_every_kind_of_command_is_run_by_a_test() -> None:
    kinds = {kind(command) for command in commands_of(ROOT / "README.md") if command.startswith("langadapt ")}
    asked = {kind(command): page for page, command in shown() if len(command.split()) > 2 and command[0] == "l"}
    missing = {name: page for name, page in asked.items() if name not in kinds and name not in RUN_ELSEWHERE}
    assert not missing
    for name, file in RUN_ELSEWHERE.items():
        assert name.split()[1 if " " in name else 0] in (ROOT / file).read_text("utf-8"), file


def test_the_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+)(?=[ :%][^=]*##|:)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    targets |= {"image-cpu", "image-gpu"}
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text("utf-8"), flags=re.MULTILINE)
        assert set(named) <= targets, page.name
