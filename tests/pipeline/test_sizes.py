"""docs/sizes.md: its table follows from the shapes and from the presets, and the presets fit what they name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.config import load_config

PAGE = Path(__file__).parents[2] / "docs" / "sizes.md"
GIB = 2**30
ROWS = 99_968
H100_BYTES, L40S_BYTES = 80e9, 48e9
H100_FLOPS_PER_SECOND = 989.4e12


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    key_value_width: int
    feed_forward_width: int
    matrices: int

    @property
    def layer_parameters(self) -> int:
        inside = 2 * self.width**2 + 2 * self.width * self.key_value_width + 3 * self.width * self.feed_forward_width
        return inside + 2 * self.width

    def vocabulary_parameters(self, rows: int = ROWS) -> int:
        return self.matrices * rows * self.width

    def parameters(self, rows: int = ROWS) -> int:
        return self.vocabulary_parameters(rows) + self.layers * self.layer_parameters + self.width

    @property
    def token_bytes(self) -> int:
        """Of one token's activations that all layers keep, in bfloat16."""
        inside = 6 * self.width + 2 * self.key_value_width + 3 * self.feed_forward_width
        return 2 * self.layers * inside


SHAPES = {"1B": Shape(2_048, 16, 512, 8_192, 1), "8B": Shape(4_096, 32, 1_024, 14_336, 2)}
PRESETS = {"1B": "azerbaijani-1b-p5", "8B": "azerbaijani-8b-p5"}
STATE_BYTES = {"bfloat16": 8, "bfloat16_mixed": 16}
# Weights, gradients and, in float32, the gradients as they travel.
GATHERED_BYTES = {"bfloat16": 4, "bfloat16_mixed": 8}
ROW = re.compile(
    r"^\| (1B|8B) \| (bfloat16\w*) \| (\d+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\d+) \| (\S+) \|$", re.M
)


def memory(name: str, precision: str, gpus: int) -> tuple[float, float, float, float, int]:
    """GiB of state, of what is gathered, of a block's activations without and with checkpointing; blocks."""
    shape, config = SHAPES[name], load_config(PRESETS[name])
    state = STATE_BYTES[precision] * shape.parameters() / gpus
    gathered = GATHERED_BYTES[precision] * (shape.vocabulary_parameters() + 2 * shape.layer_parameters)
    block = config.tokenize_corpus.block_tokens
    kept = shape.token_bytes * block
    checkpointed = 2 * shape.layers * shape.width * block
    blocks = config.continued_pretraining.device_batch_blocks
    return state / GIB, gathered / GIB, kept / GIB, checkpointed / GIB, blocks


def test_the_pages_table_follows_from_shapes_and_presets() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == 5
    for name, precision, gpus, *figures in rows:
        state, gathered, block, checkpointed, blocks = memory(name, precision, int(gpus))
        together = f"{state + gathered + blocks * block:.1f}"
        expected = [f"{state:.2f}", f"{gathered:.2f}", f"{block:.2f}", f"{checkpointed:.2f}", str(blocks), together]
        print(name, precision, gpus, *expected)
        assert figures == expected


def test_the_formulas_give_what_was_published_of_1b() -> None:
    shape = SHAPES["1B"]
    assert shape.parameters(128_256) == 1_235_814_400
    assert 8 * shape.parameters(128_256) / GIB == pytest.approx(9.23, rel=0.01)
    assert 8 * shape.parameters(128_256) / GIB / 8 == pytest.approx(1.17, rel=0.02)
    state, gathered, block, _, _ = memory("1B", "bfloat16", 8)
    # The published peak on p5, in GB, for the batch of 10 blocks that was told of FSDP.
    assert (state + gathered + 10 * block) * GIB / 1e9 == pytest.approx(27, rel=0.05)


@pytest.mark.parametrize(("name", "gpus"), [("1B", 8), ("8B", 16), ("8B", 8)])
def test_pretraining_of_a_preset_fits_with_a_fifth_to_spare(name: str, gpus: int) -> None:
    section = load_config(PRESETS[name]).continued_pretraining
    state, gathered, block, _, blocks = memory(name, section.precision, gpus)
    assert (state + gathered + blocks * block) * GIB < 0.8 * H100_BYTES
    # Every process takes whole passes of the global batch.
    assert section.global_batch_tokens % (2_048 * gpus * section.device_batch_blocks) == 0


def test_the_times_of_the_presets() -> None:
    config = load_config(PRESETS["8B"])
    section, shape = config.continued_pretraining, SHAPES["8B"]
    # The embedding only looks up.
    multiplied = shape.parameters() - shape.vocabulary_parameters() // 2
    flops = section.global_batch_tokens * multiplied * (4 * section.phase_1_steps + 6 * section.phase_2_steps)
    assert flops == pytest.approx(3.7e20, rel=0.01)
    seconds = flops / (16 * 0.4 * H100_FLOPS_PER_SECOND)
    assert seconds / 3_600 == pytest.approx(16.4, abs=0.05)
    assert config.compute.continued_pretraining.max_runtime_seconds == pytest.approx(3 * seconds, rel=0.05)

    config = load_config(PRESETS["1B"])
    section = config.continued_pretraining
    seconds = (section.phase_1_steps + section.phase_2_steps) * section.global_batch_tokens / 78_319 / 8
    assert seconds / 3_600 == pytest.approx(4.1, abs=0.05)
    assert config.compute.continued_pretraining.max_runtime_seconds == pytest.approx(3 * seconds, rel=0.05)


def test_tokens_of_8b_are_those_of_the_published_run() -> None:
    published, own = (load_config(name).continued_pretraining for name in ("azerbaijani-1b-p4d", PRESETS["8B"]))
    for phase in ("phase_1_steps", "phase_2_steps"):
        tokens = [getattr(section, phase) * section.global_batch_tokens for section in (published, own)]
        assert tokens[1] == pytest.approx(tokens[0], rel=0.001)


def test_the_other_steps_of_8b_fit() -> None:
    config, shape = load_config(PRESETS["8B"]), SHAPES["8B"]
    base, own = shape.parameters(128_256), shape.parameters()
    assert config.compute.adapt_vocabulary.instance_type == "ml.m5.12xlarge"
    assert 6 * base < 0.5 * 192 * GIB
    read_at_once = 4 * config.evaluate_model.batch_tokens * (3 * shape.feed_forward_width + 6 * shape.width)
    assert 4 * base + read_at_once < 0.8 * L40S_BYTES
    # Each checkpoint that was ever written comes back with a restart.
    section = config.continued_pretraining
    sets = (section.phase_1_steps + section.phase_2_steps) / section.checkpoint_every_steps
    assert (sets, 12 * own * sets) == (35, pytest.approx(3.3e12, rel=0.01))
    shares = [shape.vocabulary_parameters(rows) / shape.parameters(rows) for rows in (128_256, ROWS, 128_256 + 24_960)]
    assert [round(share, 2) for share in shares] == [0.13, 0.11, 0.15]
    assert max(shares) < config.train_tokenizer.max_vocabulary_parameters_share


def test_1b_on_p5_learns_what_the_published_run_learns() -> None:
    published, own = load_config("azerbaijani-1b-p4d"), load_config(PRESETS["1B"])
    same = ("thresholds", "prepare_corpus", "train_tokenizer", "tokenize_corpus", "adapt_vocabulary",
            "continued_pretraining", "fine_tune", "evaluate_model")  # fmt: skip
    for section in same:
        assert getattr(own, section) == getattr(published, section), section
    different = {name for name, job in own.compute if job != getattr(published.compute, name)}
    assert different == {"continued_pretraining"}


def test_the_code_knows_no_size() -> None:
    """A preset is all that there is of the model's size."""
    root = Path(__file__).parents[2]
    for package in ("pipeline", "steps", "containers"):
        for path in (root / package).rglob("*.py"):
            text = path.read_text()
            assert not [number for number in ("8b-p5", "14336", "14_336") if number in text], path
