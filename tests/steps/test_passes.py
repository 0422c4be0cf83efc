"""Passes over the corpus in the order of its documents, and a model that trains as it came: both needed to ablate."""

from __future__ import annotations

import math
import shutil

import numpy
import pytest
from small_pretraining import SETTINGS, arguments

from steps.configs.continued_pretraining import NOT_LEARNED, UNASKED, ContinuedPretrainingConfig, not_learned
from steps.continued_pretraining import FOLDERS, REPORTS, continued_pretraining
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, MANIFEST_NAME, ConfigError, run_step
from steps.modeling.batches import BatchPlan
from steps.modeling.schedule import Schedule, check_schedule, stretched
from steps.schemas.training import PretrainingSummary

BLOCK_TOKENS = 64


def config_of(**settings) -> ContinuedPretrainingConfig:
    return ContinuedPretrainingConfig.model_validate({**SETTINGS, **settings})


def order_of(plan: BatchPlan, steps: int) -> list[int]:
    return numpy.concatenate([plan.indices(step, 0, 1) for step in range(steps)]).tolist()


# --- what is read -----------------------------------------------------------------------------------------------------


def test_sequential_blocks_come_as_they_lie_epoch_after_epoch(pretraining_inputs):
    blocks = pretraining_inputs.train
    plan = BatchPlan.of(blocks, 4 * BLOCK_TOKENS, 2, 7, 1, sequential=True)
    steps = math.ceil(2 * len(blocks) / 4)
    assert order_of(plan, steps)[: 2 * len(blocks)] == [*range(len(blocks)), *range(len(blocks))]
    shares = [plan.indices(3, rank, 2).tolist() for rank in range(2)]
    assert shares[0] + shares[1] == [12, 13, 14, 15]


def test_replayed_blocks_come_in_their_order_too(pretraining_inputs):
    blocks, replay = pretraining_inputs.train, pretraining_inputs.validation
    plan = BatchPlan.of(blocks, 4 * BLOCK_TOKENS, 2, 7, 1, replay=replay, replay_share=0.25, sequential=True)
    order = order_of(plan, plan.steps_of(1))
    own, replayed = [i for i in order if i < len(blocks)], [i - len(blocks) for i in order if i >= len(blocks)]
    assert own == [place % len(blocks) for place in range(len(own))]
    assert replayed == [place % len(replay) for place in range(len(replayed))]
    assert len(replayed) == len(order) // 4


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.9])
@pytest.mark.parametrize("passes", [0.5, 1, 3])
def test_the_steps_of_passes_are_the_fewest_that_read_all_of_it(pretraining_inputs, share, passes):
    blocks, replay = pretraining_inputs.train, pretraining_inputs.validation
    plan = BatchPlan.of(blocks, 4 * BLOCK_TOKENS, 2, 7, 1, replay=replay, replay_share=share, sequential=True)
    steps = plan.steps_of(passes)
    assert plan.epochs(steps) >= passes > plan.epochs(steps - 1)
    own = [index for index in order_of(plan, steps) if index < len(blocks)]
    if passes >= 1:
        assert set(own) == set(range(len(blocks)))


# --- the phases -------------------------------------------------------------------------------------------------------


def test_phases_and_warm_ups_keep_their_proportion():
    config = config_of(phase_1_steps=30, phase_2_steps=70, phase_1_warmup_steps=3, phase_2_warmup_steps=14)
    found = stretched(config, 250)
    assert (found.phase_1_steps, found.phase_2_steps) == (75, 175)
    assert (found.phase_1_warmup_steps, found.phase_2_warmup_steps) == (8, 35)
    check_schedule(found)
    assert stretched(config, 100) == config


@pytest.mark.parametrize(
    ("given", "steps", "expected"),
    [((1, 99), 10, (1, 9)), ((99, 1), 10, (9, 1)), ((0, 7), 3, (0, 3)), ((7, 0), 3, (3, 0)), ((5, 5), 1, (0, 1))],
)
def test_a_phase_with_a_step_keeps_one(given, steps, expected):
    found = stretched(config_of(phase_1_steps=given[0], phase_2_steps=given[1]), steps)
    assert (found.phase_1_steps, found.phase_2_steps) == expected


def test_phase_2_takes_the_steps_that_an_early_end_of_phase_1_leaves():
    config = config_of(phase_1_steps=6, phase_2_steps=4, passes=1, final_learning_rate_share=0.1)
    early = Schedule(config, 2)
    assert (early.phase_2_steps, early.last) == (8, 10)
    assert early.learning_rate(9) == pytest.approx(0.1 * config.phase_2_learning_rate)
    assert Schedule(config.model_copy(update={"passes": 0.0}), 2).last == 6


def test_passes_of_no_step_are_refused():
    with pytest.raises(ConfigError, match=r"continued_pretraining.passes: 1.0; limit 0 without a step"):
        check_schedule(config_of(phase_1_steps=0, phase_2_steps=0, passes=1))


def test_checkpoints_from_before_these_settings_are_still_good():
    assert set(UNASKED) <= set(not_learned(config_of()))
    asked = config_of(passes=1, block_order="sequential")
    assert set(not_learned(asked)) == set(NOT_LEARNED)


# --- the step ---------------------------------------------------------------------------------------------------------


def run(given: list[str]) -> int:
    return run_step(
        continued_pretraining, ContinuedPretrainingConfig, FOLDERS, checkpoints=True, reports=REPORTS, arguments=given
    )


def test_one_pass_is_one_pass_and_its_figures_say_so(pretraining_inputs, tmp_path, capsys):
    given = arguments(pretraining_inputs, tmp_path / "out", passes=1, block_order="sequential", phase_1_warmup_steps=1)
    assert run(given) == EXIT_DONE
    summary = PretrainingSummary.model_validate_json((tmp_path / "out" / "training.json").read_bytes())
    blocks = pretraining_inputs.train
    steps = math.ceil(len(blocks) / 4)
    first = round(steps * 0.4)
    assert [phase.steps for phase in summary.phases.values()] == [first, steps - first]
    assert f"steps: {first} of phase 1, {steps - first} of phase 2; 1." in capsys.readouterr().out
    assert summary.corpus_passes == steps * 4 / len(blocks)
    assert summary.corpus_bytes == blocks.bytes
    by_hand = [summary.phases[name].tokens * summary.flops_per_token[name] for name in ("phase_1", "phase_2")]
    assert summary.flops == sum(by_hand) > 0


def test_a_model_trains_as_it_came(pretraining_inputs, tmp_path):
    assert run(arguments(pretraining_inputs, tmp_path / "sealed")) == EXIT_DONE
    base = shutil.copytree(pretraining_inputs.model, tmp_path / "base", ignore=shutil.ignore_patterns(MANIFEST_NAME))
    given = [part for part in arguments(pretraining_inputs, tmp_path / "out") if not part.startswith("--model=")]
    assert run([f"--base_model={base}", *given]) == EXIT_DONE
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("sealed", "out")]
    assert weights[0] == weights[1]


def test_one_model_is_trained(pretraining_inputs, tmp_path, capsys):
    given = arguments(pretraining_inputs, tmp_path / "out")
    assert run([f"--base_model={pretraining_inputs.model}", *given]) == EXIT_USER_ERROR
    assert "error: --model, --base_model: both given; limit one of them." in capsys.readouterr().err
    assert run([part for part in given if not part.startswith("--model=")]) == EXIT_USER_ERROR
    assert "error: --model, --base_model: neither given; limit one of them." in capsys.readouterr().err
