"""`langadapt inspect-mask`: a process of its own encodes the conversations (steps/inspect_mask.py).

What a run's conversations are, which tokenizer they are encoded with and how long they may be comes from its record.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.command_options import AsJson, expanded

RUNS = Path("runs")
# Whose output holds the tokenizer, the latest first, and where in it.
TOKENIZER_STEPS = {"FineTune": "model", "AdaptVocabulary": "output", "TrainTokenizer": "output"}
# Settings of FineTune that decide which tokens there are.
SETTINGS = ("max_tokens", "mask_personal_data", "trust_remote_code")


@dataclass(frozen=True)
class MaskInputs:
    """What to encode, with which tokenizer, by which settings of FineTune (see SETTINGS)."""

    conversations: Path
    model: Path
    settings: Mapping[str, Any]


def inspect_mask(
    source: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run's folder, or conversations (.jsonl).")],
    model: Annotated[
        Path | None,
        typer.Option(help="Folder with the tokenizer, or a run; default: the run's, of a FILE the newest of runs/."),
    ] = None,
    example: Annotated[int, typer.Option(min=1, help="Number of the first conversation to show.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="How many to show.")] = 1,
    show_all: Annotated[bool, typer.Option("--all", help="Show all of them.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest conversation; default: the run's fine_tune.max_tokens, or 1024.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show which tokens of a conversation are trained, in colours."""
    from pipeline.progress import wants_colours

    found = mask_inputs(named(source), expanded(model))
    settings = {**found.settings, **({} if max_tokens is None else {"max_tokens": max_tokens})}
    words = [f"--conversations={found.conversations}", f"--model={found.model}", f"--example={example}",
             f"--count={count}"]  # fmt: skip
    words += [f"--{name}" if value is True else f"--{name}={value}" for name, value in settings.items() if value]
    words += ["--all"] if show_all else []
    if as_json:
        return show_masks([*words, "--json"], keeps_error=True)
    words += ["--colours"] if wants_colours(sys.stdout) else []
    words += [f"--columns={shutil.get_terminal_size().columns}"] if sys.stdout.isatty() else []
    return show_masks(words)


def show_masks(words: list[str], *, keeps_error: bool = False) -> int:
    """Starts the process that shows; returns its exit code.

    keeps_error: raises its error as StepError, for a caller that tells errors in a form of its own.
    """
    from pipeline.error_lines import line_parts
    from pipeline.local.run import package_path
    from steps.contract import EXIT_USER_ERROR, StepError

    sys.stdout.flush()
    # -P: a package named steps in the current folder is none of ours.
    command = [sys.executable, "-P", "-m", "steps.inspect_mask", *words]
    ended = subprocess.run(command, env=package_path(), stderr=subprocess.PIPE if keeps_error else None, text=True)
    if ended.stderr:
        *others, last = ended.stderr.rstrip("\n").split("\n")
        parts = line_parts(last)
        is_error = ended.returncode == EXIT_USER_ERROR and parts["subject"] is not None
        print("\n".join(others if is_error else [*others, last]), end="\n" if others else "", file=sys.stderr)
        if is_error:
            raise StepError(str(parts["subject"]), parts["value"], limit=parts["limit"], remedy=str(parts["remedy"]))
    return ended.returncode


def named(source: Path) -> Path:
    """A path of the command line that exists. Raises StepError for another."""
    from steps.contract import StepError

    path = expanded(source)
    assert path is not None
    if not path.exists():
        raise StepError(str(path), "does not exist", remedy="Name a run's folder or a file of conversations.")
    return path


def mask_inputs(source: Path, model: Path | None) -> MaskInputs:
    """What a run, or conversations with the tokenizer of a folder or run, come to.

    Raises StepError for a run that has no tokenizer or whose conversations are gone, ConfigError where no tokenizer is
    named and there is no run.
    """
    from pipeline.execution_record import RECORD_NAME, is_run
    from steps.contract import ConfigError

    if is_run(source):
        of_run = run_inputs(source, needs_tokenizer=model is None)
        return of_run if model is None else MaskInputs(of_run.conversations, tokenizer_of(model), of_run.settings)
    if model is None:
        model = max((path.parent for path in RUNS.glob(f"*/{RECORD_NAME}")), key=record_time, default=None)
        if model is None:
            remedy = "Name a folder with a tokenizer, such as FineTune's output, or a run."
            raise ConfigError("--model", f"not given, and no run in {RUNS}", remedy=remedy)
        print(f"Using the tokenizer of {model}", file=sys.stderr, flush=True)
    if not is_run(model):
        return MaskInputs(source, model, {})
    of_run = run_inputs(model)
    return MaskInputs(source, of_run.model, of_run.settings)


def record_time(run: Path) -> float:
    from pipeline.execution_record import RECORD_NAME

    return (run / RECORD_NAME).stat().st_mtime


def tokenizer_of(model: Path) -> Path:
    """The folder itself, or that of a run."""
    from pipeline.execution_record import is_run

    return run_inputs(model).model if is_run(model) else model


def run_inputs(run: Path, *, needs_tokenizer: bool = True) -> MaskInputs:
    """The conversations, tokenizer and settings of a run's newest execution in which a step made a tokenizer.

    needs_tokenizer: False where the caller has one; an execution without is taken then. Raises StepError.
    """
    from pipeline.execution_record import read_records
    from pipeline.local.uri_folders import UriFolders
    from steps.contract import StepError

    for record in read_records(run):
        if "ConversationsUri" not in record.get("parameters", {}):
            # Of a definition that trains on none.
            continue
        folders = {name: Path(step["outputs"][output]) for name, output in TOKENIZER_STEPS.items()
                   if output in (step := record["steps"].get(name, {"outputs": {}}))["outputs"]}  # fmt: skip
        model = next((folder for folder in folders.values() if folder.is_dir()), None)
        if model is None and needs_tokenizer:
            continue
        conversations = UriFolders(run, {}).find(record["parameters"]["ConversationsUri"])
        if not conversations.exists():
            raise StepError(str(conversations), "the run's conversations are gone", remedy="Name a file and --model.")
        return MaskInputs(conversations, model or run, run_settings(run, record, folders.get("FineTune")))
    remedy = "Run it at least to TrainTokenizer, or give --model with a folder that has a tokenizer."
    raise StepError(str(run), "no step of it has made a tokenizer", remedy=remedy)


def run_settings(run: Path, record: Mapping[str, Any], fine_tuned: Path | None) -> dict[str, Any]:
    """FineTune's settings: of its sealed output, else of the definition that was run, or was compiled last."""
    from steps.contract import read_seal

    if fine_tuned is not None and (fine_tuned / "manifest.json").is_file():
        config = read_seal(fine_tuned, check_files=False).config
        return {name: config[name] for name in SETTINGS if name in config}
    kept = sorted((run / "definitions").glob("*.json"), key=lambda path: path.stat().st_mtime)
    kept += [path for path in [run / record.get("definition", "")] if path.is_file()]
    steps = json.loads(kept[-1].read_bytes())["Steps"] if kept else []
    given: dict[str, Any] = next(
        (step["Arguments"]["HyperParameters"] for step in steps if step["Name"] == "FineTune"), {}
    )
    return {name: json.loads(given[name]) for name in SETTINGS if name in given}
