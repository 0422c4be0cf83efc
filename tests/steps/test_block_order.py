"""The order of the blocks: a permutation for each epoch, found at any place without those before it."""

from __future__ import annotations

import time

import numpy
import pytest

from steps.modeling.block_order import blocks_at


@pytest.mark.parametrize("count", [1, 2, 3, 17, 64, 1_000, 99_991])
def test_every_block_once_an_epoch_and_each_epoch_another_order(count):
    epochs = [blocks_at(numpy.arange(count) + epoch * count, count, seed=3) for epoch in range(3)]
    for order in epochs:
        assert numpy.array_equal(numpy.sort(order), numpy.arange(count))
    if count > 3:
        assert not numpy.array_equal(epochs[0], epochs[1])
        assert not numpy.array_equal(epochs[0], numpy.arange(count))


def test_a_place_is_found_alone_and_across_the_end_of_an_epoch():
    whole = blocks_at(numpy.arange(250), 100, seed=5)
    for first in (0, 37, 95, 199):
        assert numpy.array_equal(blocks_at(numpy.arange(first, first + 9), 100, seed=5), whole[first : first + 9])
    assert not numpy.array_equal(blocks_at(numpy.arange(100), 100, seed=6), whole[:100])
    assert not numpy.array_equal(blocks_at(numpy.arange(100), 100, seed=5, stream=1), whole[:100])


def test_the_order_is_as_mixed_as_a_shuffle():
    """Blocks that lie side by side come from the same text: neither place nor neighbour may tell of the block."""
    count = 10_000
    order = blocks_at(numpy.arange(count), count, seed=1)
    # Each has a standard deviation of 0.01 for a true shuffle.
    assert abs(numpy.corrcoef(order, numpy.arange(count))[0, 1]) < 0.04
    assert abs(numpy.corrcoef(order[1:], order[:-1])[0, 1]) < 0.04
    # Of 16 equal ranges of blocks, each has its share of every 16th of the places: chi square of 225 degrees.
    table = numpy.histogram2d(order, numpy.arange(count), bins=16)[0]
    assert ((table - count / 256) ** 2 / (count / 256)).sum() < 320


def test_a_billionth_step_costs_no_more_than_the_first():
    places = numpy.arange(224, dtype=numpy.int64)

    def best_seconds(step: int) -> float:
        times = []
        for attempt in range(20):
            began = time.perf_counter()
            blocks_at((step + attempt) * 224 + places, 1_220_703, seed=0)
            times.append(time.perf_counter() - began)
        return min(times)

    blocks_at(places, 1_220_703, seed=0)
    # About 0.2 ms; the limit leaves room for a busy machine.
    assert best_seconds(10**9) < 0.005
