"""gigatoken beside tokenizers: the same ids, or none of gigatoken's."""

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest
from encoded_shards import assert_same_ids, random_text, write_shard
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.contract import StepFolders
from steps.text.bbpe import APOSTROPHE_PATTERN, SPECIAL_TOKENS, load_fast_tokenizer, shrink, train_bbpe
from steps.text.fast_encoding import HARD_TEXTS, CorpusEncoder, IdsDifferError
from steps.text.packing import PackedBlocks
from steps.tokenize_corpus import tokenize_corpus
from steps.train_tokenizer import write_tokenizer_folder

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Sentences of the sample, 200 of them."""
    texts = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
    return [part + "." for text in texts for part in text.split(". ")][:200]


@pytest.fixture(scope="module")
def tokenizer(documents: list[str]) -> Tokenizer:
    return train_bbpe(documents, 2_048, 2)


@pytest.mark.parametrize("vocabulary_size", [512, 1_024, 2_048])
def test_the_same_ids(tmp_path: Path, tokenizer: Tokenizer, documents: list[str], vocabulary_size: int) -> None:
    """Of the sample, of what is hard to split, of random code points; and the text comes back."""
    draw = random.Random(vocabulary_size)
    texts = [*documents, *HARD_TEXTS, *SPECIAL_TOKENS, *(random_text(draw) for _ in range(1_000))]
    assert_same_ids(tmp_path, shrink(tokenizer, vocabulary_size), texts)


def test_letters_that_only_one_table_knows(tmp_path: Path, tokenizer: Tokenizer, documents: list[str]) -> None:
    """Of Unicode 15 to 17: gigatoken 0.10 takes those of 17 for letters, tokenizers 0.23 does not."""
    letters = "\u088f\u0c5c\u0cdc\u1c8a\ua7cb\ua7f1\U00010955\U00016ebf\U00018daf\U0001e6f4\U000323f8\U00032f4f"
    young = [
        f"{before}{letter}{behind}" for letter in letters for before in ("", "x ") for behind in ("'s", "'ab", "1")
    ]
    assert_same_ids(tmp_path, tokenizer, [*young, *documents[:100], "🫨", young[0], "", *documents[100:], *young])


def test_special_tokens_are_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [f"Söhbət: {token}Salam{token}{token}\n" for token in SPECIAL_TOKENS]
    encoder = CorpusEncoder(tokenizer)
    assert encoder.is_fast
    [encoded] = encoder.encode_shard(write_shard(tmp_path / "a.jsonl", texts))
    assert not {tokenizer.token_to_id(token) for token in SPECIAL_TOKENS} & set(encoded.ids.tolist())
    assert tokenizer.decode(encoded.ids.tolist(), skip_special_tokens=False) == "".join(texts)
    assert encoded.bytes == len("".join(texts).encode())


@pytest.mark.parametrize("chunk_bytes", [1, 1_000, 100_000])
def test_chunks_of_any_size_give_one_stream(
    tmp_path: Path, tokenizer: Tokenizer, documents: list[str], chunk_bytes: int
) -> None:
    shard = write_shard(tmp_path / "a.jsonl", documents[:150])
    [whole] = CorpusEncoder(tokenizer).encode_shard(shard)
    chunks = list(CorpusEncoder(tokenizer, chunk_bytes=chunk_bytes).encode_shard(shard))
    assert len(chunks) == {1: 150, 100_000: 1}.get(chunk_bytes, len(chunks))
    assert numpy.array_equal(numpy.concatenate([chunk.ids for chunk in chunks]), whole.ids)
    lengths = numpy.concatenate([numpy.diff(chunk.offsets) for chunk in chunks])
    assert numpy.array_equal(lengths, numpy.diff(whole.offsets))
    assert sum(chunk.bytes for chunk in chunks) == whole.bytes


def test_an_empty_shard_and_one_without_a_last_line_end(tmp_path: Path, tokenizer: Tokenizer) -> None:
    encoder = CorpusEncoder(tokenizer)
    assert list(encoder.encode_shard(write_shard(tmp_path / "a.jsonl", []))) == []
    shard = write_shard(tmp_path / "b.jsonl", ["Bir.", "İki."])
    shard.write_bytes(shard.read_bytes().rstrip())
    for each in (encoder, CorpusEncoder(tokenizer, fast=False)):
        assert [chunk.offsets.tolist()[-1] for chunk in each.encode_shard(shard)] == [
            len(tokenizer.encode("Bir.", add_special_tokens=False)) + len(tokenizer.encode("İki.").ids) - 1
        ]


def normalising(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()


def with_words_of_its_own(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens(["salam"])


def split_otherwise(tokenizer: Tokenizer) -> None:
    split = pre_tokenizers.Split(Regex(r"\p{L}+|\P{L}+"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def with_space_before(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def of_another_kind(tokenizer: Tokenizer) -> None:
    tokenizer.model = models.Unigram([(chr(code), -1.0) for code in range(32, 1_500)], unk_id=0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (normalising, "the tokenizer normalises text"),
        (with_words_of_its_own, "the tokenizer has added tokens that are not special, such as 'salam'"),
        (split_otherwise, "gigatoken does not take the tokenizer ("),
        (with_space_before, "gigatoken"),
        (of_another_kind, "the tokenizer is no byte-level BPE without dropout"),
    ],
)
def test_what_gigatoken_cannot_do_is_left_to_tokenizers(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture, change, reason: str
) -> None:
    changed = Tokenizer.from_str(tokenizer.to_str())
    change(changed)
    encoder = CorpusEncoder(changed)
    assert not encoder.is_fast
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: fast-encoding-off: tokenizers encodes the corpus")
    assert reason in line
    texts = [text for text in HARD_TEXTS if text] + ["salam dünya cafe\u0301"]
    shard = write_shard(tmp_path / "a.jsonl", texts)
    wanted = [changed.encode(text, add_special_tokens=False).ids for text in texts if "<|" not in text]
    [encoded] = encoder.encode_shard(shard)
    found = [encoded.ids[a:b].tolist() for a, b in zip(encoded.offsets, encoded.offsets[1:], strict=False)]
    assert [ids for ids, text in zip(found, texts, strict=True) if "<|" not in text] == wanted


def test_without_gigatoken(tokenizer: Tokenizer, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert not CorpusEncoder(tokenizer).is_fast
    assert "gigatoken cannot be imported" in capsys.readouterr().err


def test_the_pattern_for_apostrophes(tmp_path: Path, documents: list[str], capsys: pytest.CaptureFixture) -> None:
    """gigatoken knows patterns by their spelling, and not this one."""
    encoder = CorpusEncoder(train_bbpe(documents[:50], 512, 2, APOSTROPHE_PATTERN))
    assert encoder.is_fast or "gigatoken does not take the tokenizer" in capsys.readouterr().err


# gigatoken reads the first of two equal names, Python the last; and it passes over what it cannot read.
BAD_LINES = {
    "other ids for": '{"id": "0", "text": "Bir.", "text": "İki."}\n',
    "documents in": '{"id": "0", "text": "\\ud83d"}\n',
}


@pytest.mark.parametrize(
    ("reason", "place"), [("other ids for", 0), ("other ids for", 63), ("other ids for", 200), ("documents in", 99)]
)
def test_a_difference_in_the_corpus_is_noticed(
    tmp_path: Path, tokenizer: Tokenizer, documents: list[str], reason: str, place: int
) -> None:
    shard = write_shard(tmp_path / "a.jsonl", documents[:200])
    lines = shard.read_text("utf-8").splitlines(keepends=True)
    shard.write_text("".join([*lines[:place], BAD_LINES[reason], *lines[place:]]), "utf-8")
    with pytest.raises(IdsDifferError, match=reason):
        list(CorpusEncoder(tokenizer).encode_shard(shard))


def write_corpus(folder: Path, shards: Sequence[Sequence[str]]) -> None:
    names = [f"train/part-{number:05d}.jsonl" for number in range(len(shards))]
    (folder / "train").mkdir(parents=True)
    (folder / "validation").mkdir()
    for name, texts in zip(names, shards, strict=True):
        write_shard(folder / name, texts)
    write_shard(folder / "validation" / "part-00000.jsonl", shards[0][:5])
    totals = {"documents": 1, "words": 1, "bytes": 1}
    splits = {"train": {"shards": names, **totals}, "validation": {"shards": ["validation/part-00000.jsonl"], **totals}}
    (folder / "corpus.json").write_text(json.dumps({"splits": splits, "sources": {}}))


def test_a_late_difference_encodes_all_again(
    tmp_path: Path, tokenizer: Tokenizer, documents: list[str], capsys: pytest.CaptureFixture
) -> None:
    """The blocks are those of tokenizers alone, also of the shards that had been written before."""
    write_corpus(tmp_path / "corpus", [documents[:100], documents[100:200]])
    shard = tmp_path / "corpus" / "train" / "part-00001.jsonl"
    shard.write_text(BAD_LINES["other ids for"] + shard.read_text("utf-8"), "utf-8")
    write_tokenizer_folder(tokenizer, tmp_path / "trained" / "tokenizer", 256)
    inputs = {"corpus": tmp_path / "corpus", "tokenizer": tmp_path / "trained"}
    metrics = tokenize_corpus(TokenizeCorpusConfig(block_tokens=64), StepFolders(tmp_path / "out", inputs=inputs))
    assert capsys.readouterr().err.count("warning: fast-encoding-off") == 1
    plain = CorpusEncoder(load_fast_tokenizer(tmp_path / "trained" / "tokenizer"), fast=False)
    wanted = [plain.encode_shard(tmp_path / "corpus" / "train" / f"part-0000{part}.jsonl") for part in range(2)]
    tokens = sum(len(chunk.ids) + 2 * (len(chunk.offsets) - 1) for chunks in wanted for chunk in chunks)
    assert PackedBlocks(tmp_path / "out" / "train").tokens == tokens == metrics["train_tokens"]
