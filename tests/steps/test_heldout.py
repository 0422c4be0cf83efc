"""Held-out documents found as passages of training documents, against a search by hand."""

import random

import numpy
import pytest

from steps.text.deduplication import shingle_runs
from steps.text.heldout import MIN_PASSAGE_SHINGLES, PASSAGE_SHARE, PASSAGE_SHINGLES, HeldoutPassages


def runs(text: str) -> numpy.ndarray:
    return shingle_runs([text], 5)[0]


def found_by_hand(held: dict[int, str], training: list[str]) -> set[int]:
    found = set()
    for number, text in held.items():
        own = sorted(set(runs(text).tolist()))[:PASSAGE_SHINGLES]
        for other in training:
            if len(own) >= MIN_PASSAGE_SHINGLES and len({*own} & {*runs(other).tolist()}) >= PASSAGE_SHARE * len(own):
                found.add(number)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_passages_are_found_as_by_hand(seed: int) -> None:
    generator = random.Random(seed)
    words = [f"söz{number}" for number in range(300)]
    held = {7 * n: " ".join(generator.choices(words, k=generator.choice([6, 20, 60, 200]))) for n in range(40)}
    training = []
    for number, text in held.items():
        around = generator.choices(words, k=100)
        share = generator.choice([0, 0.5, 0.85, 1])
        part = text.split()[: int(share * len(text.split()))]
        training.append(" ".join([*around[:50], *part, *around[50:], *(part if number % 2 else [])]))
    passages = HeldoutPassages()
    # Half is held out after the first look.
    first = dict(list(held.items())[:20])
    for number, text in first.items():
        passages.hold_out(number, runs(text))
    passages.look_in(runs(training[0]))
    for number, text in held.items():
        if number not in first:
            passages.hold_out(number, runs(text))
    for text in training:
        passages.look_in(runs(text))
    assert passages.found == found_by_hand(held, training)
    assert 5 < len(passages.found) < 35
    assert passages.documents == sum(len({*runs(text).tolist()}) >= MIN_PASSAGE_SHINGLES for text in held.values())


def test_nothing_held_out_is_found_nowhere() -> None:
    passages = HeldoutPassages()
    passages.look_in(runs("bir iki üç dörd beş altı yeddi səkkiz doqquz on"))
    assert passages.found == set()
    assert passages.documents == 0
