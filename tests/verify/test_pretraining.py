"""Proofs of ContinuedPretraining: many processes give what one gives, kills leave no trace, shards weigh a share."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
from small_pretraining import (
    ROOT,
    PretrainingInputs,
    arguments,
    environment,
    free_port,
    make_inputs,
    run_processes,
    start,
    torchrun,
)
from workplace import prove

from steps.contract import read_seal
from steps.modeling.loading import load_model
from steps.schemas.training import PretrainingSummary, TelemetryRecord

pytestmark = pytest.mark.verify

# Twenty steps in each phase, in passes that do not divide evenly among the processes' memory.
TWENTY = {"phase_1_steps": 20, "phase_2_steps": 20, "validate_every_steps": 20, "checkpoint_every_steps": 20}
FORTY = {"phase_1_steps": 15, "phase_2_steps": 25, "validate_every_steps": 7, "checkpoint_every_steps": 2}
LOSS_LIMIT = 1e-5
MODULE = [sys.executable, "-m", "steps.continued_pretraining"]
HELPERS = ROOT / "tests" / "helpers"


@pytest.fixture(scope="module")
def inputs(make_tiny_tokenizer, make_tiny_llama, tmp_path_factory) -> PretrainingInputs:
    root = tmp_path_factory.mktemp("inputs")
    return make_inputs(root, make_tiny_tokenizer, make_tiny_llama, tie_word_embeddings=True)


def run_alone(inputs: PretrainingInputs, output: Path, **settings) -> str:
    command = [*MODULE, *arguments(inputs, output, **settings)]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def alone(inputs: PretrainingInputs, tmp_path_factory) -> tuple[list[float], Path]:
    """The losses and the output of one process."""
    output = tmp_path_factory.mktemp("alone") / "output"
    run_alone(inputs, output, **TWENTY)
    return exact_losses(output), output


def exact_losses(output: Path) -> list[float]:
    """Of every step: the log rounds them."""
    lines = (output / "telemetry.jsonl").read_text().splitlines()
    return [TelemetryRecord.model_validate_json(line).loss for line in lines]


def summary_of(output: Path) -> PretrainingSummary:
    return PretrainingSummary.model_validate_json((output / "training.json").read_bytes())


# --- many processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "instances", "parallelism"),
    [(2, 1, "fsdp"), (4, 1, "fsdp"), (1, 2, "fsdp"), (2, 1, "ddp"), (4, 1, "ddp")],
    ids=["fsdp-2", "fsdp-4", "fsdp-two-instances", "ddp-2", "ddp-4"],
)
def test_many_processes_give_the_losses_of_one(inputs, alone, tmp_path, processes, instances, parallelism) -> None:
    expected, alone_output = alone
    step = arguments(inputs, tmp_path / "output", device_batch_blocks=1, parallelism=parallelism, **TWENTY)
    run_processes(step, processes, instances=instances)
    found = exact_losses(tmp_path / "output")
    count = processes * instances
    assert len(found) == len(expected) == 40
    name = f"{count} processes, {parallelism}, {instances} instance(s)"
    for phase, steps in (("phase 1", slice(0, 20)), ("phase 2", slice(20, 40))):
        largest = max(abs(mine - theirs) for mine, theirs in zip(found[steps], expected[steps], strict=True))
        claim = f"{name}: largest difference of the losses of 20 steps of {phase} from one process's"
        prove(claim, f"{largest:.2g}", f"< {LOSS_LIMIT}", largest < LOSS_LIMIT)
    summary = summary_of(tmp_path / "output")
    kind = "fsdp2" if parallelism == "fsdp" else "ddp"
    prove(f"{name}: training.json says", (summary.processes, summary.parallelism), f"({count}, {kind})",
          (summary.processes, summary.parallelism) == (count, kind))  # fmt: skip
    weights = [dict(load_model(folder).named_parameters()) for folder in (tmp_path / "output", alone_output)]
    largest = max(
        float(numpy.abs(value.detach() - weights[1][key].detach()).max()) for key, value in weights[0].items()
    )
    prove(f"{name}: largest difference of a weight after 40 steps", f"{largest:.2g}", "< 1e-3", largest < 1e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16_mixed", "bfloat16"])
def test_shards_weigh_their_share(inputs, precision) -> None:
    """parameters * (weights + gradients + two moments) / processes, as published figures follow from it."""
    config = load_model(inputs.model).config
    v, h, f, layers = config.vocab_size, config.hidden_size, config.intermediate_size, config.num_hidden_layers
    kv = h * config.num_key_value_heads // config.num_attention_heads
    parameters = v * h + layers * (2 * h * h + 2 * h * kv + 3 * h * f + 2 * h) + h
    bytes_each = 8 if precision == "bfloat16" else 16
    for processes in (1, 2, 4):
        script = [str(HELPERS / "training_state.py")]
        given = [str(inputs.model), str(inputs.blocks), precision, "fsdp"]
        printed = run_processes(given, processes, module=script)
        found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        assert len(found) == processes
        sharded = all(rank["sharded"] for rank in found)
        prove(f"{precision}, {processes} processes: every parameter is a sharded DTensor", sharded, "True", sharded)
        numbers = sum(rank["numbers"] for rank in found)
        prove(f"{precision}, {processes} processes: numbers in all shards", numbers, str(parameters),
              numbers == parameters)  # fmt: skip
        wanted = parameters * bytes_each / processes
        largest = max(abs(rank["bytes"] / wanted - 1) for rank in found)
        claim = f"{precision}, {processes} processes: state of {wanted:,.0f} bytes by the formula, largest difference"
        prove(claim, f"{largest:.3%}", "<= 2%", largest <= 0.02)


# --- kills and stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
def test_twenty_kills_leave_the_same_bits(inputs, tmp_path, processes) -> None:
    whole = tmp_path / "whole"
    if processes == 1:
        run_alone(inputs, whole, **FORTY)
    else:
        run_processes(arguments(inputs, whole, **FORTY), processes)
    folder = tmp_path / "killed"
    folder.mkdir()
    step = [word for word in arguments(inputs, folder, **FORTY) if not word.startswith("--output=")]
    given = {"arguments": step, "folder": str(folder), "processes": processes, "kills": 20, "seed": processes}
    command = [sys.executable, str(HELPERS / "killed_pretraining.py"), json.dumps(given)]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    name = f"{processes} process(es), 40 steps"
    prove(f"{name}: kills -9", found["kills"], "20", found["kills"] == 20)
    prove(f"{name}: different steps that an attempt went on from", found["resumed_from"], ">= 3",
          found["resumed_from"] >= 3)  # fmt: skip
    if processes > 1:
        seconds = found["longest_alone_seconds"]
        prove(f"{name}: longest that the other outlived the one killed", f"{seconds:.1f} s", "< 60 s", seconds < 60)
    weights = [read_seal(place).files["model.safetensors"].sha256 for place in (whole, folder / "output")]
    prove(f"{name}: final weights, sha256", weights[1][:16], weights[0][:16], weights[0] == weights[1])


@pytest.mark.parametrize("instances", [1, 2])
def test_a_rank_that_dies_ends_the_others(inputs, tmp_path, instances) -> None:
    """The last of four processes is killed, on one instance or on the second of two: all end, with one message."""
    port, error_file = free_port(), tmp_path / "error.json"
    settings = {"phase_1_steps": 2_000, "validate_every_steps": 2_000, "checkpoint_every_steps": 50}
    step = arguments(inputs, tmp_path / "output", tmp_path / "checkpoints", device_batch_blocks=1, **settings)
    running = [
        start(
            [*torchrun(4 // instances, port, instance=instance, instances=instances), "-m", "--",
             "steps.continued_pretraining", *step],
            {"LANGADAPT_ERROR_FILE": str(error_file)},
        )
        for instance in range(instances)
    ]  # fmt: skip
    for line in running[0].stdout:
        if line.startswith("metrics: step=3 "):
            break
    victim = children_of(running[-1].pid)[-1]
    killed_at = time.monotonic()
    subprocess.run(["kill", "-9", str(victim)], check=True)
    errors = [process.communicate(timeout=90)[1] for process in running]
    seconds = time.monotonic() - killed_at
    name = f"4 processes on {instances} instance(s)"
    prove(f"{name}: all have ended after", f"{seconds:.1f} s", "< 60 s", seconds < 60)
    codes = [process.returncode for process in running]
    prove(f"{name}: exit codes", codes, "none is 0", all(codes))
    message = json.loads(error_file.read_text())["line"]
    right = re.match(r"error: process \d of 4: another process ended and left it alone\. See the log", message)
    prove(f"{name}: the message", message, "one line that says so", right is not None)
    bugs = [line for text in errors for line in text.splitlines() if re.match(r"[A-Z]\w*Error: ", line)]
    prove(f"{name}: errors that ended in a traceback of the step", bugs, "[]", not bugs)


def children_of(process_id: int) -> list[int]:
    """Ids of a process's children, oldest first."""
    listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return sorted(map(int, listed))


def test_sigterm_to_two_instances_is_gone_on_from(inputs, tmp_path) -> None:
    """Both torchruns get SIGTERM: 143 and a set of the step; one process alone goes on from it."""
    port, checkpoints = free_port(), tmp_path / "checkpoints"
    settings = {"phase_1_steps": 2_000, "validate_every_steps": 2_000, "checkpoint_every_steps": 2_000}
    step = arguments(inputs, tmp_path / "output", checkpoints, **settings)
    running = [
        start([*torchrun(1, port, instance=instance, instances=2), "-m", "--", "steps.continued_pretraining", *step])
        for instance in range(2)
    ]
    for line in running[0].stdout:
        if line.startswith("metrics: step=5 "):
            break
    for process in running:
        process.send_signal(signal.SIGTERM)
    errors = [process.communicate(timeout=90)[1] for process in running]
    told = [sum("error: stopped by SIGTERM" in line for line in text.splitlines()) for text in errors]
    prove("instances whose process says that SIGTERM stopped it", told, "[1, 1]", told == [1, 1])
    sets = [path.parent.name for path in checkpoints.glob("*/step-*/complete.json")]
    prove("complete checkpoints, though none was due", sets, "1", len(sets) == 1)
    left = int(sets[0].removeprefix("step-"))
    short = {**settings, "phase_1_steps": 2_000}
    process = start([*MODULE, *arguments(inputs, tmp_path / "output", checkpoints, **short)])
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("metrics: "):
            break
    process.kill()
    process.communicate()
    goes_on = f"going on from the checkpoint of step {left}\n" in lines
    prove("one process alone goes on from the step that two instances stopped at", left, "the set's", goes_on)


def test_compiled_layers_give_the_losses_of_eager_ones(inputs, alone, tmp_path) -> None:
    expected, _ = alone
    run_alone(inputs, tmp_path / "output", compile_layers=True, **TWENTY)
    found = exact_losses(tmp_path / "output")
    largest = max(abs(mine - theirs) for mine, theirs in zip(found, expected, strict=True))
    claim = "torch.compile for each layer: largest difference of the losses of 40 steps"
    prove(claim, f"{largest:.2g}", f"< {LOSS_LIMIT}", largest < LOSS_LIMIT)
