"""Near-duplicates: what is kept holds no near pair, checked against every pair."""

import random

from steps.text.deduplication import NearDuplicateIndex, jaccard, shingles


def test_jaccard_by_hand() -> None:
    first, second = shingles("a b c d e f", 5), shingles("a b c d e g", 5)
    assert first.size == second.size == 2
    assert jaccard(first, second) == 1 / 3


def test_short_texts_are_one_shingle() -> None:
    assert shingles("İki söz", 5).size == 1


def test_no_two_kept_documents_are_near() -> None:
    generator = random.Random(3)
    words = [f"söz{number}" for number in range(400)]
    texts = []
    for _ in range(60):
        words_of_text = generator.choices(words, k=80)
        texts.append(" ".join(words_of_text))
        for changes in (1, 2, 3, 6, 12):
            changed = list(words_of_text)
            for _ in range(changes):
                changed[generator.randrange(80)] = "başqa"
            texts.append(" ".join(changed))
    index = NearDuplicateIndex(0.8, 5)
    kept = [text for text in texts if index.add(text)]
    sets = [shingles(text, 5) for text in kept]
    pairs = [jaccard(sets[i], sets[j]) for i in range(len(sets)) for j in range(i)]
    assert max(pairs) < 0.8
    # One changed word of 80 touches 5 of 76 shingles: 71 / 81 = 0.88, a near-duplicate; twelve never are.
    assert 60 * 2 <= len(kept) < 60 * 6
