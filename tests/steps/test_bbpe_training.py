"""The training engine of BBPE: exactly BPE's merges, cut by exactly their counts, the same every time."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import regex

from steps.contract import StepError
from steps.text.bbpe import APOSTROPHE_PATTERN, LLAMA_3_PATTERN, SPECIAL_TOKENS, encode_as_text, train_bbpe
from steps.text.bbpe_training import (
    MOST_TRAINING_BYTES,
    PIECE_CHARACTERS,
    RUN_CHARACTERS,
    LearntTokens,
    Reading,
    count_frequent,
    in_pieces,
    pieces_of,
    train_merges,
)
from steps.text.byte_characters import byte_of_character
from steps.text.reading import read_records

pytest.importorskip("rustbpe", reason="no package rustbpe")

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "steps" / "sample_data" / "corpus.jsonl"
TEXTS = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
PATTERNS = [pytest.param(LLAMA_3_PATTERN, id="llama-3"), pytest.param(APOSTROPHE_PATTERN, id="apostrophe")]


def slow_training(texts: list[str], size: int, min_frequency: int, pattern: str) -> list[tuple[bytes, bytes]]:
    """BPE by its definition: the most frequent pair first, of equal ones that of lower ids, all counted anew."""
    words = Counter(found.encode() for text in texts for found in regex.findall(pattern, text))
    tokens = [bytes([byte]) for byte in range(256)]
    split = {word: tuple(word) for word in words}
    merges: list[tuple[bytes, bytes]] = []
    while len(tokens) < size:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, ids in split.items():
            for pair in itertools.pairwise(ids):
                pairs[pair] += words[word]
        if not pairs or max(pairs.values()) < min_frequency:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for word, ids in split.items():
            split[word] = merged(ids, best, len(tokens))
        merges.append((tokens[best[0]], tokens[best[1]]))
        tokens.append(tokens[best[0]] + tokens[best[1]])
    return merges


def merged(ids: tuple[int, ...], pair: tuple[int, int], new: int) -> tuple[int, ...]:
    out: list[int] = []
    place = 0
    while place < len(ids):
        if ids[place : place + 2] == pair:
            out.append(new)
            place += 2
        else:
            out.append(ids[place])
            place += 1
    return tuple(out)


def as_bytes(spelling: str) -> bytes:
    return bytes(byte_of_character()[character] for character in spelling)


def few_letters(seed: int) -> list[str]:
    """Texts of few letters: the same letters over and over, where pairs overlap and many counts are equal."""
    numbers = random.Random(seed)
    return ["".join(numbers.choices("aab ə'1", k=numbers.randrange(60))) for _ in range(12)]


@pytest.mark.parametrize("min_frequency", [1, 2, 3, 7])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_merges_are_those_of_the_definition(pattern: str, min_frequency: int) -> None:
    for texts in [few_letters(1), few_letters(2), few_letters(3), ["aaaa aaaaaa aaa" * 3], TEXTS[:2], [""], []]:
        for size in (256, 270, 420):
            vocabulary, merges = train_merges(texts, size, min_frequency, pattern)
            expected = slow_training(texts, size, min_frequency, pattern)
            assert [(as_bytes(first), as_bytes(second)) for first, second in merges] == expected
            assert list(vocabulary) == [*byte_of_character(), *(first + second for first, second in merges)]
            assert list(vocabulary.values()) == list(range(len(vocabulary)))


def test_each_pair_is_what_the_merges_before_make_of_a_token() -> None:
    vocabulary, merges = train_merges(TEXTS, 6_000, 1, LLAMA_3_PATTERN)
    learnt = LearntTokens(
        [bytes([byte]) for byte in range(256)] + [as_bytes(spelling) for spelling in vocabulary][256:]
    )
    assert len(learnt.tokens) == 6_000
    for token, (first, second) in zip(learnt.tokens[256:], merges, strict=True):
        assert learnt.segment(token, learnt.ranks[token]) == [as_bytes(first), as_bytes(second)]


def test_what_is_not_kept_in_memory_is_read_again() -> None:
    vocabulary, _ = train_merges(TEXTS, 60_000, 1, LLAMA_3_PATTERN)
    learnt = LearntTokens(
        [bytes([byte]) for byte in range(256)] + [as_bytes(spelling) for spelling in vocabulary][256:]
    )
    for min_frequency in (2, 40):
        remain = len(train_merges(TEXTS, 60_000, min_frequency, LLAMA_3_PATTERN)[0])
        assert 256 < remain < len(vocabulary)
        for size in (remain - 1, remain, remain + 1, len(vocabulary)):
            first = LearntTokens(learnt.tokens[:size])
            for kept_characters in (0, 5_000, 10**9):
                read = Reading(TEXTS, kept_characters)
                assert list(read) == list(in_pieces(TEXTS))
                assert sum(map(len, read.kept)) <= kept_characters
                assert count_frequent(first, read, min_frequency, LLAMA_3_PATTERN) == min(size, remain)


def run_python(code: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


TRAIN = f"""
import hashlib, json
from steps.text.bbpe import train_bbpe
texts = [json.loads(line)["text"] for line in open({str(SAMPLE)!r}, encoding="utf-8")]
for _ in range(2):
    tokenizer = train_bbpe(texts, 4_096, 2)
    print(hashlib.sha256(tokenizer.to_str().encode()).hexdigest(), tokenizer.get_vocab_size())
"""


def test_the_same_bytes_whatever_the_threads_and_the_hash_seed() -> None:
    printed = [
        run_python(TRAIN, RAYON_NUM_THREADS=threads, PYTHONHASHSEED=seed).stdout.split("\n")[:2]
        for threads, seed in [("1", "1"), ("2", "2")]
    ]
    assert len({line for lines in printed for line in lines}) == 1


def test_without_rustbpe_tokenizers_trains_and_says_so_once() -> None:
    done = run_python(f"import sys\nsys.modules['rustbpe'] = None\n{TRAIN}\nprint(tokenizer.to_str())")
    assert done.stderr.count("warning: slow-tokenizer-training: tokenizers' BpeTrainer trains instead of rustbpe") == 1
    theirs = set(json.loads(done.stdout.split("\n")[2])["model"]["vocab"])
    ours = set(json.loads(train_bbpe(TEXTS, 4_096, 2).to_str())["model"]["vocab"])
    assert len(theirs) == len(ours) == 4_096 - 256
    # Pairs that occur equally often, at the end of the list.
    assert len(ours - theirs) <= 8


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pieces_end_where_pretokens_do(pattern: str) -> None:
    numbers = random.Random(7)
    letters = [
        "salam",
        "Bakı'da",
        "’lı",
        " ",
        "  ",
        "\n",
        "\n\n",
        " \n",
        "\t",
        ". ",
        ".\n",
        "12345",
        "ខ្មែរ",
        "हिन्दी",
        "_",
        "½",
        "。",
    ]
    texts = [*TEXTS, *("".join(numbers.choices(letters, k=9_000)) for _ in range(4))]
    for text in texts:
        pieces = list(pieces_of(text))
        assert "".join(pieces) == text
        assert all(len(piece) <= PIECE_CHARACTERS + RUN_CHARACTERS for piece in pieces)
        whole = regex.findall(pattern, text)
        assert [pretoken for piece in pieces for pretoken in regex.findall(pattern, piece)] == whole
    assert any(len(list(pieces_of(text))) > 2 for text in texts)


def test_runs_without_an_end_are_cut() -> None:
    for run in ("a" * 200_000, " " * 200_000, "\n" * 200_000, "=" * 200_000, "\0" * 200_000):
        pieces = list(pieces_of(run))
        assert "".join(pieces) == run
        assert max(map(len, pieces)) <= PIECE_CHARACTERS + RUN_CHARACTERS
        assert max(len(pretoken) for piece in pieces for pretoken in regex.findall(LLAMA_3_PATTERN, piece)) <= 512
        # Millions of spaces in one text end rustbpe's pattern in a stack overflow.
        train_merges([run + "Bakı"], 300, 2, LLAMA_3_PATTERN)


def test_more_text_than_32_bits_count_is_refused() -> None:
    assert MOST_TRAINING_BYTES == 2**31 - 1
    assert list(in_pieces(["ə" * 50], 100)) == ["ə" * 50]
    with pytest.raises(StepError, match=r"more than 100 bytes; limit what a trainer counts in 32 bits\. Lower"):
        list(in_pieces(["ə" * 50, "a"], 100))


def test_texts_that_can_be_read_only_once_are_refused() -> None:
    with pytest.raises(TypeError, match="a function that begins them anew"):
        train_bbpe(iter(TEXTS), 1_024, 2)
    assert train_bbpe(lambda: iter(TEXTS), 1_024, 2).to_str() == train_bbpe(TEXTS, 1_024, 2).to_str()


def test_nul_bytes_and_half_surrogates_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "raw \0"}\n{"text": "spelt \\u0000 Bak\xc4\xb1"}\n{"text": "half \\ud83d"}\n')
    records = list(read_records(path, "text"))
    assert [record.fault for record in records] == ["NUL bytes", None, "invalid Unicode"]
    texts = [record.text for record in records if record.text is not None] * 2
    tokenizer = train_bbpe(texts, 1_024, 2)
    assert tokenizer.decode(tokenizer.encode(texts[0]).ids[1:]) == texts[0]
    with pytest.raises(StepError, match="half of a surrogate pair at character 2 of a document"):
        train_bbpe(["ab\ud83d"], 1_024, 2)


def test_spelt_special_tokens_stay_text() -> None:
    texts = [f"In a chat {token} ends a turn, {token} as the page says." for token in SPECIAL_TOKENS[:12]] * 3
    tokenizer = train_bbpe(texts, 1_024, 2)
    for encoding, text in zip(encode_as_text(tokenizer, texts), texts, strict=True):
        assert max(encoding.ids) < tokenizer.get_vocab_size() - len(SPECIAL_TOKENS)
        assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
