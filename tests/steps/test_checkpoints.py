"""Checkpoints: what counts as complete, what is kept, and that training goes on to the bit."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from steps.configs.continued_pretraining import NOT_LEARNED, ContinuedPretrainingConfig
from steps.modeling.batches import BatchPlan
from steps.modeling.checkpoint_settings import MARKER_NAME, checkpoint_key
from steps.modeling.checkpoints import CheckpointStore, find_fault, training_state
from steps.modeling.loading import load_model
from steps.modeling.parallel import Processes
from steps.modeling.training import start_phase, train
from steps.text.packing import PackedBlocks

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
CONFIG = ContinuedPretrainingConfig(
    phase_1_steps=4,
    phase_1_learning_rate=0.01,
    phase_2_steps=5,
    phase_2_learning_rate=0.01,
    global_batch_tokens=256,
    device_batch_blocks=4,
    precision="float32",
    device="cpu",
    checkpoint_every_steps=2,
    kept_checkpoints=3,
)


class SigtermBlocks(PackedBlocks):
    """Blocks that send this process SIGTERM when the batch of a step is read."""

    def __init__(self, folder, batch_number: int) -> None:
        super().__init__(folder)
        self.left = batch_number

    def batch(self, indices):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().batch(indices)


def run(inputs, folder, blocks=None, config=CONFIG):
    """Trains from the newest set in the folder; gives the model, the progress and the step it went on from."""
    model = load_model(inputs.model)
    plan = BatchPlan.of(blocks or inputs.train, config.global_batch_tokens, config.device_batch_blocks, 0, world_size=1)
    store = CheckpointStore(folder, "key", config.kept_checkpoints, ALONE)
    progress, resumed_from = train(model, plan, config, ALONE, store, validate=lambda trained: 1.0)
    return model, progress, resumed_from


def assert_equal_bits(one, other) -> None:
    for (name, first), (_, second) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(first, second), name


def sets(folder) -> list[str]:
    return sorted(path.name for path in (folder / "key").iterdir())


@pytest.fixture
def store(tmp_path) -> CheckpointStore:
    return CheckpointStore(tmp_path, "key", 2, ALONE)


# --- the store --------------------------------------------------------------------------------------------------------


def test_what_was_saved_is_loaded_moments_included(store, tiny_llama, make_tiny_llama):
    optimizer = start_phase(tiny_llama, CONFIG, phase=2)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    for _ in range(2):
        tiny_llama(torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
        optimizer.step()
    store.save(7, training_state(tiny_llama, optimizer), {"step": 7, "note": "ə"})
    assert store.latest() == 7
    assert store.read_progress(7) == {"step": 7, "note": "ə"}

    other = make_tiny_llama(seed=1)
    fresh = start_phase(other, CONFIG, phase=2)
    store.load(7, training_state(other, fresh))
    assert_equal_bits(tiny_llama, other)
    for mine, theirs in zip(tiny_llama.parameters(), other.parameters(), strict=True):
        assert float(fresh.state[theirs]["step"]) == 2.0
        for kind in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(optimizer.state[mine][kind], fresh.state[theirs][kind])


def test_a_tied_matrix_is_stored_once(tiny_llama):
    names = training_state(tiny_llama, None)
    assert "model.model.embed_tokens.weight" in names
    assert "model.lm_head.weight" not in names


def test_keeps_the_last_sets_and_drops_those_of_a_broken_past(store, tiny_llama):
    for step in (2, 4, 6):
        store.save(step, training_state(tiny_llama, None), {"step": step})
    assert sets(store.folder.parent) == ["step-00000004", "step-00000006"]
    (store.folder / "step-00000006" / MARKER_NAME).unlink()
    assert store.latest() == 4
    store.save(5, training_state(tiny_llama, None), {"step": 5})
    assert sets(store.folder.parent) == ["step-00000004", "step-00000005"]


def spoil_marker(folder):
    (folder / MARKER_NAME).unlink()


def spoil_size(folder):
    with next(folder.glob("*.distcp")).open("ab") as stream:
        stream.write(b"x")


def spoil_content(folder):
    path = next(folder.glob("*.distcp"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def spoil_presence(folder):
    (folder / ".metadata").unlink()


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (spoil_size, "bytes, not"),
        (spoil_content, "differs from its marker"),
        (spoil_presence, ".metadata is missing"),
    ],
)
def test_a_set_that_does_not_match_is_passed_over_with_a_warning(store, tiny_llama, capsys, spoil, fault):
    for step in (2, 4):
        store.save(step, training_state(tiny_llama, None), {"step": step})
    spoil(store.folder / "step-00000004")
    assert fault in find_fault(store.folder / "step-00000004")
    assert store.latest() == 2
    error = capsys.readouterr().err
    assert error.startswith("warning: checkpoint-passed-over: step-00000004: ")
    assert fault in error


def test_a_set_that_a_kill_left_without_its_marker_is_passed_over_without_a_warning(store, tiny_llama, capsys):
    for step in (2, 4):
        store.save(step, training_state(tiny_llama, None), {"step": step})
    spoil_marker(store.folder / "step-00000004")
    assert find_fault(store.folder / "step-00000004") == "no complete.json"
    assert store.latest() == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("checkpoint step-00000004 was not written to its end: passed over\n", "")


def test_without_a_folder_nothing_is_kept(tiny_llama):
    store = CheckpointStore(None, "key", 2, ALONE)
    store.save(2, training_state(tiny_llama, None), {})
    assert store.latest() is None


def test_the_key_follows_what_is_learned():
    digests = {"model": "a" * 64, "blocks": "b" * 64}
    key = checkpoint_key(CONFIG, NOT_LEARNED, digests)
    same = CONFIG.model_copy(update={"device_batch_blocks": 1, "log_every_steps": 1, "kept_checkpoints": 9})
    assert checkpoint_key(same, NOT_LEARNED, digests) == key
    other = CONFIG.model_copy(update={"phase_2_learning_rate": 0.02})
    assert checkpoint_key(other, NOT_LEARNED, digests) != key
    assert checkpoint_key(CONFIG, NOT_LEARNED, {**digests, "blocks": "c" * 64}) != key


# --- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped_in_step", [1, 3, 4, 5, 8])
def test_stopped_anywhere_and_started_again_ends_in_the_same_bits(pretraining_inputs, tmp_path, stopped_in_step):
    """Within phase 1 (1, 3), at its end (4), in the first step of phase 2 (5), late in it (8)."""
    whole, whole_progress, _ = run(pretraining_inputs, None)
    with pytest.raises(SystemExit) as stop:
        run(pretraining_inputs, tmp_path, SigtermBlocks(pretraining_inputs.blocks / "train", stopped_in_step))
    assert stop.value.code == 143
    assert f"step-{stopped_in_step:08d}" in sets(tmp_path)
    resumed, progress, resumed_from = run(pretraining_inputs, tmp_path)
    assert resumed_from == stopped_in_step
    assert_equal_bits(whole, resumed)
    for name, phase in whole_progress.phases.items():
        other = progress.phases[name]
        assert (phase.steps, phase.tokens, phase.first_loss, phase.last_loss) == (
            other.steps, other.tokens, other.first_loss, other.last_loss,
        )  # fmt: skip


@pytest.mark.parametrize("stopped_in_step", [1, 2, 4])
def test_an_early_end_of_phase_1_is_the_same_however_it_is_reached(
    pretraining_inputs, tmp_path, capsys, stopped_in_step
):
    """Flat figures end phase 1 after 2 of 6 steps: stopped before, at and after it, training ends in the same bits."""
    early = {"phase_1_steps": 6, "phase_1_flat_evaluations": 2, "validate_every_steps": 1}
    config = CONFIG.model_copy(update=early)
    whole, whole_progress, _ = run(pretraining_inputs, None, config=config)
    assert whole_progress.phase_1_steps == whole_progress.phases["phase_1"].steps == 2
    assert (whole_progress.step, whole_progress.phases["phase_2"].steps) == (7, 5)
    assert whole_progress.phase_1_end.startswith("validation bits per byte flat for 2 evaluations: 1.0000 at best")
    assert "phase 1 ends after step 2 of 6: validation bits per byte flat" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(pretraining_inputs, tmp_path, SigtermBlocks(pretraining_inputs.blocks / "train", stopped_in_step), config)
    resumed, progress, resumed_from = run(pretraining_inputs, tmp_path, config=config)
    assert resumed_from == stopped_in_step
    assert_equal_bits(whole, resumed)
    assert (progress.phase_1_steps, progress.phase_1_end) == (2, whole_progress.phase_1_end)
    assert [record.step for record in progress.telemetry] == [record.step for record in whole_progress.telemetry]


def test_a_checkpoint_that_would_not_fit_the_grace_period_is_left_out(pretraining_inputs, tmp_path, capsys):
    config = CONFIG.model_copy(update={"stop_grace_seconds": 1e-9})
    with pytest.raises(SystemExit) as stop:
        run(pretraining_inputs, tmp_path, SigtermBlocks(pretraining_inputs.blocks / "train", 3), config)
    assert stop.value.code == 143
    assert "warning: checkpoint-left-out: step 3 would not be written within 1e-09 s" in capsys.readouterr().err
    assert sets(tmp_path) == ["step-00000002"]
    resumed, _, resumed_from = run(pretraining_inputs, tmp_path)
    assert resumed_from == 2
    assert_equal_bits(run(pretraining_inputs, None)[0], resumed)


def test_a_finished_training_is_not_trained_again(pretraining_inputs, tmp_path):
    whole, _, _ = run(pretraining_inputs, tmp_path)
    again, progress, resumed_from = run(pretraining_inputs, tmp_path)
    assert resumed_from == 9
    assert progress.phases["phase_2"].steps == 5
    assert_equal_bits(whole, again)


def test_the_set_before_serves_where_the_newest_is_spoilt(pretraining_inputs, tmp_path):
    whole, _, _ = run(pretraining_inputs, tmp_path)
    spoil_content(tmp_path / "key" / "step-00000009")
    again, _, resumed_from = run(pretraining_inputs, tmp_path)
    assert resumed_from == 8
    assert_equal_bits(whole, again)
