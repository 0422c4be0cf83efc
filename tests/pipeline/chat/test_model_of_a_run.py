"""A run folder stands for the model that its FineTune step made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pipeline.chat.model_folder import model_folder_of
from steps.contract import StepError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs" / "FineTune" / "0a" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def write_record(path: Path, state: str, *outputs: Path, seconds_ago: int = 0) -> None:
    step = {"state": state, "outputs": {f"output-{number}": str(found) for number, found in enumerate(outputs)}}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"steps": {"FineTune": step}}))
    when = path.stat().st_mtime - seconds_ago
    os.utime(path, (when, when))


@pytest.mark.parametrize("state", ["Succeeded", "Cached"])
def test_a_run_stands_for_its_fine_tuned_model(tmp_path, model, state):
    write_record(tmp_path / "execution.json", state, tmp_path / "elsewhere", model)
    assert model_folder_of(tmp_path) == model
    assert model_folder_of(model) == model


def test_an_execution_that_left_fine_tune_out_leads_to_the_one_before(tmp_path, model):
    write_record(tmp_path / "execution.json", "NotRun")
    write_record(tmp_path / "executions" / "c.json", "NotRun")
    write_record(tmp_path / "executions" / "b.json", "Succeeded", model, seconds_ago=60)
    write_record(tmp_path / "executions" / "a.json", "Failed", seconds_ago=120)
    assert model_folder_of(tmp_path) == model


def refusal(folder: Path) -> str:
    with pytest.raises(StepError) as refused:
        model_folder_of(folder)
    return str(refused.value).removeprefix(str(folder))


def test_a_run_without_a_model_is_told(tmp_path, model):
    remedy = "Run it to its end, or name a model folder."
    write_record(tmp_path / "execution.json", "NotRun")
    assert refusal(tmp_path) == f": FineTune is NotRun; limit Succeeded. {remedy}"
    write_record(tmp_path / "executions" / "b.json", "Succeeded", model, seconds_ago=60)
    # What a later execution failed to make is not replaced by what there was before.
    write_record(tmp_path / "execution.json", "Failed")
    assert refusal(tmp_path) == f": FineTune is Failed; limit Succeeded. {remedy}"
    write_record(tmp_path / "execution.json", "Succeeded", tmp_path / "gone")
    assert refusal(tmp_path).startswith(f": the model of FineTune is not at {tmp_path / 'gone'} any more. Run it again")
    (tmp_path / "execution.json").write_text("{")
    assert refusal(tmp_path).startswith("/execution.json: no JSON. Run it again")
