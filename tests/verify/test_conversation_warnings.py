"""Doubtful conversations through the step itself: warned about by name on standard error and in manifest.json."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from doubtful_conversations import SPOILT, sample_pairs, write_pairs
from workplace import ROOT, prove

from steps.contract import EXIT_DONE, StepConfig, StepFolders, seal
from steps.modeling.loading import save_model

pytestmark = pytest.mark.verify
SETTINGS = [
    "--lora_rank=2",
    "--lora_alpha=4",
    "--epochs=0.1",
    "--max_tokens=1024",
    "--validation_share=0.2",
    "--device=cpu",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, make_tiny_tokenizer, make_tiny_llama) -> Path:
    """A sealed model of two layers whose tokenizer was trained on the sample's language."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tiny_tokenizer([f"{asked} {said}" for asked, said in sample_pairs()], vocab_size=1_200)
    save_model(make_tiny_llama(1_200, max_position_embeddings=1_024), tokenizer, folder)
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)
    return folder


def warned(model: Path, conversations: Path, output: Path) -> tuple[list[str], list[str]]:
    """Names of the warnings on standard error and in the manifest of one FineTune."""
    folders = [f"--model={model}", f"--conversations={conversations}", f"--output={output}"]
    command = [sys.executable, "-m", "steps.fine_tune", *folders, *SETTINGS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == EXIT_DONE, done.stderr
    said = [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("warning: ")]
    manifest = json.loads((output / "manifest.json").read_text())
    return said, [warning["name"] for warning in manifest["warnings"]]


def test_each_doubt_is_named_by_the_step_and_in_its_manifest(model: Path, tmp_path: Path) -> None:
    named = []
    for name, spoil in SPOILT.items():
        path = write_pairs(tmp_path / f"{name}.jsonl", spoil(sample_pairs()))
        found = warned(model, path, tmp_path / name)
        named.append(found == ([name], [name]))
        print(f"{name}: standard error {found[0]}, manifest {found[1]}", flush=True)
    prove("doubtful conversations warned about by name", f"{sum(named)} of {len(named)}", "all, 12 or more",
          all(named) and len(named) >= 12)  # fmt: skip


def test_the_clean_sample_gives_no_warning(model: Path, tmp_path: Path) -> None:
    found = warned(model, write_pairs(tmp_path / "sample.jsonl", sample_pairs()), tmp_path / "out")
    prove("warnings of the clean sample", len(found[0]) + len(found[1]), "0", found == ([], []))
