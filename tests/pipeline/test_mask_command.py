"""`langadapt inspect-mask`: what it takes from a run's record, and how it ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from terminal import Terminal

from pipeline.__main__ import command_code
from pipeline.mask_command import MaskInputs, mask_inputs
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, ConfigError, StepError

SETTINGS = {"max_tokens": "384", "mask_personal_data": "true", "trust_remote_code": "false"}


def write_run(run: Path, *made: str, conversations: bool = True) -> Path:
    """A run's folder whose steps `made` have ended, with the definition that it was compiled to."""
    outputs = {"FineTune": "model", "AdaptVocabulary": "output", "TrainTokenizer": "output"}
    steps = {}
    for name, output in outputs.items():
        folder = run / "outputs" / name
        if name in made:
            folder.mkdir(parents=True)
        steps[name] = {"outputs": {output: str(folder)} if name in made else {}}
    talk = run / "talk of today.jsonl"
    (run / "definitions").mkdir(parents=True)
    if conversations:
        talk.write_text('{"prompt": "Salam", "completion": "Buyurun"}\n')
    definition = {"Steps": [{"Name": "FineTune", "Arguments": {"HyperParameters": SETTINGS}}]}
    (run / "definitions" / "key.json").write_text(json.dumps(definition))
    record = {"steps": steps, "parameters": {"ConversationsUri": talk.as_uri()}}
    (run / "execution.json").write_text(json.dumps(record))
    return run


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        (("TrainTokenizer",), "TrainTokenizer"),
        (("TrainTokenizer", "AdaptVocabulary"), "AdaptVocabulary"),
        (("TrainTokenizer", "AdaptVocabulary", "FineTune"), "FineTune"),
    ],
)
def test_a_run_gives_conversations_tokenizer_and_settings(tmp_path, made, taken):
    run = write_run(tmp_path / "run", *made)
    settings = {"max_tokens": 384, "mask_personal_data": True, "trust_remote_code": False}
    wanted = MaskInputs(run / "talk of today.jsonl", run / "outputs" / taken, settings)
    assert mask_inputs(run, None) == wanted
    # A tokenizer from elsewhere, and conversations from elsewhere.
    assert mask_inputs(run, tmp_path) == MaskInputs(wanted.conversations, tmp_path, settings)
    assert mask_inputs(tmp_path / "own.jsonl", run) == MaskInputs(tmp_path / "own.jsonl", wanted.model, settings)
    assert mask_inputs(tmp_path / "own.jsonl", tmp_path) == MaskInputs(tmp_path / "own.jsonl", tmp_path, {})


def test_an_execution_that_failed_early_leaves_the_one_before(tmp_path):
    run = write_run(tmp_path / "run", "TrainTokenizer")
    (run / "executions").mkdir()
    os.rename(run / "execution.json", run / "executions" / "1.json")
    record = json.loads((run / "executions" / "1.json").read_text())
    record["steps"]["TrainTokenizer"]["outputs"] = {}
    (run / "execution.json").write_text(json.dumps(record))
    assert mask_inputs(run, None).model == run / "outputs" / "TrainTokenizer"


def test_the_newest_run_serves_conversations_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--model: not given, and no run in runs\. Name a folder with a tokenizer"):
        mask_inputs(Path("own.jsonl"), None)
    for age, name in ((0, "newer"), (100, "older")):
        run = write_run(Path("runs", name).absolute(), "TrainTokenizer")
        changed = (run / "execution.json").stat().st_mtime - age
        os.utime(run / "execution.json", (changed, changed))
    assert mask_inputs(Path("own.jsonl"), None).model == Path("runs/newer/outputs/TrainTokenizer").absolute()
    assert capsys.readouterr().err == "Using the tokenizer of runs/newer\n"


def test_a_run_that_does_not_serve_is_named(tmp_path):
    with pytest.raises(StepError, match="no step of it has made a tokenizer"):
        mask_inputs(write_run(tmp_path / "early"), None)
    with pytest.raises(StepError, match="the run's conversations are gone"):
        mask_inputs(write_run(tmp_path / "gone", "TrainTokenizer", conversations=False), None)
    (tmp_path / "early" / "execution.json").write_text("{")
    with pytest.raises(StepError, match=r"execution\.json: no JSON"):
        mask_inputs(tmp_path / "early", None)
    (tmp_path / "early" / "execution.json").write_text("[]")
    with pytest.raises(StepError, match=r"execution\.json: no record of a run"):
        mask_inputs(tmp_path / "early", None)


def test_in_a_terminal_the_trained_tokens_are_coloured(tmp_path, tiny_tokenizer):
    """The whole command, in a window of 60 columns."""
    run = write_run(tmp_path / "run", "TrainTokenizer")
    tiny_tokenizer.save_pretrained(run / "outputs" / "TrainTokenizer" / "tokenizer")
    terminal = Terminal([sys.executable, "-m", "pipeline", "inspect-mask", str(run)], 60, 40, output=True)
    assert terminal.end()[0] == EXIT_DONE
    lines = terminal.screen.lines
    assert "example 1 of 1: talk of today.jsonl line 1: user assistant" in " ".join(" ".join(lines).split())
    assert "Buyurun<|eot_id|>" in lines
    asked, answered = terminal.received.split("example 1")[1].split("<|end_header_id|>")[1:]
    assert "48;5;114m" in answered
    assert "48;5;114m" not in asked


def test_errors_of_the_process_are_told_as_json(tmp_path, capfd):
    run = write_run(tmp_path / "run", "TrainTokenizer")
    assert command_code(["inspect-mask", str(run), "--json"], as_json=True) == EXIT_USER_ERROR
    told = json.loads(capfd.readouterr().out)["error"]
    assert (told["value"], told["exit_code"]) == ("no tokenizer.json", 1)
    assert told["subject"] == str(run / "outputs" / "TrainTokenizer")
