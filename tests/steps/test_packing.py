"""Packing by hand: order, cuts, positions, labels, padding, seek."""

import itertools
import random
from pathlib import Path

import numpy
import pytest

from steps.contract import StepError
from steps.text.packing import (
    IGNORED_LABEL,
    PackedBlocks,
    Vocabulary,
    encoded_documents,
    pack_part,
    positions,
    write_part,
)

VOCABULARY = Vocabulary(bos_token_id=90, eos_token_id=91, pad_token_id=92, size=96, tokenizer_sha256="a")


def test_blocks_by_hand(tmp_path: Path) -> None:
    write_part(tmp_path, "part-00000", [([1, 2, 3], 3), ([4, 5, 6, 7, 8, 9], 7)], 8, VOCABULARY)
    blocks = PackedBlocks(tmp_path)
    assert (len(blocks), blocks.bytes, blocks.tokens, blocks.block_tokens) == (2, 10, 13, 8)
    batch = blocks.batch([0, 1])
    assert batch["input_ids"].tolist() == [[90, 1, 2, 3, 91, 90, 4, 5], [6, 7, 8, 9, 91, 92, 92, 92]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 3, 4, 0, 1, 2]]
    assert batch["labels"].tolist() == [
        [IGNORED_LABEL, 1, 2, 3, 91, IGNORED_LABEL, 4, 5],
        [IGNORED_LABEL, 7, 8, 9, 91, IGNORED_LABEL, IGNORED_LABEL, IGNORED_LABEL],
    ]


def test_any_block_of_any_part(tmp_path: Path) -> None:
    generator = numpy.random.default_rng(0)
    for part in range(3):
        documents = [(generator.integers(0, 80, size=length).tolist(), length) for length in (5, 40, 1, 17)]
        write_part(tmp_path, f"part-{part:05d}", documents, 16, VOCABULARY, parts=3)
    blocks = PackedBlocks(tmp_path)
    whole = blocks.batch(range(len(blocks)))
    for index in range(len(blocks)):
        one = blocks.batch([index])
        assert all((one[name][0] == whole[name][index]).all() for name in whole)
    assert (whole["input_ids"] != 92).sum() == blocks.tokens


def test_an_empty_shard_is_a_part_without_blocks(tmp_path: Path) -> None:
    write_part(tmp_path, "part-00000", [], 8, VOCABULARY, parts=2)
    write_part(tmp_path, "part-00001", [([1], 1)], 8, VOCABULARY, parts=2)
    assert PackedBlocks(tmp_path).batch([0])["input_ids"][0, :3].tolist() == [90, 1, 91]


def test_parts_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    write_part(tmp_path, "part-00000", [([1], 1)], 8, VOCABULARY)
    other = Vocabulary(bos_token_id=90, eos_token_id=91, pad_token_id=92, size=96, tokenizer_sha256="b")
    write_part(tmp_path, "part-00001", [([1], 1)], 8, other)
    with pytest.raises(StepError, match="different tokenizers"):
        PackedBlocks(tmp_path)


@pytest.mark.parametrize("missing", range(3))
def test_a_missing_part_is_noticed(tmp_path: Path, missing: int) -> None:
    for part in {0, 1, 2} - {missing}:
        write_part(tmp_path, f"part-{part:05d}", [([1], 1)], 8, VOCABULARY, parts=3)
    with pytest.raises(StepError, match=f"parts part-0000{missing} missing or not of this split; limit 3 parts"):
        PackedBlocks(tmp_path)


@pytest.mark.parametrize("stray_says", [2, 3])
def test_a_part_too_many_is_noticed(tmp_path: Path, stray_says: int) -> None:
    for part in range(3):
        parts = stray_says if part == 2 else 2
        write_part(tmp_path, f"part-{part:05d}", [([1], 1)], 8, VOCABULARY, parts=parts)
    with pytest.raises(StepError, match="parts part-00002 missing or not of this split; limit 2 parts"):
        PackedBlocks(tmp_path)


def test_positions_by_hand() -> None:
    assert positions(numpy.array([0, 3]), 6).tolist() == [0, 1, 2, 0, 1, 2]


def packed_one_by_one(documents: list[list[int]], block_tokens: int) -> tuple[list[list[int]], list[list[int]]]:
    """(blocks, places where documents start in each), token after token."""
    blocks: list[list[int]] = []
    starts: list[list[int]] = []
    filled = block_tokens
    for document in [[VOCABULARY.bos_token_id, *ids, VOCABULARY.eos_token_id] for ids in documents]:
        for place, token in enumerate(document):
            if filled == block_tokens:
                blocks, starts, filled = [*blocks, []], [*starts, []], 0
            if place == 0 or filled == 0:
                starts[-1].append(filled)
            blocks[-1].append(token)
            filled += 1
    if filled < block_tokens:
        starts[-1].append(filled)
        blocks[-1].extend([VOCABULARY.pad_token_id] * (block_tokens - filled))
    return blocks, starts


@pytest.mark.parametrize("seed", range(60))
def test_parts_are_those_of_packing_one_by_one(tmp_path: Path, seed: int) -> None:
    """Byte by byte, with empty documents, some of several blocks and some that fill a block to its end."""
    draw = random.Random(seed)
    block_tokens = draw.choice([16, 17, 64])
    lengths = [0, 1, block_tokens - 2, 2 * block_tokens - 2, draw.randrange(5 * block_tokens)]
    count = draw.choice([0, 1, 2, 20])
    documents = [[draw.randrange(90) for _ in range(draw.choice(lengths))] for _ in range(count)]
    wanted_blocks, wanted_starts = packed_one_by_one(documents, block_tokens)
    cuts = sorted({0, count, draw.randrange(count + 1)})
    batches = [encoded_documents(documents[a:b], b - a) for a, b in itertools.pairwise(cuts)]
    summary = pack_part(tmp_path, "part-00000", batches, block_tokens, VOCABULARY)
    assert (summary.documents, summary.bytes, summary.blocks) == (count, count, len(wanted_blocks))
    assert summary.tokens == sum(len(ids) + 2 for ids in documents)
    table = numpy.array(wanted_blocks, dtype=numpy.uint32).reshape(-1, block_tokens)
    numpy.save(tmp_path / "wanted.npy", table)
    assert (tmp_path / "part-00000.tokens.npy").read_bytes() == (tmp_path / "wanted.npy").read_bytes()
    offsets = numpy.cumsum([0, *map(len, wanted_starts)]).astype(numpy.int64)
    flat = numpy.array([start for row in wanted_starts for start in row], dtype=numpy.uint32)
    numpy.savez(tmp_path / "wanted.npz", offsets=offsets, starts=flat)
    assert (tmp_path / "part-00000.starts.npz").read_bytes() == (tmp_path / "wanted.npz").read_bytes()
