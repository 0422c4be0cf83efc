"""Shingles, and the search for near-duplicates: what is kept holds no near pair, checked against every pair."""

import random
from pathlib import Path

import numpy
import pytest

from steps.text.deduplication import BANDS, CHARACTERS_AT_ONCE, ROWS, band_keys, jaccard, shingle_runs, shingles
from steps.text.near_duplicates import BLOCK_DOCUMENTS, NearDuplicateSearch


def kept_of(texts: list[str], folder: Path, block_documents: int = BLOCK_DOCUMENTS) -> tuple[list[str], list[int]]:
    """The texts that the search keeps, and of each other one the number of the text that it is near."""
    folder.mkdir()
    search = NearDuplicateSearch(folder, 0.8, 5, block_documents)
    for start in range(0, len(texts), 100):
        search.see(texts[start : start + 100])
    search.find()
    near = [search.match_or_keep(number, shingle_runs([text], 5)[0]) for number, text in enumerate(texts)]
    search.close()
    return [text for text, of in zip(texts, near, strict=True) if of is None], [of for of in near if of is not None]


def near_texts(seed: int, originals: int = 60) -> list[str]:
    """Texts of 80 words, each followed by copies in which 1 to 12 words are others."""
    generator = random.Random(seed)
    words = [f"söz{number}" for number in range(400)]
    texts = []
    for _ in range(originals):
        words_of_text = generator.choices(words, k=80)
        texts.append(" ".join(words_of_text))
        for changes in (1, 2, 3, 6, 12):
            changed = list(words_of_text)
            for _ in range(changes):
                changed[generator.randrange(80)] = "başqa"
            texts.append(" ".join(changed))
    return texts


def greedily_kept(texts: list[str], similarity: float) -> tuple[list[str], list[int]]:
    """As kept_of, by comparing each text with every kept one."""
    sets = [shingles(text, 5) for text in texts]
    kept: list[int] = []
    near_of = []
    for number, own in enumerate(sets):
        near = next((other for other in kept if jaccard(own, sets[other]) >= similarity), None)
        if near is None:
            kept.append(number)
        else:
            near_of.append(near)
    return [texts[number] for number in kept], near_of


def test_jaccard_by_hand() -> None:
    first, second = shingles("a b c d e f", 5), shingles("a b c d e g", 5)
    assert first.size == second.size == 2
    assert jaccard(first, second) == 1 / 3


def test_short_texts_are_one_shingle() -> None:
    assert shingles("İki söz", 5).size == 1
    of_short = [shingles(text, 5)[0] for text in ("", "a", "a b", "b a", "a b c", "a b c d", "a b c d e")]
    assert len(set(of_short)) == 7


def test_shingles_are_runs_of_words_as_python_splits_them() -> None:
    text = "Bir\u2003İKİ\xa0üç\n\tdörd beş\u3000 altı\x1fyeddi ß 😀😀 Straße\u200bx " + "u" * 9_000
    words = text.casefold().split()
    assert (shingles(text, 3) == shingles(" ".join(words), 3)).all()
    assert shingles(text, 3).size == len(words) - 2
    # Each run on its own, and texts together as each alone.
    runs = [shingle_runs([" ".join(words[i : i + 3])], 3)[0][0] for i in range(len(words) - 2)]
    together, starts = shingle_runs(["bir", text, "", "iki üç dörd beş", text], 3)
    assert starts.tolist() == [0, 1, len(words) - 1, len(words), len(words) + 2]
    assert together[1 : len(words) - 1].tolist() == runs == together[len(words) + 2 :].tolist()


def test_a_long_text_is_hashed_in_pieces() -> None:
    generator = random.Random(1)
    words = [f"söz{generator.randrange(999)}" for _ in range(400_000)]
    text = " ".join(words)
    assert len(text) > 2 * CHARACTERS_AT_ONCE
    runs, starts = shingle_runs(["bir", text, "iki"], 5)
    assert starts.tolist() == [0, 1, 1 + len(words) - 4]
    middle = len(words) // 2
    assert (runs[middle : middle + 1_000] == shingle_runs([" ".join(words[middle - 1 : middle + 1_003])], 5)[0]).all()


def test_words_have_hashes_of_their_own() -> None:
    generator = random.Random(5)
    words = {"".join(generator.choices("abcçdeəfgğ", k=generator.randrange(1, 9))) for _ in range(100_000)}
    # Words in another order, with letters in another order, and with one other letter are other shingles.
    runs, _ = shingle_runs(sorted(words), 1)
    assert len(set(runs.tolist())) == len(words)
    low = runs.astype(numpy.uint32) % 1_000
    assert numpy.bincount(low).max() < 2 * numpy.bincount(low).mean()


def test_keys_are_shared_as_often_as_the_similarity_says() -> None:
    generator = random.Random(2)
    shared, expected = [], []
    for _ in range(300):
        words = [f"{generator.random()}" for _ in range(120)]
        changed = [f"{generator.random()}" if generator.random() < 0.05 else word for word in words]
        texts = [" ".join(words), " ".join(changed)]
        keys = band_keys(texts, 5)
        shared.append((keys[0] == keys[1]).mean())
        expected.append(jaccard(shingles(texts[0], 5), shingles(texts[1], 5)) ** ROWS)
    assert keys.shape == (2, BANDS)
    # 300 pairs of 32 bands: a standard error of 0.01 at most.
    assert abs(numpy.mean(shared) - numpy.mean(expected)) < 0.03


def test_no_two_kept_documents_are_near(tmp_path: Path) -> None:
    kept, _ = kept_of(near_texts(seed=3), tmp_path / "search")
    sets = [shingles(text, 5) for text in kept]
    pairs = [jaccard(sets[i], sets[j]) for i in range(len(sets)) for j in range(i)]
    assert max(pairs) < 0.8
    # One changed word of 80 touches 5 of 76 shingles: 71 / 81 = 0.88, a near-duplicate; twelve never are.
    assert 60 * 2 <= len(kept) < 60 * 6


@pytest.mark.parametrize("seed", range(4))
def test_the_same_is_kept_as_by_comparing_all(tmp_path: Path, seed: int) -> None:
    texts = near_texts(seed, originals=30)
    random.Random(seed).shuffle(texts)
    texts += texts[:20]
    assert kept_of(texts, tmp_path / "search") == greedily_kept(texts, 0.8)


def test_what_is_kept_does_not_hang_on_how_many_are_held_back(tmp_path: Path) -> None:
    texts = near_texts(seed=7, originals=40)
    whole = kept_of(texts, tmp_path / "whole")
    assert len(texts) < BLOCK_DOCUMENTS
    assert kept_of(texts, tmp_path / "blocks", block_documents=32) == whole
    assert not list((tmp_path / "blocks").glob("keys-*"))


def test_distinct_documents_leave_nothing_to_compare(tmp_path: Path) -> None:
    generator = random.Random(11)
    texts = [" ".join(f"{generator.random()}" for _ in range(30)) for _ in range(2_000)]
    kept, _ = kept_of(texts, tmp_path / "search")
    assert kept == texts
    assert (tmp_path / "search" / "shingles").stat().st_size < 10 * 30 * 8
