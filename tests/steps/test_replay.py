"""Replay of the source corpus: shares to the block, at any step, for any number of processes; what the step says."""

from __future__ import annotations

import shutil

import numpy
import pytest
import torch

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.continued_pretraining import FOLDERS, REPORTS, continued_pretraining
from steps.contract import EXIT_DONE, StepConfig, StepError, StepFolders, run_step, seal
from steps.modeling.batches import BatchPlan
from steps.schemas.training import PretrainingSummary
from steps.text.packing import PackedBlocks, Vocabulary, write_part

BLOCK_TOKENS = 16


def make_blocks(folder, count: int, first_token: int, block_tokens: int = BLOCK_TOKENS) -> PackedBlocks:
    """Blocks of one document each, which tell by their tokens where they come from."""
    vocabulary = Vocabulary(bos_token_id=1, eos_token_id=2, pad_token_id=3, size=10_000, tokenizer_sha256="a")
    texts = [([first_token + number] * (block_tokens - 2), block_tokens) for number in range(count)]
    write_part(folder, "part-00000", texts, block_tokens, vocabulary)
    return PackedBlocks(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> PackedBlocks:
    return make_blocks(tmp_path_factory.mktemp("corpus"), 100, first_token=1_000)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> PackedBlocks:
    return make_blocks(tmp_path_factory.mktemp("source"), 30, first_token=5_000)


def make_plan(corpus, source, share: float, *, world_size: int = 1, seed: int = 0) -> BatchPlan:
    return BatchPlan.of(corpus, 8 * BLOCK_TOKENS, 4, seed, world_size, replay=source, replay_share=share)


def order(plan: BatchPlan, steps: int) -> numpy.ndarray:
    return numpy.concatenate([plan.indices(step, 0, 1) for step in range(steps)])


@pytest.mark.parametrize("share", [0.05, 0.1, 1 / 3, 0.5, 0.9])
def test_the_share_is_kept_to_the_block_at_every_place(corpus, source, share):
    replayed = order(make_plan(corpus, source, share), 500) >= len(corpus)
    blocks = numpy.arange(1, len(replayed) + 1)
    assert numpy.abs(numpy.cumsum(replayed) - blocks * share).max() <= 1


def test_both_texts_go_through_their_epochs_as_if_alone(corpus, source):
    mixed = order(make_plan(corpus, source, 0.25), 200)
    alone = order(make_plan(corpus, None, 0.0), 200)
    own, replayed = mixed[mixed < len(corpus)], mixed[mixed >= len(corpus)] - len(corpus)
    assert numpy.array_equal(own, alone[: len(own)])
    for epoch in range(len(replayed) // len(source)):
        assert sorted(replayed[epoch * len(source) :][: len(source)]) == list(range(len(source)))
    assert not numpy.array_equal(order(make_plan(corpus, source, 0.25, seed=1), 200), mixed)


def test_processes_share_what_one_would_read_and_any_step_is_found_alone(corpus, source):
    plan = make_plan(corpus, source, 0.3, world_size=4)
    for step in (0, 17, 10**9):
        shares = [plan.indices(step, rank, 4) for rank in range(4)]
        assert numpy.concatenate(shares).tolist() == plan.indices(step, 0, 1).tolist()
    # Of a billion steps, too, 30% to the block: 10 steps of 8 are 24 replayed ones.
    far = numpy.concatenate([plan.indices(10**9 + step, 0, 1) for step in range(10)])
    assert int((far >= len(corpus)).sum()) == 24


def test_the_blocks_that_are_read_are_those_that_were_drawn(corpus, source):
    plan = make_plan(corpus, source, 0.3)
    indices = plan.indices(3, 0, 1)
    passes = plan.device_batches(3, 0, 1)
    assert [tuple(batch["input_ids"].shape) for batch in passes] == [(4, BLOCK_TOKENS)] * 2
    tokens = torch.cat([batch["input_ids"] for batch in passes])[:, 1]
    own, first_token = len(corpus), {False: 1_000, True: 5_000}
    assert tokens.tolist() == [first_token[i >= own] + (i - own if i >= own else i) for i in indices.tolist()]


def test_no_share_or_no_source_is_no_replay(corpus, source):
    for plan in (make_plan(corpus, source, 0.0), make_plan(corpus, None, 0.5)):
        assert plan.replay is None
        assert plan.replay_passes(100) == 0
        assert order(plan, 100).max() < len(corpus)
    assert make_plan(corpus, source, 0.3).replay_passes(100) == pytest.approx(8)


def test_source_blocks_of_another_length_are_refused(corpus, tmp_path):
    longer = make_blocks(tmp_path, 4, first_token=5_000, block_tokens=32)
    with pytest.raises(StepError, match=r"source blocks: 4 blocks of 32 tokens; limit at least 1 block of 16 tokens"):
        make_plan(corpus, longer, 0.5)


@pytest.mark.parametrize(
    ("share", "line", "warning"),
    [
        (
            0.9,
            "replay: 90.0% of the blocks are source text, 4.80 passes over it\n",
            "warning: source-replayed-often: 4.8",
        ),
        (0.1, "replay: 10.0% of the blocks are source text, 0.53 passes over it\n", ""),
        (0.0, "replay: none\n", ""),
    ],
)
def test_the_step_replays_watches_and_says_so(pretraining_inputs, tmp_path, capsys, share, line, warning):
    blocks = shutil.copytree(pretraining_inputs.blocks, tmp_path / "blocks")
    for split, name in (("source_train", "validation"), ("source_validation", "validation")):
        shutil.copytree(blocks / name, blocks / split)
    assert len(PackedBlocks(blocks / "source_train")) == 6
    seal(StepFolders(output=blocks), "test", StepConfig(), {}, 0.0)
    settings = {
        "model": pretraining_inputs.model, "blocks": blocks, "output": tmp_path / "out", "phase_1_steps": 2,
        "phase_1_learning_rate": 0.01, "phase_2_steps": 6, "phase_2_learning_rate": 0.005, "global_batch_tokens": 256,
        "device_batch_blocks": 4, "precision": "float32", "device": "cpu", "source_replay_share": share,
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    code = run_step(
        continued_pretraining,
        ContinuedPretrainingConfig,
        FOLDERS,
        checkpoints=True,
        reports=REPORTS,
        arguments=arguments,
    )
    assert code == EXIT_DONE
    printed = capsys.readouterr()
    assert "attention: sdpa\n" in printed.out
    assert line in printed.out
    assert warning in printed.err
    assert bool(warning) == ("source-replayed-often" in printed.err)
    summary = PretrainingSummary.model_validate_json((tmp_path / "out" / "training.json").read_bytes())
    # The same text as the corpus's own validation, so the same figure; it is watched without replay, too.
    assert summary.source_validation_bits_per_byte == pytest.approx(summary.validation_bits_per_byte)
    assert f" source_validation_bits_per_byte={summary.source_validation_bits_per_byte:.3f}" in printed.out
