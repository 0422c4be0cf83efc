"""The command line as programs and shells use it: JSON errors, closed pipes, registries, completion."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.completion import parameter_names, step_names
from pipeline.error_lines import line_parts
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pipeline"]
KEYS = {"line", "subject", "value", "limit", "remedy", "exit_code"}


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANGADAPT_")}
    return kept | {"PYTHONPATH": str(ROOT)} | more


@dataclass
class Answer:
    """What one command gave."""

    code: int
    stdout: str
    stderr: str


# Runs one command after another: most of a command's time is Python's start.
RUN_ALL = """
import json, sys
from pipeline.__main__ import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            print(f"{end.code}\\x1e", end="", file=stream, flush=True)
"""


def langadapt(*commands: Sequence[str], folder: Path) -> list[Answer]:
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps([list(command) for command in commands])], cwd=folder,
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = []
    for output, errors in zip(done.stdout.split("\x1e")[:-1], done.stderr.split("\x1e")[:-1], strict=True):
        (output, code), errors = re.fullmatch(r"(.*?)(\d+)", output, re.DOTALL).groups(), re.sub(r"\d+$", "", errors)
        answers.append(Answer(int(code), output, errors))
    assert len(answers) == len(commands)
    return answers


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    """A registry at its default place with versions 1 and 2 of one group."""
    opened = LocalRegistry(tmp_path / "runs" / "registry")
    (tmp_path / "model").mkdir()
    for number in (1, 2):
        (tmp_path / "model" / "config.json").write_text(f"{number}")
        opened.register(group="langadapt", model=tmp_path / "model", metadata={}, metrics={}, request={})
    return opened


# --- errors -----------------------------------------------------------------------------------------------------------

NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
ADDRESS = "s3://b/x is an address; name a place on this machine."
MISUSED = {
    "run --preset laptpo": ("--preset", "laptpo", "Did you mean laptop?"),
    "run --set fine_tune.epoch=1": ("fine_tune.epoch", "no such field", "Did you mean epochs?"),
    "run --set fine_tune.lora_rank=0": ("fine_tune.lora_rank", "0", "Change this field."),
    "run --registry a-file": ("registry", "a-file is a file", "Name a registry's folder."),
    "run --nonsense": ("--nonsense", "No such option: --nonsense", "See langadapt run --help."),
    "run --run-dir s3://b/x": ("--run-dir", ADDRESS, "See langadapt run --help."),
    "run --registry s3://b/x": ("--registry", ADDRESS, "See langadapt run --help."),
    "compile --output s3://b/x": ("--output", ADDRESS, "See langadapt compile --help."),
    "sample s3://b/x": ("folder", ADDRESS, "See langadapt sample --help."),
    "models export-bedrock 1 --output s3://b/x": ("--output", ADDRESS, "See langadapt models export-bedrock --help."),
    "push corpus s3://b/x": ("source", ADDRESS, "See langadapt push corpus --help."),
    "check own.yaml": ("check", "own.yaml is a configuration by its name", "Check it with --config own.yaml."),
    "schedule set noon": ("schedule", "noon", "Write cron(0 3 ? * SUN *), rate(7 days) or at(2027-01-31T03:00:00)."),
    "models approve 1 --dry-run": ("--dry-run", "True", "Add --remote, or leave it out."),
    "compile --output /proc/x": ("/proc/x", "cannot be made there", "Name a place that can be written to."),
    "compile --config none.yaml": ("--config", "none.yaml does not exist", "Name a YAML file."),
    "sample a-file": ("sample", "{folder}/a-file is a file", "Name a new folder."),
    "models show one": (
        "version",
        "Input should be a valid integer, unable to parse string as an integer",
        "See langadapt models show --help.",
    ),
    "models show 7 --registry nope": (
        "registry",
        "nope does not exist",
        "Name another with --registry; langadapt run makes one when its gate is open.",
    ),
    "models reject 1": ("--comment", "not given", "See langadapt models reject --help."),
    "nonsense": ("langadapt", "No such command 'nonsense'.", "See langadapt --help."),
}


def test_every_error_is_one_json_object_with_all_its_parts(tmp_path: Path) -> None:
    (tmp_path / "a-file").write_text("")
    answers = langadapt(*([*words.split(), "--json"] for words in MISUSED), folder=tmp_path)
    for words, answer in zip(MISUSED, answers, strict=True):
        assert (answer.code, answer.stderr) == (1, ""), words
        error = json.loads(answer.stdout)["error"]
        assert set(error) == KEYS
        expected = [part.format(folder=tmp_path) for part in MISUSED[words]]
        assert [error["subject"], error["value"], error["remedy"]] == expected, words
        assert error["exit_code"] == 1
        assert "\n" not in error["line"]


def test_the_parts_of_a_line_are_those_that_it_was_made_of() -> None:
    for parts in (
        {"subject": "fine_tune.max_tokens", "value": "9000", "limit": "4096", "remedy": "Lower it."},
        {"subject": "corpus, a.jsonl line 3", "value": "no JSON", "limit": None, "remedy": "Mend the file. Or not."},
        {
            "subject": "loss at step 7",
            "value": "nan",
            "limit": "a finite number",
            "remedy": "Take 0.5. It works.",
        },
    ):
        error = ConfigError(parts["subject"], parts["value"], limit=parts["limit"], remedy=str(parts["remedy"]))
        assert line_parts(f"error: {error}") == parts
    assert set(line_parts("killed by SIGKILL").values()) == {None}


def test_a_bug_keeps_its_traceback_and_is_json_too(tmp_path: Path) -> None:
    # Found before the library of that name, as the current folder comes first here.
    (tmp_path / "yaml.py").write_text("raise ValueError('broken')\n")
    (answer,) = langadapt(["run", "--json"], folder=tmp_path)
    error = json.loads(answer.stdout)["error"]
    assert set(error) == KEYS
    assert (error["line"], error["exit_code"], answer.code) == ("ValueError: broken", 70, 70)
    assert answer.stderr.startswith("Traceback")


# --- readers that leave -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ([*COMMAND, "models", "list"], ""),
        ([*COMMAND, "models", "list"], "1"),
        ([*COMMAND, "--help"], ""),
        ([sys.executable, "-m", "steps.prepare_corpus", "--help"], ""),
    ],
)
def test_a_reader_that_leaves_early_ends_the_command_quietly(
    tmp_path: Path, registry: LocalRegistry, command: list[str], unbuffered: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    surroundings = environment(PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run(command, cwd=tmp_path, env=surroundings, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["models", "show", "7", "--json"], ["run", "--preset", "laptpo", "--json"]])
def test_a_command_that_fails_fails_without_a_reader_too(tmp_path: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *words], cwd=tmp_path, env=environment(PYTHONUNBUFFERED="1"), stdout=writing,
        stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_run_that_fails_fails_without_a_reader_too(tmp_path: Path) -> None:
    """The run itself stands aside: what counts is what becomes of its exit code when it is told."""
    code = "import sys\nfrom pipeline.command_options import for_a_reader\n"
    code += "with for_a_reader():\n    print('summary')\nprint('more')\nsys.exit(2)"
    reading, writing = os.pipe()
    os.close(reading)
    for unbuffered in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment(PYTHONUNBUFFERED=unbuffered), stdout=writing,
            stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (2, b"")
    os.close(writing)


# --- registries -------------------------------------------------------------------------------------------------------


def test_a_registry_that_is_not_there_is_named_and_one_that_is_none_refused(
    tmp_path: Path, registry: LocalRegistry
) -> None:
    (tmp_path / "empty").mkdir()
    folders = ["runs/registri", "empty", "runs", "runs/registry/langadapt"]
    answers = langadapt(*(["models", "list", "--registry", name] for name in folders), folder=tmp_path)
    assert [answer.code for answer in answers] == [0, 0, 1, 1]
    assert "registered in runs/registri (no such folder);" in answers[0].stdout
    assert "registered in empty;" in answers[1].stdout
    for wrong, answer in zip(folders[2:], answers[2:], strict=True):
        line = f"error: registry: {wrong} holds no model versions but other files. Did you mean runs/registry?\n"
        assert answer.stderr == line


def test_a_comment_that_the_history_does_not_take_is_not_dropped_silently(
    tmp_path: Path, registry: LocalRegistry
) -> None:
    approve = ["models", "approve", "1", "--comment"]
    first, second, third = langadapt(
        [*approve, "read it"], [*approve, "again"], [*approve, "x", "--json"], folder=tmp_path
    )
    assert (first.code, first.stdout, first.stderr) == (0, "langadapt version 1: Approved\n", "")
    assert second.stdout == "langadapt version 1: Approved, as before\n"
    assert second.stderr == "note: the comment was not kept: the version was Approved before\n"
    assert json.loads(third.stdout)["changed"] is False
    assert [approval.comment for approval in registry.show(1).approvals] == ["", "read it"]


# --- completion -------------------------------------------------------------------------------------------------------

COMPLETIONS = {
    "run --preset az": {"azerbaijani-1b-p4d", "azerbaijani-1b-p5", "azerbaijani-8b-p5"},
    "run --set fine_tune.lora_": {"fine_tune.lora_rank=", "fine_tune.lora_alpha=", "fine_tune.lora_dropout="},
    "run --param Max": {"MaxBitsPerByte=", "MaxRetentionLoss="},
    "models show ": {"1", "2"},
    "models diff 1 ": {"1", "2"},
    "models approve --group none ": set(),
}


def completed(shell: str, words: str, folder: Path) -> tuple[set[str], float]:
    """What a shell is offered at the end of the words, and the processor seconds that it took."""
    line = f"langadapt {words}"
    protocol = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        COMMAND, cwd=folder, env=environment(_LANGADAPT_COMPLETE=f"complete_{shell}", **protocol), capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if shell == "zsh":
        # _arguments '*: :(("a":"its help" "b":...))'
        quoted = done.stdout.split('"')[1::2]
        return {text.replace("\\", "") for text in quoted[:: 2 if '":"' in done.stdout else 1]}, seconds
    return {text.split("\t")[0].strip() for text in done.stdout.splitlines() if text.strip()}, seconds


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_offered_presets_fields_parameters_and_versions(
    tmp_path: Path, registry: LocalRegistry, shell: str
) -> None:
    for line in COMPLETIONS if shell == "bash" else ["models show "]:
        offered, seconds = completed(shell, line, tmp_path)
        assert offered == COMPLETIONS[line], line
        assert seconds < 1.0, f"{line}: {seconds:.2f} s of processor time"


def test_bash_itself_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    shown = subprocess.run(
        [*COMMAND, "--show-completion", "bash"], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
    )  # fmt: skip
    program = tmp_path / "langadapt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pipeline "$@"\n')
    program.chmod(0o755)
    script = f"{shown.stdout}\nCOMP_WORDS=(langadapt run --preset lap); COMP_CWORD=3\n_langadapt_completion langadapt\n"
    done = subprocess.run(
        [bash, "-c", script + 'echo "${COMPREPLY[@]}"'], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env=environment(PATH=f"{tmp_path}:{os.environ['PATH']}"),
    )  # fmt: skip
    assert done.stdout.split() == ["laptop"], done.stderr


def test_the_names_that_are_read_from_the_text_are_those_of_the_definition(compiled_text) -> None:
    definition = json.loads(compiled_text("laptop"))
    declared = {parameter["Name"] for parameter in definition["Parameters"]}
    # Those of the source corpus, of the extra text and of questions exist only with them.
    optional = {"SourceCorpusUri", "ExtraHeldoutUri", "AccuracyUri", "MaxRetentionLoss"}
    assert set(parameter_names()) - declared == optional
    assert declared < set(parameter_names())

    def names(steps: list[dict]) -> set[str]:
        inner = [step["Arguments"].get(branch, []) for step in steps if step["Type"] == "Condition"
                 for branch in ("IfSteps", "ElseSteps")]  # fmt: skip
        return {step["Name"] for step in steps}.union(*map(names, inner))

    # Those of the branch exist only in an ablation.
    branch = {"TokenizeCorpusBase", "ContinuedPretrainingBase"}
    assert set(step_names()) - names(definition["Steps"]) == branch
    assert names(definition["Steps"]) < set(step_names())
