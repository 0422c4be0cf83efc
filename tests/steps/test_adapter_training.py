"""Training an adapter: checkpoints and what goes on from them, early stopping, the base's precisions."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load, load_file

from steps.configs.fine_tune import FineTuneConfig, not_learned
from steps.contract import EXIT_TERMINATED, ConfigError
from steps.modeling.adapter import merge_adapter
from steps.modeling.adapter_training import (
    TrainingRun,
    learning_rate_share,
    steps_of_one_pass,
    train_adapter,
)
from steps.modeling.checkpoints import find_fault
from steps.modeling.fine_tuned_base import load_base
from steps.modeling.loading import is_tied, load_model, save_model
from steps.modeling.reply_measures import mean_token_loss
from steps.text.assistant_mask import Example, ExampleBuilder

CONFIG = FineTuneConfig(
    lora_rank=8,
    lora_alpha=16,
    lora_dropout=0.1,
    max_tokens=128,
    learning_rate=0.01,
    epochs=3,
    batch_conversations=4,
    validate_every_steps=2,
    checkpoint_every_steps=2,
    device="cpu",
)
QUESTIONS = ["Balans", "Paket", "İnternet", "Nömrə", "Rouminq", "Hesab", "Tarif", "Zəng"]


@pytest.fixture(scope="module")
def base(tmp_path_factory, make_tiny_llama, tiny_tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("base")
    save_model(make_tiny_llama(), tiny_tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def examples(tiny_tokenizer) -> list[Example]:
    builder = ExampleBuilder(tiny_tokenizer, 128)
    pairs = [(f"{word} {number}?", f"{word} üçün {number}") for number, word in enumerate(QUESTIONS * 3)]
    built = [
        builder.build([{"role": "user", "content": asked}, {"role": "assistant", "content": answer}], asked)
        for asked, answer in pairs
    ]
    assert all(isinstance(example, Example) for example in built)
    return built


@pytest.fixture(scope="module")
def train(base, tiny_tokenizer, examples):
    """Trains in this process on all examples but the last four; gives what the trainer did and the adapter's bytes."""

    def run(adapter: Path, checkpoints: Path | None = None, **changed) -> tuple[TrainingRun, bytes]:
        config = CONFIG.model_copy(update=changed)
        model = load_base(base, config, torch.device("cpu"), trust_remote_code=False)
        done = train_adapter(model, tiny_tokenizer, examples[:-4], examples[-4:], config, adapter, checkpoints)
        return done, (adapter / "adapter_model.safetensors").read_bytes()

    return run


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory) -> tuple[TrainingRun, bytes]:
    return train(tmp_path_factory.mktemp("whole") / "adapter")


def sets_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*"))


def test_a_training_without_checkpoints_counts_its_steps_and_validations(whole):
    done, _ = whole
    assert len(done.losses) == 3 * steps_of_one_pass(20, CONFIG) == 15
    assert [step for step, _ in done.validation_history] == [2, 4, 6, 8, 10, 12, 14, 15]
    assert (done.adapter_step, done.ended_early, done.resumed_from_step) == (15, False, 0)


def test_after_sigterm_it_keeps_a_checkpoint_and_goes_on_to_the_same_adapter(train, whole, tmp_path):
    folder = tmp_path / "checkpoints"

    def stop_after_the_first_set() -> None:
        deadline = time.monotonic() + 60
        while not sets_in(folder) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop_after_the_first_set)
    stopper.start()
    with pytest.raises(SystemExit) as stop:
        train(tmp_path / "adapter", folder)
    stopper.join()
    assert stop.value.code == EXIT_TERMINATED
    assert not (tmp_path / "adapter").exists()
    stopped_at = int(sets_in(folder)[-1].removeprefix("step-"))
    assert 2 <= stopped_at < 15
    done, adapter = train(tmp_path / "adapter", folder)
    assert done.resumed_from_step == stopped_at
    assert adapter == whole[1]
    assert (done.losses, done.validation_history) == (whole[0].losses, whole[0].validation_history)


@pytest.fixture(scope="module")
def kept(train, tmp_path_factory) -> Path:
    """The sets of a training that ended: after 14 of 15 steps, and after the last."""
    folder = tmp_path_factory.mktemp("kept") / "checkpoints"
    train(folder.parent / "adapter", folder)
    assert sets_in(folder) == ["step-00000014", "step-00000015"]
    return folder


def test_sets_are_whole_and_hold_no_pickle_of_settings(kept):
    for name in sets_in(kept):
        assert find_fault(kept / name) is None
        names = {path.name for path in (kept / name).iterdir()}
        assert "training_args.bin" not in names
        assert {"adapter_model.safetensors", "optimizer.pt", "rng_state.pth", "complete.json"} <= names
        torch.load(kept / name / "optimizer.pt", weights_only=True)


@pytest.mark.parametrize("damage", ["none", "newest cut", "newest without marker", "rest of a killed attempt"])
def test_it_goes_on_from_the_newest_whole_set(train, whole, kept, tmp_path, damage, capsys):
    folder = shutil.copytree(kept, tmp_path / "checkpoints")
    newest = folder / "step-00000015"
    if damage == "newest cut":
        content = (newest / "optimizer.pt").read_bytes()
        (newest / "optimizer.pt").write_bytes(content[:-1])
    elif damage == "newest without marker":
        (newest / "complete.json").unlink()
    elif damage == "rest of a killed attempt":
        (folder / "unfinished" / "checkpoint-15").mkdir(parents=True)
        (folder / "unfinished" / "checkpoint-15" / "optimizer.pt").write_bytes(b"half")
    done, adapter = train(tmp_path / "adapter", folder)
    assert done.resumed_from_step == (14 if damage.startswith("newest") else 15)
    assert adapter == whole[1]
    assert done.losses == whole[0].losses
    told = capsys.readouterr()
    assert ("checkpoint-passed-over: step-00000015" in told.err) == damage.startswith("newest")
    assert f"going on from step-000000{done.resumed_from_step}" in told.out


def test_early_stopping_takes_the_best_adapter(train, base, examples, tmp_path):
    """At a learning rate that is far too high the held-out loss soon rises."""
    changed = {"learning_rate": 0.2, "epochs": 20, "early_stopping_validations": 3}
    done, adapter = train(tmp_path / "adapter", **changed)
    assert done.ended_early
    assert len(done.losses) < 100
    losses = dict(done.validation_history)
    assert losses[done.adapter_step] == min(losses.values())
    # Three validations follow the best.
    assert done.adapter_step == done.validation_history[-4][0]
    found = PeftModel.from_pretrained(load_model(base), str(tmp_path / "adapter")).eval().get_base_model()
    assert mean_token_loss(found, examples[-4:], 4) == pytest.approx(min(losses.values()), abs=1e-6)
    # The same from a checkpoint that stands behind the best.
    folder = tmp_path / "checkpoints"
    train(tmp_path / "again", folder, **changed)
    assert sets_in(folder)[0] > f"step-{done.adapter_step:08d}"
    shutil.rmtree(folder / sets_in(folder)[-1])
    resumed, resumed_adapter = train(tmp_path / "resumed", folder, **changed)
    assert resumed.resumed_from_step > done.adapter_step
    assert (resumed_adapter, resumed.validation_history) == (adapter, done.validation_history)


def test_recomputed_activations_give_the_same_adapter(train, whole, tmp_path):
    done, adapter = train(tmp_path / "adapter", activation_checkpointing="on")
    assert done.losses == pytest.approx(whole[0].losses, abs=1e-5)
    assert load(adapter).keys() == load(whole[1]).keys()
    for name, tensor in load(adapter).items():
        assert torch.allclose(tensor, load(whole[1])[name], atol=1e-4), name


def test_a_bfloat16_base_is_half_the_size_and_its_adapter_float32(train, whole, base, tmp_path):
    config = CONFIG.model_copy(update={"precision": "bfloat16"})
    model = load_base(base, config, torch.device("cpu"), trust_remote_code=False)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    done, _ = train(tmp_path / "adapter", precision="bfloat16")
    assert done.losses == pytest.approx(whole[0].losses, rel=0.05)
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    # More than bfloat16 could hold: the optimizer's own weights are not rounded to it.
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in tensors.values())


def test_a_base_in_four_bits_trains_where_bitsandbytes_is(train, whole, base, tmp_path):
    if importlib.util.find_spec("bitsandbytes") is None:
        with pytest.raises(ConfigError, match=r"fine_tune.base_quantisation: nf4; limit none without bitsandbytes"):
            train(tmp_path / "adapter", base_quantisation="nf4")
        return
    # What is evaluated is trained on afterwards: gradients go through every layer still.
    config = CONFIG.model_copy(update={"base_quantisation": "nf4"})
    model = load_base(base, config, torch.device("cpu"), trust_remote_code=False)
    embedded = torch.randn(1, 4, model.config.hidden_size)
    with torch.no_grad():
        model.eval()(inputs_embeds=embedded)
    model.train()(inputs_embeds=embedded.requires_grad_()).logits.sum().backward()
    assert embedded.grad.abs().sum() > 0

    done, _ = train(tmp_path / "adapter", base_quantisation="nf4")
    assert done.losses[0] == pytest.approx(whole[0].losses[0], rel=0.1)
    assert done.losses[-1] < done.losses[0] - 0.5
    settings = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert settings["r"] == 8


def test_settings_that_change_nothing_learned_keep_the_checkpoints():
    assert "validate_every_steps" in not_learned(CONFIG)
    assert "validate_every_steps" not in not_learned(CONFIG.model_copy(update={"early_stopping_validations": 1}))
    assert not {"learning_rate", "seed", "lora_rank", "precision", "base_quantisation"} & set(not_learned(CONFIG))


@pytest.mark.parametrize(
    ("steps", "warmup_share", "shares"),
    [
        (1, 0.03, [1.0]),
        (1, 0.0, [1.0]),
        (4, 0.0, [1.0, 0.75, 0.5, 0.25]),
        (4, 0.5, [0.5, 1.0, 1.0, 0.5]),
        (5, 0.4, [0.5, 1.0, 1.0, 2 / 3, 1 / 3]),
        (2, 0.99, [0.5, 1.0]),
    ],
)
def test_every_step_learns(steps, warmup_share, shares):
    found = [learning_rate_share(step, steps=steps, warmup_share=warmup_share) for step in range(steps)]
    assert found == pytest.approx(shares)


def test_a_training_of_one_step_changes_the_model(train, tmp_path):
    done, adapter = train(tmp_path / "adapter", epochs=0.1)
    assert len(done.losses) == 1
    assert any(tensor.any() for name, tensor in load(adapter).items() if "lora_B" in name)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_the_chats_tokens_are_trained_merged_and_left_alone_where_not_asked_for(
    make_tiny_llama, tiny_tokenizer, examples, tmp_path, tied
):
    save_model(make_tiny_llama(tied=tied), tiny_tokenizer, tmp_path / "base")
    for trains in (True, False):
        config = CONFIG.model_copy(update={"epochs": 1, "train_chat_tokens": trains})
        folder = tmp_path / str(trains)
        model = load_base(tmp_path / "base", config, torch.device("cpu"), trust_remote_code=False)
        train_adapter(model, tiny_tokenizer, examples[:-4], examples[-4:], config, folder / "adapter")
        rows = [name for name in load_file(folder / "adapter" / "adapter_model.safetensors") if "token" in name]
        assert len(rows) == (0 if not trains else 1 if tied else 2)
        prompts = [example.input_ids for example in examples[:3]]
        merge_adapter(
            tmp_path / "base", folder / "adapter", folder / "model", tiny_tokenizer, prompts, max_difference=1e-4
        )
        before, after = load_model(tmp_path / "base"), load_model(folder / "model")
        turn_tokens = sorted(
            tiny_tokenizer.convert_tokens_to_ids(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
        )
        for name in ("get_input_embeddings", "get_output_embeddings"):
            one, other = (getattr(each, name)().weight for each in (before, after))
            changed = (one != other).any(dim=1).nonzero()[:, 0].tolist()
            assert changed == (turn_tokens if trains else [])
        assert is_tied(after) == tied


def test_accumulated_passes_are_one_step(train, tmp_path):
    """Its loss is the mean over the tokens of all passes, not a mean of means."""
    settings = {"lora_dropout": 0.0, "epochs": 2}
    whole_batch, _ = train(tmp_path / "whole", batch_conversations=4, **settings)
    halves, _ = train(tmp_path / "halves", batch_conversations=2, gradient_accumulation_steps=2, **settings)
    assert halves.losses == pytest.approx(whole_batch.losses, abs=1e-4)
