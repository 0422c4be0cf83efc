"""Every command that the README shows is run, in its order, on the sample and a DAG of seconds a step."""

import functools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from account_stand_in import AccountStandIn, account_stand_in
from sagemaker_stub import sagemaker_stub
from stub_executions import add_execution, ending, serve_run
from transformers import AutoModelForCausalLM
from workplace import PRESET, ROOT, Workplace, fill_workplace

from pipeline.config import load_config
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
# Commands that an AWS account answers: moto's server, or for what moto does not have a stub of the service.
ACCOUNT_COMMANDS = ("push", "upsert", "start", "executions", "schedule", "models --remote")
STUBBED_COMMANDS = ("status", "logs", "stop", "retry")


def readme_commands() -> list[str]:
    """Every langadapt and python -m command that the README shows, in its order."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.findall(
        r"^    ((?:langadapt|python -m) .+)$|`((?:langadapt|python -m) [^`]+)`", text, flags=re.MULTILINE
    )
    return list(dict.fromkeys((block or inline).split("  #")[0].strip() for block, inline in found))


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
    """An account with the bucket that the README's own.yaml names, which is the preset of seconds with its section."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if block.startswith("aws:"))
    (place.folder / "own.yaml").write_text(PRESET.read_text("utf-8") + section, "utf-8")
    settings = load_config(file=place.folder / "own.yaml").aws
    with account_stand_in() as served:
        client = boto3.client("s3", region_name=settings.region, endpoint_url=served.environment["AWS_ENDPOINT_URL"],
                              aws_access_key_id="stand-in", aws_secret_access_key="stand-in")  # fmt: skip
        where = {"LocationConstraint": settings.region}
        client.create_bucket(Bucket=settings.bucket, CreateBucketConfiguration=where)  # type: ignore[typeddict-item]
        yield served


@contextmanager
def answering(command: str, place: Workplace, account: AccountStandIn) -> Iterator[dict[str, str]]:
    """Variables with which a command finds who answers it; none for one that needs no account."""
    if command in ACCOUNT_COMMANDS:
        yield account.environment
    elif command in STUBBED_COMMANDS:
        with sagemaker_stub() as stub:
            definition = json.loads((place.run_folder / place.execution()["definition"]).read_bytes())
            serve_run(stub, place.run_folder, definition)
            stub.streams["/aws/sagemaker/TrainingJobs", "job-FineTune/algo-1-1700000000"] = ["metrics: loss=2.5"]
            if command in ("stop", "retry"):
                add_execution(stub, ending(stub)[:1] if command == "stop" else ending(stub, train="Failed")[-1:])
            yield stub.environment
    else:
        yield {}


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
    name_of_command = f"{words[0]} --remote" if "--remote" in words else words[0]
    with answering(name_of_command, place, account) as variables:
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
