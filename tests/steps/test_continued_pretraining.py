"""ContinuedPretraining as a step: refusals, exports, a killed process, and two processes that share the work."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from small_pretraining import ROOT, arguments, environment, losses, run_processes

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.continued_pretraining import FOLDERS, REPORTS, continued_pretraining
from steps.contract import MANIFEST_NAME, ConfigError, StepConfig, StepFolders, read_seal, run_step, seal
from steps.modeling.loading import load_model, load_tokenizer
from steps.modeling.parallel import join_processes
from steps.schemas.training import PretrainingSummary, TelemetryRecord


def run(inputs, output, checkpoints=None, **settings) -> int:
    return run_step(
        continued_pretraining,
        ContinuedPretrainingConfig,
        FOLDERS,
        checkpoints=True,
        reports=REPORTS,
        arguments=arguments(inputs, output, checkpoints, **settings),
    )


def read_summary(output) -> PretrainingSummary:
    return PretrainingSummary.model_validate_json((output / "training.json").read_bytes())


def read_telemetry(output) -> list[TelemetryRecord]:
    lines = (output / "telemetry.jsonl").read_text().splitlines()
    return [TelemetryRecord.model_validate_json(line) for line in lines]


def test_writes_a_model_that_loads_and_what_it_did(pretraining_inputs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LANGADAPT_TENSORBOARD", str(tmp_path / "events"))
    assert run(pretraining_inputs, tmp_path / "output") == 0
    printed = capsys.readouterr().out
    summary = read_summary(tmp_path / "output")
    assert summary.phases["phase_1"].steps == 4
    assert summary.phases["phase_2"].steps == 6
    assert summary.phases["phase_2"].tokens == 6 * 256
    assert (summary.processes, summary.parallelism, summary.liger) == (1, "none", False)
    assert [step for step, _ in summary.validation_history] == [0, 4, 8, 10]
    assert summary.validation_bits_per_byte == summary.validation_history[-1][1] < summary.validation_history[0][1]
    shown = losses(printed)
    assert len(shown) == 10
    assert shown[0] == pytest.approx(summary.phases["phase_1"].first_loss, rel=1e-5)
    assert shown[-1] == pytest.approx(summary.phases["phase_2"].last_loss, rel=1e-5)
    shape = r"^metrics: step=5 phase=2 loss=\S+ validation_bits_per_byte=\S+ learning_rate=0.005 gradient_norm=\S+ "
    assert re.search(shape + r"tokens_per_second_per_device=\S+ peak_memory_bytes=\d+ blocks_read=20 ", printed, re.M)
    assert "phase 1 ends after step 4 of 4: all its steps are done; the backbone is the same to the byte" in printed
    model = load_model(tmp_path / "output")
    assert summary.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert len(load_tokenizer(tmp_path / "output")) == 320
    assert list((tmp_path / "events").glob("events.out.tfevents.*"))
    assert not list((tmp_path / "output").glob("**/events.out.tfevents.*"))
    metrics = read_seal(tmp_path / "output").metrics
    assert metrics["validation_bits_per_byte"] == summary.validation_bits_per_byte
    assert metrics["resumed_from_step"] == 0


@pytest.mark.parametrize("precision", ["bfloat16_mixed", "bfloat16"])
def test_lower_precisions_export_bfloat16(pretraining_inputs, tmp_path, precision):
    assert run(pretraining_inputs, tmp_path / "output", precision=precision, phase_2_steps=1) == 0
    assert json.loads((tmp_path / "output" / "config.json").read_text())["dtype"] == "bfloat16"


# --- refusals ---------------------------------------------------------------------------------------------------------


def reseal(folder: Path) -> None:
    (folder / MANIFEST_NAME).unlink()
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)


def test_blocks_of_another_tokenizer_are_refused(pretraining_inputs, make_pretraining_inputs, tmp_path, capsys):
    blocks = shutil.copytree(pretraining_inputs.blocks, tmp_path / "blocks")
    for path in blocks.glob("*/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_sha256": "f" * 64}))
    reseal(blocks)
    assert run(pretraining_inputs, tmp_path / "output", blocks=blocks) == 1
    assert re.search(r"^error: blocks: made by tokenizer f{12}; limit [0-9a-f]{12}, the model's own\. Tokenize",
                     capsys.readouterr().err, re.M)  # fmt: skip
    for path in blocks.glob("*/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": 384}))
    reseal(blocks)
    assert run(pretraining_inputs, tmp_path / "output", blocks=blocks) == 1
    assert "blocks: a vocabulary of 384 tokens; limit 320" in capsys.readouterr().err


def test_too_few_blocks_are_refused(pretraining_inputs, tmp_path, capsys):
    assert run(pretraining_inputs, tmp_path / "output", global_batch_tokens=64_000) == 1
    assert "error: training blocks:" in capsys.readouterr().err


def test_liger_on_without_cuda_is_refused(pretraining_inputs, tmp_path, capsys):
    assert run(pretraining_inputs, tmp_path / "output", liger="on") == 1
    assert "error: liger: on, but no CUDA device." in capsys.readouterr().err
    assert not (tmp_path / "output" / MANIFEST_NAME).exists()


def test_blocks_longer_than_the_context_are_refused(make_pretraining_inputs, tmp_path, capsys):
    inputs = make_pretraining_inputs(max_position_embeddings=48)
    assert run(inputs, tmp_path / "output") == 1
    assert "tokens in a block: 64; limit 48, the model's context" in capsys.readouterr().err


def test_checkpoints_of_other_settings_are_refused_by_name(pretraining_inputs, tmp_path, capsys):
    assert run(pretraining_inputs, tmp_path / "first", tmp_path / "checkpoints") == 0
    assert run(pretraining_inputs, tmp_path / "second", tmp_path / "checkpoints", phase_2_learning_rate=0.1) == 1
    assert "error: continued_pretraining.phase_2_learning_rate: 0.1; limit 0.005, that of the checkpoints in" in (
        capsys.readouterr().err
    )


def test_a_file_in_the_place_of_the_checkpoints_is_refused(pretraining_inputs, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert run(pretraining_inputs, tmp_path / "output", tmp_path / "notes.txt") == 1
    assert f"error: --checkpoints: {tmp_path / 'notes.txt'} is no folder. Name a folder." in capsys.readouterr().err


def test_a_slip_in_the_number_of_steps_is_refused(pretraining_inputs, tmp_path, capsys):
    assert run(pretraining_inputs, tmp_path / "output", phase_2_steps=10**20) == 1
    assert "phase_2_steps" in capsys.readouterr().err


def test_a_training_that_takes_away_what_was_known_is_warned_of(pretraining_inputs, tmp_path, capsys):
    assert run(pretraining_inputs, tmp_path / "output", phase_1_learning_rate=1.0, phase_2_learning_rate=1e-9) == 0
    assert "warning: training-made-worse: " in capsys.readouterr().err
    assert [warned.name for warned in read_seal(tmp_path / "output").warnings] == ["training-made-worse"]


def test_one_process_for_many_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="parallelism: none with 2 processes; limit 1 process"):
        join_processes("cpu", "none")


# --- one process ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parallelism", "told"), [("fsdp", "fsdp2"), ("ddp", "ddp")])
def test_one_process_may_shard_or_copy_and_gives_the_same(pretraining_inputs, tmp_path, parallelism, told):
    assert run(pretraining_inputs, tmp_path / "plain") == 0
    assert run(pretraining_inputs, tmp_path / "output", tmp_path / "checkpoints", parallelism=parallelism) == 0
    plain, other = read_summary(tmp_path / "plain"), read_summary(tmp_path / "output")
    assert (plain.parallelism, other.parallelism) == ("none", told)
    assert [record.loss for record in read_telemetry(tmp_path / "output")] == pytest.approx(
        [record.loss for record in read_telemetry(tmp_path / "plain")], abs=1e-5
    )


# --- whole processes --------------------------------------------------------------------------------------------------


def test_killed_in_phase_2_and_started_again_writes_the_same_file(pretraining_inputs, tmp_path):
    """kill -9 of a real process at step 13 of 24; the next attempt goes on and the file is equal in every bit."""
    settings = {"phase_2_steps": 20, "checkpoint_every_steps": 3}
    command = [sys.executable, "-m", "steps.continued_pretraining"]
    checkpoints = tmp_path / "checkpoints"
    interrupted = arguments(pretraining_inputs, tmp_path / "output", checkpoints, **settings)
    process = subprocess.Popen(
        [*command, *interrupted], cwd=ROOT, env=environment(torch.get_num_threads()), stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.startswith("metrics: step=13 phase=2"):
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    assert not (tmp_path / "output" / MANIFEST_NAME).exists()

    assert run(pretraining_inputs, tmp_path / "output", checkpoints, **settings) == 0
    assert run(pretraining_inputs, tmp_path / "whole", **settings) == 0
    # The set of step 12 may have been under way, in the background, when the process was killed.
    assert read_summary(tmp_path / "output").resumed_from_step in (9, 12)
    resumed, whole = (read_seal(tmp_path / name).files["model.safetensors"] for name in ("output", "whole"))
    assert resumed == whole
    assert read_summary(tmp_path / "output").validation_history == read_summary(tmp_path / "whole").validation_history
    # The lines of the attempt that was killed are there as well, as far as its last set.
    told = [[(line.step, line.loss) for line in read_telemetry(tmp_path / name)] for name in ("output", "whole")]
    assert [told[0] == told[1], len(told[1])] == [True, 24]


def run_sharded(inputs, output, checkpoints=None, **settings) -> str:
    """Two processes by torchrun over gloo; what they printed."""
    return run_processes(arguments(inputs, output, checkpoints, **settings), 2)


def test_two_sharded_processes_give_the_losses_of_one(pretraining_inputs, tmp_path, capsys):
    """FSDP2 over gloo, both phases: losses, validation and weights of one process; its checkpoint serves one, too."""
    checkpoints, output = tmp_path / "checkpoints", tmp_path / "output"
    shared = run_sharded(pretraining_inputs, output, checkpoints, activation_checkpointing="true")
    summary = read_summary(output)
    # "fsdp2" is said only where every parameter is a DTensor.
    assert (summary.processes, summary.parallelism) == (2, "fsdp2")

    capsys.readouterr()
    assert run(pretraining_inputs, tmp_path / "alone") == 0
    alone = read_summary(tmp_path / "alone")
    mine, theirs = losses(capsys.readouterr().out), losses(shared)
    assert len(mine) == len(theirs) == 10
    assert theirs == pytest.approx(mine, abs=1e-5)
    bits = [[value for _, value in one.validation_history] for one in (summary, alone)]
    assert bits[0] == pytest.approx(bits[1], abs=1e-5)
    weights = [dict(load_model(folder).named_parameters()) for folder in (output, tmp_path / "alone")]
    for name, value in weights[0].items():
        numpy.testing.assert_allclose(value.detach(), weights[1][name].detach(), atol=2e-4, err_msg=name)

    # Sets reshard: one process goes on from what two wrote, with moments (step 8 of 10).
    shutil.rmtree(next(checkpoints.glob("*/step-00000010")))
    assert run(pretraining_inputs, tmp_path / "resharded", checkpoints) == 0
    resharded = read_summary(tmp_path / "resharded")
    assert resharded.resumed_from_step == 8
    assert resharded.phases["phase_2"].last_loss == pytest.approx(alone.phases["phase_2"].last_loss, abs=1e-5)


@pytest.mark.verify
@pytest.mark.parametrize("precision", ["bfloat16_mixed", "bfloat16"])
def test_sharded_lower_precisions_follow_one_process(pretraining_inputs, tmp_path, capsys, precision):
    """Frozen, then unfrozen, in mixed precision: the losses stay those of one process within bfloat16's rounding."""
    shared = run_sharded(pretraining_inputs, tmp_path / "output", precision=precision)
    assert run(pretraining_inputs, tmp_path / "alone", precision=precision) == 0
    assert losses(shared) == pytest.approx(losses(capsys.readouterr().out), rel=5e-3)
