"""An order of all blocks for each epoch that any place of it can be asked for alone: nothing is shuffled or kept.

A Feistel network with `side` values in each half is a permutation of side * side numbers; numbers of blocks that do
not exist are sent through it again until one comes out that does. So a billionth step costs what the first one does.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy

# Four mix well enough for a shuffle; two more cost microseconds.
ROUNDS = 6


def blocks_at(places: numpy.ndarray, count: int, seed: int, stream: int = 0) -> numpy.ndarray:
    """The block at each place of an endless sequence, epoch after epoch of all `count` blocks in an order of its own.

    places: int64 [n], from 0. stream: tells sequences of the same seed apart. Returns int64 [n].
    """
    epochs = places // count
    found = numpy.empty_like(places)
    for epoch in numpy.unique(epochs).tolist():
        chosen = epochs == epoch
        found[chosen] = _permuted(places[chosen] % count, count, _round_keys(seed, stream, epoch))
    return found


@lru_cache(maxsize=8)
def _round_keys(seed: int, stream: int, epoch: int) -> tuple[numpy.uint64, ...]:
    return tuple(numpy.random.SeedSequence([seed, stream, epoch]).generate_state(ROUNDS, numpy.uint64))


def _permuted(numbers: numpy.ndarray, count: int, keys: tuple[numpy.uint64, ...]) -> numpy.ndarray:
    """A permutation of range(count), at `numbers`."""
    side = numpy.uint64(isqrt(count - 1) + 1)
    permuted = _through_network(numbers.astype(numpy.uint64), side, keys)
    while len(outside := numpy.flatnonzero(permuted >= count)):
        permuted[outside] = _through_network(permuted[outside], side, keys)
    return permuted.astype(numpy.int64)


def _through_network(numbers: numpy.ndarray, side: numpy.uint64, keys: tuple[numpy.uint64, ...]) -> numpy.ndarray:
    left: numpy.ndarray = numbers // side
    right: numpy.ndarray = numbers % side
    for key in keys:
        left, right = right, (left + _scattered(right ^ key) % side) % side
    return left * side + right


def _scattered(values: numpy.ndarray) -> numpy.ndarray:
    """splitmix64's last part: each bit of a value changes about half of the result's bits. uint64, wraps around."""
    values = (values ^ (values >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return values ^ (values >> numpy.uint64(31))
