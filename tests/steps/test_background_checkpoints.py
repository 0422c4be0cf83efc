"""Checkpoints written beside the training, the folder that they lie in, and what is left of a grace period."""

from __future__ import annotations

import json
import time

import pytest
import torch
from small_disk import mounted

from steps.configs.continued_pretraining import NOT_LEARNED, UNASKED, ContinuedPretrainingConfig, not_learned
from steps.contract import ConfigError, StepError
from steps.modeling.checkpoint_settings import checkpoint_key, claim_folder, learned_settings
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.parallel import Processes
from steps.modeling.stopping import StopRequest

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
CONFIG = ContinuedPretrainingConfig(
    phase_1_steps=4,
    phase_1_learning_rate=0.01,
    phase_2_steps=5,
    phase_2_learning_rate=0.01,
    global_batch_tokens=256,
    device_batch_blocks=4,
)


def load(store: CheckpointStore, step: int, numbers: int = 1_000) -> torch.Tensor:
    state = {"weight": torch.full((numbers,), -1.0)}
    store.load(step, state)
    return state["weight"]


def poll_for_seconds(store: CheckpointStore, seconds: float) -> None:
    """As training does after each step."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        store.poll()
        time.sleep(0.01)


def test_a_set_holds_the_state_of_the_moment_that_it_was_asked_for(tmp_path):
    weight = torch.zeros(1_000)
    with CheckpointStore(tmp_path, "key", 2, ALONE) as store:
        for step in (1, 2, 3):
            weight.fill_(step)
            store.save(step, {"weight": weight}, {"step": step}, in_background=True)
            weight.fill_(99)
    assert store.last_seconds > 0
    again = CheckpointStore(tmp_path, "key", 2, ALONE)
    assert again.latest() == 3
    for step in (2, 3):
        assert torch.equal(load(again, step), torch.full((1_000,), float(step)))
        assert again.read_progress(step) == {"step": step}


def test_one_set_at_most_is_under_way(tmp_path):
    with CheckpointStore(tmp_path, "key", 9, ALONE) as store:
        for step in range(1, 6):
            store.save(step, {"weight": torch.zeros(200_000)}, {}, in_background=True)
            complete = {path.parent.name for path in store.folder.glob("*/complete.json")}
            assert complete >= {f"step-{earlier:08d}" for earlier in range(1, step)}


def test_a_disk_that_fills_up_in_the_background_is_told_in_one_line(tmp_path):
    with mounted(tmp_path / "disk", 600) as disk:
        store = CheckpointStore(disk.folder, "key", 2, ALONE)
        store.save(1, {"weight": torch.ones(20_000)}, {})
        store.save(2, {"weight": torch.ones(200_000)}, {}, in_background=True)
        with pytest.raises(StepError, match=r"step-00000002.*(No space left|could not be written).*Make space") as told:
            poll_for_seconds(store, 30)
        print(told.value)
        assert not (store.folder / "step-00000002").exists()
        assert store.latest() == 1
        assert torch.equal(load(store, 1, 20_000), torch.ones(20_000))


def test_an_error_of_the_training_waits_for_the_set_under_way(tmp_path):
    def fail() -> None:
        with CheckpointStore(tmp_path, "key", 2, ALONE) as store:
            store.save(7, {"weight": torch.zeros(200_000)}, {}, in_background=True)
            raise StepError("loss at step 8", float("nan"), remedy="None.")

    with pytest.raises(StepError, match="loss at step 8"):
        fail()
    assert CheckpointStore(tmp_path, "key", 2, ALONE).latest() == 7


def test_a_set_is_written_where_it_fits_the_grace_period(tmp_path):
    stop = StopRequest()
    with CheckpointStore(tmp_path, "key", 2, ALONE) as store:
        assert store.fits(stop, 10.0)
        stop.note(15, None)
        store.last_seconds = 5.0
        assert store.fits(stop, 10.0)
        store.last_seconds = 7.0
        assert not store.fits(stop, 10.0)
    assert CheckpointStore(None, "key", 2, ALONE).fits(stop, 0.0)


# --- whose sets -------------------------------------------------------------------------------------------------------


def claim(folder, config, digests, **changes) -> str:
    changed = config.model_copy(update=changes)
    key = checkpoint_key(changed, NOT_LEARNED, digests)
    claim_folder(folder, key, "continued_pretraining", learned_settings(changed, NOT_LEARNED), writes=True)
    return key


def test_sets_of_other_settings_are_refused_by_name_and_of_other_inputs_left_alone(tmp_path, capsys):
    digests = {"model": "a" * 64, "blocks": "b" * 64}
    key = claim(tmp_path, CONFIG, digests)
    # A folder without a complete set refuses nobody.
    claim(tmp_path, CONFIG, digests, phase_1_learning_rate=0.5)
    CheckpointStore(tmp_path, key, 2, ALONE).save(3, {"weight": torch.zeros(10)}, {})
    assert claim(tmp_path, CONFIG, digests, log_every_steps=7) == key

    with pytest.raises(ConfigError) as refused:
        claim(tmp_path, CONFIG, digests, weight_decay=0.3)
    assert str(refused.value) == (
        f"continued_pretraining.weight_decay: 0.3; limit 0.1, that of the checkpoints in {tmp_path / key}. "
        "Set it as it was to go on from them, or name another --checkpoints folder to start afresh."
    )
    with pytest.raises(ConfigError, match=r"\.seed: 4; limit 0, .* \(and weight_decay\)"):
        claim(tmp_path, CONFIG, digests, weight_decay=0.3, seed=4)

    assert capsys.readouterr().err == ""
    other = claim(tmp_path, CONFIG, {**digests, "blocks": "c" * 64})
    assert other != key
    assert "warning: checkpoints-of-other-inputs: " in capsys.readouterr().err
    assert json.loads((tmp_path / other / "settings.json").read_text())["phase_2_steps"] == 5


def test_what_ends_phase_1_early_counts_as_learned_only_where_it_may():
    assert set(not_learned(CONFIG)) == {*NOT_LEARNED, *UNASKED}
    flat = CONFIG.model_copy(update={"phase_1_flat_evaluations": 2})
    assert set(NOT_LEARNED) - set(not_learned(flat)) == {"validate_every_steps", "max_validation_blocks"}
