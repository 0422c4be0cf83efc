"""FOCUS: sparsemax, the static embedding behind the similarities, and the rows that come of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from steps.contract import StepError
from steps.modeling import static_embedding
from steps.modeling.focus import similar_tokens, sparsemax
from steps.modeling.initialisers import compose_rows
from steps.modeling.static_embedding import WINDOW, count_pairs, token_streams, train_static_embedding, truncated_svd
from steps.modeling.vocabulary_plan import plan_vocabulary

ENGLISH = ("the quick brown fox jumps over the lazy dog and then the other dogs rest in the shade of the tree. " * 3,)
DRINKS = ("çay", "qəhvə", "süd")
PLACES = ("Bakıya", "Gəncəyə", "Şəkiyə")
# Drinks stand in one surrounding and places in another.
TEXTS = [f"nənəm hər səhər {DRINKS[n % 3]} içir, sonra avtobusla {PLACES[n % 7 % 3]} gedir." for n in range(60)]
MIB = 2**20


@pytest.fixture(scope="module")
def new_tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(TEXTS, 400)


def vector_of(vectors, tokenizer, word):
    (index,) = tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    return vectors[index]


def test_sparsemax_is_the_nearest_point_of_the_simplex():
    scores = torch.randn(20, 300, generator=torch.Generator().manual_seed(0)) * torch.linspace(0.001, 3, 20)[:, None]
    places, shares = sparsemax(scores)
    dense = torch.zeros_like(scores).scatter(1, places, shares)
    assert torch.allclose(dense.sum(dim=1), torch.ones(20), atol=1e-5)
    # The conditions of the optimum: what is kept lies one distance above its share, what is not lies below that.
    for row, kept in zip(scores, dense, strict=True):
        distance = (row - kept)[kept > 0]
        assert float(distance.max() - distance.min()) < 1e-5
        assert torch.all(row[kept == 0] <= distance.max() + 1e-5)
    # The first row's scores are nearly equal, so it needs more than the first candidates.
    assert int((dense[0] > 0).sum()) > 128
    assert int((dense[-1] > 0).sum()) < 10


def test_pairs_are_counted_within_a_document_and_nearer_ones_more():
    generator = np.random.default_rng(0)
    documents = [generator.integers(0, 6, size) for size in (40, 1, 25, 60)]
    frequency, keys, counts = count_pairs(iter(documents), 6)
    expected: Counter[tuple[int, int]] = Counter()
    for ids in documents:
        for at, left in enumerate(ids):
            for distance, right in enumerate(ids[at + 1 : at + 1 + WINDOW], start=1):
                expected[min(left, right), max(left, right)] += WINDOW + 1 - distance
    assert {(key // 6, key % 6): count for key, count in zip(keys.tolist(), counts.tolist(), strict=True)} == expected
    assert frequency.tolist() == np.bincount(np.concatenate(documents), minlength=6).tolist()


def test_pairs_of_rare_tokens_are_left_out():
    documents = [np.array([0, 1] * 10), np.array([0, 2, 0, 2, 0, 2, 0, 2])]
    _, keys, _ = count_pairs(iter(documents), 3)
    assert sorted({key // 3 for key in keys.tolist()} | {key % 3 for key in keys.tolist()}) == [0, 1]


def test_the_decomposition_finds_the_largest_singular_values():
    left = torch.linalg.qr(torch.randn(50, 5, generator=torch.Generator().manual_seed(1)))[0]
    right = torch.linalg.qr(torch.randn(50, 5, generator=torch.Generator().manual_seed(2)))[0]
    singular = torch.tensor([9.0, 7.0, 4.0, 2.0, 1.0])
    matrix = left * singular @ right.T
    found = truncated_svd(matrix, matrix.T, 3, seed=0)
    assert torch.allclose(found.norm(dim=0) ** 2, singular[:3], atol=1e-3)
    assert torch.allclose((found / singular[:3].sqrt()).abs(), left[:, :3].abs(), atol=1e-3)


def test_words_in_like_surroundings_are_alike(new_tokenizer):
    vectors = train_static_embedding(new_tokenizer, TEXTS, max_bytes=MIB, seed=0)
    assert vectors.shape == (len(new_tokenizer), static_embedding.DIMENSIONS)
    lengths = vectors.norm(dim=1)
    assert torch.all((lengths < 1e-6) | ((lengths - 1).abs() < 1e-5))
    drinks = [vector_of(vectors, new_tokenizer, word) for word in DRINKS]
    places = [vector_of(vectors, new_tokenizer, word) for word in PLACES]
    within = min(float(drinks[0] @ drinks[1]), float(drinks[0] @ drinks[2]), float(places[0] @ places[1]))
    across = max(float(drink @ place) for drink in drinks for place in places)
    assert within > across + 0.1
    again = train_static_embedding(new_tokenizer, iter(TEXTS), max_bytes=MIB, seed=0)
    assert torch.equal(vectors, again)


def test_no_more_text_is_read_than_asked(new_tokenizer):
    taken = []

    def texts():
        for text in TEXTS:
            taken.append(text)
            yield text

    # Half of the second letter of TEXTS[1] is left out, too.
    ids = list(token_streams(new_tokenizer, texts(), len(TEXTS[0].encode()) + len("n") + 1))
    assert taken == TEXTS[:2]
    assert [new_tokenizer.decode(row) for row in ids] == [TEXTS[0], "n"]


def test_rows_are_sums_of_overlapping_tokens_rows(make_tiny_tokenizer, make_tiny_llama, new_tokenizer):
    base_tokenizer = make_tiny_tokenizer(ENGLISH, 310)
    base = make_tiny_llama(320).get_input_embeddings().weight.detach()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    similar = similar_tokens(plan, new_tokenizer, TEXTS, max_bytes=MIB, seed=0)
    rows = compose_rows(base, plan, "focus", spread=0.2, seed=3, similar=similar)
    overlap = set(plan.copied.values())
    for number, index in enumerate(similar.ids.tolist()):
        part = slice(similar.starts[number], similar.starts[number + 1])
        base_ids, weights = similar.base_ids[part], similar.weights[part]
        assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)
        assert set(base_ids.tolist()) <= overlap
        assert torch.allclose(rows[index], (weights[:, None] * base[base_ids]).sum(dim=0), atol=1e-5)
    copied = torch.tensor(list(plan.copied.items()))
    assert torch.equal(rows[copied[:, 0]], base[copied[:, 1]])
    # What the text does not tell of is drawn, the same for the same seed.
    drawn = sorted(set(plan.composed) - set(similar.ids.tolist()) - plan.special)
    assert len(similar.ids) > 40
    again = compose_rows(base, plan, "focus", spread=0.2, seed=4, similar=similar)
    assert torch.equal(again[similar.ids], rows[similar.ids])
    assert all(not torch.equal(again[index], rows[index]) for index in drawn)


def test_texts_without_an_overlapping_token_are_refused(make_tiny_tokenizer, new_tokenizer):
    plan = plan_vocabulary(make_tiny_tokenizer(ENGLISH, 310), new_tokenizer, base_rows=320)
    with pytest.raises(StepError, match="initialiser focus: no token of both tokenizers stands in the corpus"):
        similar_tokens(plan, new_tokenizer, [], max_bytes=MIB, seed=0)
