"""The whole DAG from a base model that brings code of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from own_code import CODE, give_own_code
from workplace import Workplace, fill_workplace, prove

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import EXIT_USER_ERROR, config_arguments, file_sha256

pytestmark = pytest.mark.verify

MODEL_STEPS = ("AdaptVocabulary", "ContinuedPretraining", "FineTune", "Evaluate")
ANSWER = """import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
prompt = tokenizer("Salam", return_tensors="pt")
print(type(model).__name__, model.config.embedding_factor, model.generate(**prompt, max_new_tokens=4).shape[1] > 0)"""


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_whole_dag(tmp_path: Path, make_tiny_llama, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    place: Workplace = fill_workplace(tmp_path, make_tiny_llama)
    give_own_code(tmp_path / "base")
    before = files_below(tmp_path)

    refused = place.run()
    print(refused.stderr)
    found = (refused.returncode, refused.stderr.count("\n"))
    prove("exit code and lines without the setting", found, (EXIT_USER_ERROR, 1), found == (EXIT_USER_ERROR, 1))
    made = {name for name in files_below(tmp_path) - before if "/outputs/" in name or "/jobs/" in name}
    prove("outputs and jobs made without the setting", len(made), 0, not made)

    finished = place.run("--set", "data.trust_remote_code=true")
    print(finished.stdout[-2_500:], finished.stderr[-2_500:])
    prove("exit code with the setting", finished.returncode, 0, finished.returncode == 0)
    digests = {name: file_sha256(tmp_path / "base" / name) for name in CODE}
    for step in MODEL_STEPS:
        manifest = json.loads((place.output(step) / "manifest.json").read_text())
        messages = [warned["message"] for warned in manifest["warnings"] if warned["name"] == "remote-code"]
        print(f"{step}: {messages}")
        named = len(messages) == 1 and all(f"{name} (sha256 {digests[name][:12]})" in messages[0] for name in CODE)
        prove(f"{step}: warnings by the name remote-code", len(messages), "1, with all three files", named)
        assert manifest["config"]["trust_remote_code"] is True
    training = json.loads((place.output("FineTune") / "training.json").read_text())
    difference = training["merge_relative_difference"]
    prove("merge: largest relative difference of a logit", difference, 1e-3, difference <= 1e-3)

    (version,) = place.versions()
    registered = place.folder / version["model_folder"]
    carried = {name: file_sha256(registered / name) for name in CODE if (registered / name).is_file()}
    prove("code files in the registered model, same bytes", len(carried), len(CODE), carried == digests)
    command = [sys.executable, "-c", ANSWER, str(registered)]
    environment = place.environment | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "other")}
    alone = subprocess.run(command, capture_output=True, text=True, cwd=home, env=environment)
    prove("the registered model in transformers alone", alone.stdout.strip(), "OwnForCausalLM 3.0 True",
          alone.stdout.split() == ["OwnForCausalLM", "3.0", "True"])  # fmt: skip
    left = {name for name in files_below(tmp_path) if name.endswith(".py") and "transformers_modules" in name}
    left = {name for name in left if not name.startswith("other/")}
    prove("copies of the code that stay in jobs or the home", len(left), 0, not left)

    again = place.run("--set", "data.trust_remote_code=true")
    prove("exit code of the same command again", again.returncode, 0, again.returncode == 0)
    cached = [step for step in MODEL_STEPS if place.states()[step] == "Cached"]
    prove("model steps from the cache", len(cached), len(MODEL_STEPS), len(cached) == len(MODEL_STEPS))

    train_sharded(place, tmp_path / "sharded")
    summary = json.loads((tmp_path / "sharded" / "training.json").read_text())
    alone = json.loads((place.output("ContinuedPretraining") / "training.json").read_text())
    parts = (summary["processes"], summary["parallelism"])
    prove("ContinuedPretraining again, sharded", parts, "2 processes, fsdp2", parts == (2, "fsdp2"))
    difference = abs(summary["validation_bits_per_byte"] - alone["validation_bits_per_byte"])
    prove("bits per byte of two processes and of one, difference", difference, "1e-4", difference <= 1e-4)


def train_sharded(place: Workplace, output: Path) -> None:
    """ContinuedPretraining on the run's own inputs, in two processes, each of which runs the code."""
    settings = json.loads((place.output("ContinuedPretraining") / "manifest.json").read_text())["config"]
    arguments = config_arguments(ContinuedPretrainingConfig(**settings))
    folders = {"model": place.output("AdaptVocabulary"), "blocks": place.output("TokenizeCorpus"), "output": output}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1",
        f"--master-port={port}", "-m", "--", "steps.continued_pretraining",
        *(f"--{name}={value}" for name, value in {**folders, **arguments}.items()),
    ]  # fmt: skip
    environment = place.environment | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    sharded = subprocess.run(command, cwd=place.source, env=environment, capture_output=True, text=True, timeout=600)
    assert sharded.returncode == 0, sharded.stderr
