"""A user's folder in which `langadapt` is run as a process, on a DAG of seconds a step; and how a proof is printed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "steps" / "sample_data"
PRESET = ROOT / "tests" / "presets" / "seconds.yaml"
JOB_STEPS = [
    "PrepareCorpus", "TrainTokenizer", "TokenizeCorpus", "AdaptVocabulary", "ContinuedPretraining", "FineTune",
    "Evaluate",
]  # fmt: skip


def prove(claim: str, number: object, limit: str, holds: bool) -> None:
    """Prints one line of a proof and asserts it."""
    print(f"\n{'proved' if holds else 'FAILED'}: {claim}: {number}; limit {limit}", flush=True)
    assert holds, f"{claim}: {number}; limit {limit}"


class Workplace:
    """A folder of a user's own: data, runs, registry.

    source: the checkout whose pipeline, steps and containers run; a copy lets a proof go on while files are edited.
    """

    def __init__(self, folder: Path, source: Path = ROOT) -> None:
        self.folder, self.source = folder, source

    @property
    def environment(self) -> dict[str, str]:
        # The cache is the developer's own: the sample's base model, minutes of work, is made once a machine.
        return {**os.environ, "PYTHONPATH": str(self.source), "NO_COLOR": "1"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pipeline", *arguments]

    def langadapt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900
        )

    def run_arguments(self, *more: str) -> list[str]:
        """Arguments of `langadapt` for a run of the preset of seconds on this folder's data."""
        names = {"corpus": "corpus.jsonl", "conversations": "conversations.jsonl", "base_model": "base"}
        settings = [part for name, path in names.items() for part in ("--set", f"data.{name}={self.folder / path}")]
        return ["run", "--config", str(PRESET), *settings, *more]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        return self.langadapt(*self.run_arguments(*more))

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "seconds"

    def execution(self) -> dict[str, Any]:
        return json.loads((self.run_folder / "execution.json").read_text())

    def states(self) -> dict[str, str]:
        return {name: step["state"] for name, step in self.execution()["steps"].items()}

    def output(self, step: str) -> Path:
        (folder,) = self.execution()["steps"][step]["outputs"].values()
        return Path(folder)

    def versions(self) -> list[dict[str, Any]]:
        return json.loads(self.langadapt("models", "list", "--json").stdout)


def fill_workplace(folder: Path, make_tiny_llama: Callable[..., Any], source: Path = ROOT) -> Workplace:
    """The sample's corpus and conversations, and a base model of 576 tokens that has learnt nothing."""
    from steps.modeling.loading import load_tokenizer, save_model
    from steps.text.bbpe import train_bbpe
    from steps.text.chat_template import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN
    from steps.train_tokenizer import write_tokenizer_folder

    for name in ("corpus.jsonl", "conversations.jsonl"):
        shutil.copy(SAMPLE / name, folder / name)
    tokenizer = train_bbpe(["The base model of this test speaks English and knows nothing else."] * 5, 576, 2)
    write_tokenizer_folder(tokenizer, folder / "base", 512)
    names = {"bos_token_id": BOS_TOKEN, "eos_token_id": EOS_TOKEN, "pad_token_id": PAD_TOKEN}
    ids = {name: tokenizer.token_to_id(token) for name, token in names.items()}
    save_model(make_tiny_llama(576, **ids), load_tokenizer(folder / "base"), folder / "base")
    return Workplace(folder, source)


def copy_of_source(folder: Path) -> Path:
    """A copy of the packages that run, so that a long proof speaks of one state of them."""
    for package in ("pipeline", "steps", "containers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
