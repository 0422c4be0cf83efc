"""The training loop's parts, each against numbers worked out by hand or a plain computation."""

from __future__ import annotations

import copy
import itertools
import math

import numpy
import pytest
import torch

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import ConfigError, StepError
from steps.modeling.batches import BatchPlan, labelled_tokens
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.fused_kernels import apply_liger, compare_kernels, first_tokens
from steps.modeling.loading import check_tie, load_model, load_tokenizer
from steps.modeling.parallel import Processes
from steps.modeling.schedule import Schedule, check_schedule, flat_reason
from steps.modeling.training import backbone_digest, backbone_parameters, start_phase, train
from steps.modeling.training_progress import check_finite
from steps.modeling.validation import BlockValidation
from steps.schemas.training import TelemetryRecord
from steps.text.packing import IGNORED_LABEL
from steps.text.token_bytes import TokenBytes

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))


def make_config(**settings) -> ContinuedPretrainingConfig:
    return ContinuedPretrainingConfig(
        **{
            "phase_1_steps": 3,
            "phase_1_learning_rate": 0.01,
            "phase_2_steps": 4,
            "phase_2_learning_rate": 0.005,
            "global_batch_tokens": 256,
            "device_batch_blocks": 4,
            "precision": "float32",
            "liger": "off",
            "device": "cpu",
            "log_every_steps": 1,
            **settings,
        }
    )


def run(inputs, config, model=None, blocks=None, checkpoints=None):
    """Trains; gives the model, the progress and the observed lines with a loss."""
    model = model or load_model(inputs.model)
    plan = BatchPlan.of(
        blocks or inputs.train, config.global_batch_tokens, config.device_batch_blocks, config.seed, world_size=1
    )
    store = checkpoints or CheckpointStore(None, "", 1, ALONE)
    lines: list[TelemetryRecord] = []
    validation = BlockValidation(inputs.validation, load_tokenizer(inputs.model), 4, ALONE)
    progress, _ = train(
        model,
        plan,
        config,
        ALONE,
        store,
        validate=lambda trained: validation(trained, config.precision),
        observe=lines.append,
    )
    return model, progress, lines


# --- batches ----------------------------------------------------------------------------------------------------------


def test_every_epoch_reads_each_block_once_and_any_step_is_found_directly(pretraining_inputs):
    blocks = pretraining_inputs.train
    plan = BatchPlan.of(blocks, 4 * 64, 2, seed=7, world_size=1)
    steps = -(-2 * len(blocks) // 4)
    order = numpy.concatenate([plan.indices(step, 0, 1) for step in range(steps)])
    assert sorted(order[: len(blocks)]) == list(range(len(blocks)))
    assert sorted(order[len(blocks) : 2 * len(blocks)]) == list(range(len(blocks)))
    assert order[: len(blocks)].tolist() != order[len(blocks) : 2 * len(blocks)].tolist()
    assert plan.indices(5, 0, 1).tolist() == order[20:24].tolist()
    assert BatchPlan.of(blocks, 256, 2, seed=8, world_size=1).indices(0, 0, 1).tolist() != order[:4].tolist()


def test_processes_share_the_global_batch_of_one(pretraining_inputs):
    plan = BatchPlan.of(pretraining_inputs.train, 4 * 64, 2, seed=7, world_size=2)
    shares = [plan.indices(3, rank, 2).tolist() for rank in range(2)]
    assert shares[0] + shares[1] == plan.indices(3, 0, 1).tolist()


def test_a_batch_that_does_not_divide_is_refused_with_the_nearest_that_does(pretraining_inputs):
    with pytest.raises(ConfigError, match=r"global_batch_tokens: 100; limit a multiple of 128 .*Take 128"):
        BatchPlan.of(pretraining_inputs.train, 100, 1, seed=0, world_size=2)


def test_fewer_blocks_than_a_global_batch_are_refused(pretraining_inputs):
    with pytest.raises(StepError, match=r"training blocks: \d+; limit at least one global batch of 1000"):
        BatchPlan.of(pretraining_inputs.train, 64_000, 1, seed=0, world_size=1)


# --- schedule ---------------------------------------------------------------------------------------------------------


def test_learning_rate_by_hand():
    config = make_config(
        phase_1_steps=5, phase_1_warmup_steps=2, phase_2_steps=3, final_learning_rate_share=0.1,
        phase_1_learning_rate=1.0, phase_2_learning_rate=0.5,
    )  # fmt: skip
    schedule = Schedule(config, 5)
    rates = [schedule.learning_rate(step) for step in range(8)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.55, 0.1, 0.5, 0.275, 0.05])
    assert [schedule.phase_of(step) for step in range(8)] == [1] * 5 + [2] * 3
    assert [step for step in range(9) if schedule.ends_phase(step)] == [5, 8]


def test_warmup_stable_decay_by_hand():
    config = make_config(
        phase_1_steps=0, phase_2_steps=8, phase_2_warmup_steps=2, phase_2_learning_rate=1.0,
        schedule="warmup_stable_decay", decay_share=0.5, final_learning_rate_share=0.2,
    )  # fmt: skip
    rates = [Schedule(config, 0).learning_rate(step) for step in range(8)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2])
    short = config.model_copy(update={"phase_2_warmup_steps": 8})
    assert [Schedule(short, 0).learning_rate(step) for step in range(8)][-1] == 1.0


def test_a_phase_1_that_ended_early_moves_phase_2_and_keeps_its_own_curve():
    config = make_config(phase_1_steps=5, phase_2_steps=3, phase_1_learning_rate=1.0, phase_2_learning_rate=0.5)
    whole, cut = Schedule(config, 5), Schedule(config, 2)
    assert [cut.learning_rate(step) for step in range(5)] == [
        whole.learning_rate(step) for step in (0, 1, 5, 6, 7)
    ]  # fmt: skip
    assert (cut.last, cut.phase_of(2)) == (5, 2)


def test_flat_means_no_gain_over_the_best_before():
    config = make_config(phase_1_flat_evaluations=2, phase_1_flat_gain=0.01)
    falling = [(0, 3.0), (2, 2.5), (4, 2.4)]
    assert flat_reason(falling[:2], config) is None
    assert flat_reason(falling, config) is None
    assert flat_reason([*falling, (6, 2.395)], config) is None
    reason = flat_reason([*falling, (6, 2.395), (8, 2.41)], config)
    assert reason == (
        "validation bits per byte flat for 2 evaluations: 2.3950 at best, 2.4000 at step 4; a gain is 0.01"
    )
    assert flat_reason([*falling, (6, 2.5), (8, 2.38)], config) is None
    assert flat_reason([*falling, (6, 2.395), (8, 2.41)], make_config()) is None


def test_a_warm_up_that_outlasts_its_phase_is_refused():
    with pytest.raises(ConfigError, match="phase_2_warmup_steps: 5; limit 4"):
        check_schedule(make_config(phase_2_warmup_steps=5))


# --- loss -------------------------------------------------------------------------------------------------------------


def test_packed_loss_is_the_mean_of_the_documents_own_losses(pretraining_inputs):
    """Documents packed into blocks read nothing of each other: every piece's loss equals its loss alone."""
    model = load_model(pretraining_inputs.model)
    batch = BatchPlan.of(pretraining_inputs.train, 256, 4, seed=1, world_size=1).device_batches(0, 0, 1)[0]
    with torch.no_grad():
        packed = model(**batch, use_cache=False, num_items_in_batch=torch.tensor(labelled_tokens(batch))).loss
        nats, tokens = 0.0, 0
        for row in range(4):
            ids, positions = batch["input_ids"][row], batch["position_ids"][row]
            starts = [*torch.nonzero(positions == 0).flatten().tolist(), len(ids)]
            assert len(starts) > 2, "a block of one document proves nothing"
            for first, end in itertools.pairwise(starts):
                if ids[first] == pretraining_inputs.train.pad_token_id:
                    continue
                logits = model(ids[None, first:end], use_cache=False).logits[0, :-1]
                nats += float(torch.nn.functional.cross_entropy(logits, ids[first + 1 : end], reduction="sum"))
                tokens += end - first - 1
    assert tokens == labelled_tokens(batch)
    assert float(packed) == pytest.approx(nats / tokens, abs=2e-6)


@pytest.mark.parametrize("device_batch_blocks", [1, 3])
def test_accumulation_weighs_every_labelled_token_alike(pretraining_inputs, device_batch_blocks):
    """Passes of unequal numbers of labelled tokens give the losses of one pass over the whole global batch."""
    _, _, whole = run(pretraining_inputs, make_config())
    _, _, cut = run(pretraining_inputs, make_config(device_batch_blocks=device_batch_blocks))
    assert [line.loss for line in cut] == pytest.approx([line.loss for line in whole], abs=1e-5)
    assert [line.gradient_norm for line in cut] == pytest.approx([line.gradient_norm for line in whole], rel=1e-4)


def test_first_step_equals_a_plain_adamw_step(pretraining_inputs):
    config = make_config(phase_1_steps=0, phase_2_steps=1, phase_2_learning_rate=0.01)
    plain = load_model(pretraining_inputs.model).train()
    batch = BatchPlan.of(pretraining_inputs.train, 256, 4, seed=0, world_size=1).device_batches(0, 0, 1)[0]
    plain(**batch, use_cache=False).loss.backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), config.gradient_clip_norm)
    matrices = [weight for weight in backbone_parameters(plain).values() if weight.ndim == 2]
    known = {id(weight) for weight in matrices}
    others = [weight for weight in plain.parameters() if id(weight) not in known]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": matrices, "weight_decay": 0.1}]
    torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95)).step()
    trained, _, _ = run(pretraining_inputs, config)
    for name, parameter in trained.named_parameters():
        assert torch.allclose(parameter, dict(plain.named_parameters())[name], atol=2e-6), name


# --- phases -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_phase_1_moves_embeddings_and_head_and_nothing_else(make_pretraining_inputs, tied):
    inputs = make_pretraining_inputs(tied=tied)
    before = load_model(inputs.model)
    model, progress, lines = run(inputs, make_config(phase_2_steps=0))
    assert backbone_digest(model) == backbone_digest(before)
    for ends in ("get_input_embeddings", "get_output_embeddings"):
        assert not torch.equal(getattr(model, ends)().weight, getattr(before, ends)().weight)
    check_tie(model)
    assert [line.phase for line in lines] == [1, 1, 1]
    assert progress.phases["phase_1"].steps == 3
    assert progress.phases["phase_1"].tokens == 3 * 256


def test_phase_2_moves_everything_and_learns(pretraining_inputs):
    before = load_model(pretraining_inputs.model)
    config = make_config(phase_1_steps=10, phase_2_steps=30, phase_2_learning_rate=0.01, phase_2_warmup_steps=2)
    model, progress, lines = run(pretraining_inputs, config)
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, dict(before.named_parameters())[name]), name
    check_tie(model)
    assert lines[-1].loss < 0.7 * lines[0].loss
    first, last = progress.validation_history[0], progress.validation_history[-1]
    assert (first[0], last[0]) == (0, 40)
    assert last[1] < 0.8 * first[1]


def test_weight_decay_is_for_matrices_of_the_backbone_alone(pretraining_inputs):
    model = load_model(pretraining_inputs.model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    free, decayed = start_phase(model, make_config(weight_decay=0.3), phase=2).param_groups
    assert (free["weight_decay"], decayed["weight_decay"]) == (0.0, 0.3)
    assert all("proj" in names[id(parameter)] for parameter in decayed["params"])
    assert {names[id(parameter)].rsplit(".", 2)[-2] for parameter in free["params"]} == {
        "embed_tokens", "input_layernorm", "post_attention_layernorm", "norm",
    }  # fmt: skip


def test_norms_and_embeddings_decay_where_asked_and_the_optimizer_is_fused(pretraining_inputs):
    model = load_model(pretraining_inputs.model)
    config = make_config(decay_norms_and_embeddings=True, weight_decay=0.3)
    optimizer = start_phase(model, config, phase=2)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3]
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))
    assert optimizer.defaults["fused"] is True
    (embeddings,) = start_phase(model, config, phase=1).param_groups
    assert (embeddings["weight_decay"], len(embeddings["params"])) == (0.3, 1)
    (embeddings,) = start_phase(model, make_config(), phase=1).param_groups
    assert embeddings["weight_decay"] == 0.0


def test_the_same_settings_give_the_same_bits_and_another_seed_others(pretraining_inputs):
    first, again, other = (
        run(pretraining_inputs, make_config(seed=seed), model=load_model(pretraining_inputs.model))[0]
        for seed in (0, 0, 1)
    )
    weights = [model.get_input_embeddings().weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_loss_that_is_not_finite_stops_and_names_the_step(pretraining_inputs):
    config = make_config(phase_1_learning_rate=1e30)
    named = r"(loss|gradient norm) at step 1, blocks \d+, \d+, \d+, \d+: (nan|inf); limit a finite number"
    with pytest.raises(StepError, match=named):
        run(pretraining_inputs, config)


@pytest.mark.parametrize(
    ("loss", "norm", "shares", "named"),
    [
        (math.nan, 1.0, [0.5, math.nan], "loss at step 3, blocks {2}, {3}: nan;"),
        (2.0, math.inf, [0.5, 1.5], "gradient norm at step 3, blocks {0}, {1}, {2}, {3}: inf;"),
    ],
)
def test_the_first_pass_that_is_not_finite_is_named(pretraining_inputs, loss, norm, shares, named):
    plan = BatchPlan.of(pretraining_inputs.train, 256, 2, seed=0, world_size=1)
    with pytest.raises(StepError) as stopped:
        check_finite(3, loss, norm, shares, plan, ALONE, 1e-3)
    assert str(stopped.value).startswith(named.format(*plan.indices(3, 0, 1).tolist()))
    check_finite(3, 2.0, 1.0, shares, plan, ALONE, 1e-3)


@pytest.mark.parametrize("precision", ["bfloat16_mixed", "bfloat16"])
def test_lower_precisions_come_close_to_float32(pretraining_inputs, precision):
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model = load_model(pretraining_inputs.model, dtype=dtype)
    trained, _, lines = run(pretraining_inputs, make_config(precision=precision), model=model)
    _, _, exact = run(pretraining_inputs, make_config())
    assert trained.get_input_embeddings().weight.dtype == dtype
    assert [line.loss for line in lines] == pytest.approx([line.loss for line in exact], rel=0.02)


def test_recomputed_activations_give_the_same_losses(pretraining_inputs):
    model = load_model(pretraining_inputs.model)
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    _, _, recomputed = run(pretraining_inputs, make_config(), model=model)
    _, _, plain = run(pretraining_inputs, make_config())
    assert [line.loss for line in recomputed] == pytest.approx([line.loss for line in plain], abs=1e-6)


# --- validation -------------------------------------------------------------------------------------------------------


def test_validation_bits_per_byte_by_a_direct_sum(pretraining_inputs):
    model, tokenizer = load_model(pretraining_inputs.model), load_tokenizer(pretraining_inputs.model)
    blocks = pretraining_inputs.validation
    batch = {name: torch.from_numpy(array) for name, array in blocks.batch(range(len(blocks))).items()}
    token_bytes = TokenBytes(tokenizer)
    with torch.no_grad():
        logits = model(batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits.double()
    nats = text_bytes = 0.0
    for row in range(len(blocks)):
        for place in range(1, blocks.block_tokens):
            label = int(batch["labels"][row, place])
            if label != IGNORED_LABEL and label not in tokenizer.added_tokens_decoder:
                nats -= float(logits[row, place - 1].log_softmax(dim=-1)[label])
                text_bytes += len(token_bytes[label])
    for device_batch in (100, 1):
        measured = BlockValidation(blocks, tokenizer, device_batch, ALONE)
        if device_batch >= len(blocks):
            assert measured(model, "float32") == pytest.approx(nats / math.log(2) / text_bytes, rel=1e-6)
        else:
            assert measured.count == device_batch


# --- Liger ------------------------------------------------------------------------------------------------------------


def test_liger_on_without_cuda_is_refused_and_auto_says_why(tiny_llama, pretraining_inputs, capsys):
    blocks = pretraining_inputs.train.batch([0])
    with pytest.raises(ConfigError, match=r"liger: on, but no CUDA device\. Set liger to auto or off"):
        apply_liger(tiny_llama, "on", ALONE, blocks, "float32")
    untouched = copy.deepcopy(tiny_llama.state_dict())
    assert apply_liger(tiny_llama, "auto", ALONE, blocks, "float32") is False
    assert capsys.readouterr() == ("Liger kernels are off: no CUDA device\n", "")
    assert apply_liger(tiny_llama, "off", ALONE, blocks, "float32") is False
    assert capsys.readouterr().err == ""
    assert tiny_llama.state_dict().keys() == untouched.keys()


def test_the_check_computes_in_the_precision_of_the_training(tiny_llama, pretraining_inputs):
    """Kernels that stand aside differ by nothing, in float32 and mixed; one that rounds is seen in float32 alone."""
    batch = first_tokens(pretraining_inputs.train.batch([0]))

    def rounds(model):
        inner = model.lm_head.forward
        model.lm_head.forward = lambda inputs: inner(inputs.bfloat16().to(inputs.dtype)).bfloat16().to(inputs.dtype)

    def compare(apply, dtype):
        return compare_kernels(copy.deepcopy(tiny_llama), apply, batch, torch.device("cpu"), dtype)

    for dtype in (torch.float32, torch.bfloat16):
        assert compare(lambda model: None, dtype).loss == 0
    assert compare(rounds, torch.float32).gradients > compare(rounds, torch.bfloat16).gradients
    assert compare(rounds, torch.float32).is_beyond(torch.float32)
    assert not compare(rounds, torch.bfloat16).is_beyond(torch.bfloat16)
