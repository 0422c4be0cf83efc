"""PrepareCorpus run as the step it is: counts, splits, order of input, planted duplicates."""

import json
import random
from pathlib import Path

import pytest

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, content_digest, read_seal, run_step
from steps.prepare_corpus import FOLDERS, prepare_corpus
from steps.text.corpus import read_findings, read_split, read_summary
from steps.text.deduplication import jaccard, shingles

SHARES = ["--validation_share=0.2", "--test_share=0.2", "--train_shards=2"]


def documents(count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    words = [f"kəlmə{number}" for number in range(500)]
    return [" ".join(generator.choices(words, k=60)) for _ in range(count)]


def write_jsonl(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), "utf-8")
    return path


def run(corpus: Path, output: Path, *more: str) -> int:
    arguments = [f"--corpus={corpus}", f"--output={output}", *SHARES, *more]
    return run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS, arguments=arguments)


def test_splits_and_seal(tmp_path: Path) -> None:
    texts = documents(60)
    assert run(write_jsonl(tmp_path / "a.jsonl", texts), tmp_path / "out") == EXIT_DONE
    manifest = read_seal(tmp_path / "out")
    summary = read_summary(tmp_path / "out")
    assert manifest.metrics["documents"] == 60 == sum(split.documents for split in summary.splits.values())
    found = [text for split in ("train", "validation", "test") for text in read_split(tmp_path / "out", split)]
    assert sorted(found) == sorted(texts)
    assert summary.splits["train"].bytes == sum(len(t.encode()) for t in read_split(tmp_path / "out", "train"))


def test_order_and_form_of_the_input_leave_no_trace(tmp_path: Path) -> None:
    texts = documents(50)
    write_jsonl(tmp_path / "a.jsonl", texts)
    shuffled = list(reversed(texts))
    write_jsonl(tmp_path / "b" / "2.jsonl", shuffled[:20])
    (tmp_path / "b" / "1.txt").write_text("\n\n".join(shuffled[20:]), "utf-8")
    assert run(tmp_path / "a.jsonl", tmp_path / "one") == run(tmp_path / "b", tmp_path / "two") == EXIT_DONE
    assert content_digest(tmp_path / "one") == content_digest(tmp_path / "two")


def test_a_document_stays_in_its_split_when_the_corpus_grows(tmp_path: Path) -> None:
    texts = documents(80)
    run(write_jsonl(tmp_path / "a.jsonl", texts[:50]), tmp_path / "small")
    run(write_jsonl(tmp_path / "b.jsonl", texts), tmp_path / "large")
    for split in ("train", "validation", "test"):
        assert set(read_split(tmp_path / "small", split)) <= set(read_split(tmp_path / "large", split))


def test_planted_near_duplicates_never_straddle_train_and_test(tmp_path: Path) -> None:
    texts = documents(80)
    copies = [text + " son" for text in texts] + [text.upper() for text in texts[:20]]
    run(write_jsonl(tmp_path / "a.jsonl", [*texts, *texts[:30], *copies]), tmp_path / "out")
    summary = read_summary(tmp_path / "out")
    assert summary.sources["corpus"].dropped == {"exact duplicate": 30, "near duplicate": 100}
    train = [shingles(text, 5) for text in read_split(tmp_path / "out", "train")]
    test = [shingles(text, 5) for text in read_split(tmp_path / "out", "test")]
    assert max(jaccard(one, other) for one in train for other in test) < 0.8


def test_extra_heldout_is_kept_out_of_training(tmp_path: Path) -> None:
    texts = documents(60)
    corpus = write_jsonl(tmp_path / "a.jsonl", texts)
    extra = write_jsonl(tmp_path / "extra.jsonl", [*texts[:10], *documents(5, seed=9), texts[0], "qısa"])
    assert run(corpus, tmp_path / "out", f"--extra_heldout={extra}") == EXIT_DONE
    assert len(read_split(tmp_path / "out", "extra_heldout")) == 15
    sources = read_summary(tmp_path / "out").sources
    assert list(sources) == ["corpus", "extra_heldout"]
    assert (sources["corpus"].read, sources["corpus"].dropped) == (60, {"near duplicate": 10})
    held = sources["extra_heldout"]
    assert (held.read, held.dropped) == (17, {"exact duplicate": 1, "too short": 1})
    assert not set(texts[:10]) & set(read_split(tmp_path / "out", "train"))


def test_source_corpus_is_split_like_the_corpus(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", documents(60))
    source = write_jsonl(tmp_path / "s.jsonl", [*documents(60, seed=5), "short"])
    assert run(corpus, tmp_path / "out", f"--source_corpus={source}") == EXIT_DONE
    texts = {name: read_split(tmp_path / "out", f"source_{name}") for name in ("train", "validation", "test")}
    assert 0 < len(texts["test"]) < 30
    assert len(texts["train"]) > 30
    assert sorted(text for split in texts.values() for text in split) == sorted(documents(60, seed=5))
    assert not set(read_split(tmp_path / "out", "train")) & set(documents(60, seed=5))
    source_summary = read_summary(tmp_path / "out").sources["source_corpus"]
    assert (source_summary.read, source_summary.dropped) == (61, {"too short": 1})
    assert read_seal(tmp_path / "out").metrics["dropped"] == 0


def test_a_passage_held_out_is_looked_for_in_the_source_corpus_too(tmp_path: Path) -> None:
    corpus = documents(200)
    run(write_jsonl(tmp_path / "a.jsonl", corpus), tmp_path / "alone")
    held_out = read_split(tmp_path / "alone", "test")
    assert len(held_out) > 3
    source = [f"{text} {' '.join(documents(4, seed=50 + number))}" for number, text in enumerate(held_out)]
    source = write_jsonl(tmp_path / "s.jsonl", [*source, *documents(60, seed=5)])
    assert run(tmp_path / "a.jsonl", tmp_path / "out", f"--source_corpus={source}") == EXIT_DONE
    finding = read_findings(tmp_path / "out").sources["corpus"].findings["heldout-in-training"]
    assert finding.documents > 0.7 * len(held_out)
    assert finding.warned


def test_a_source_corpus_too_short_to_train_on_is_still_measured(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", documents(60))
    source = write_jsonl(tmp_path / "s.jsonl", documents(3, seed=5))
    shares = ("--test_share=0.49", "--validation_share=0.49")
    assert run(corpus, tmp_path / "out", f"--source_corpus={source}", *shares) == EXIT_DONE
    assert len(read_split(tmp_path / "out", "source_test")) > 0
    assert read_split(tmp_path / "out", "source_train") == []


def test_the_most_shards_can_be_open_at_once(tmp_path: Path) -> None:
    corpus = write_jsonl(tmp_path / "a.jsonl", documents(40))
    assert run(corpus, tmp_path / "out", "--train_shards=512") == EXIT_DONE
    assert len(read_summary(tmp_path / "out").splits["train"].shards) == 512
    assert run(corpus, tmp_path / "more", "--train_shards=513") == EXIT_USER_ERROR


def test_homoglyphs_are_mapped_and_counted(tmp_path: Path) -> None:
    texts = documents(40)
    texts[0] = texts[0].replace("ə", "ә")
    assert run(write_jsonl(tmp_path / "a.jsonl", texts), tmp_path / "out") == EXIT_DONE
    assert read_summary(tmp_path / "out").sources["corpus"].homoglyphs_repaired == 120  # kəlmə has two ə
    assert documents(40)[0] in [
        text for split in ("train", "validation", "test") for text in read_split(tmp_path / "out", split)
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no documents"),
        (
            b"not json\n" * 9 + b'{"text": "a long enough document here"}\n',
            "9 of 10 lines unreadable, first: a.jsonl line 1",
        ),
        (b'{"text": "one document that is long enough"}\n', "among 1"),
    ],
)
def test_bad_inputs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, content: bytes, words: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    assert run(tmp_path / "a.jsonl", tmp_path / "out") == EXIT_USER_ERROR
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_nul_bytes_and_lone_surrogates(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Spelt in JSON, NUL is left out of its document and half a surrogate pair is a fault; as bytes both are faults."""
    texts = documents(40)
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() for text in texts[:37]]
    lines += [
        rb'{"text": "' + texts[37].encode() + rb' nul\u0000here"}',
        rb'{"text": "' + texts[38].encode() + rb' half \ud800"}',
        rb'{"text": "' + texts[39].encode() + rb' whole \ud83d\ude00"}',
        b'{"text": "a document with a raw \0 byte in it"}',
        b'{"text": "a document with half a pair as bytes \xed\xa0\x80"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    assert run(tmp_path / "a.jsonl", tmp_path / "refused") == EXIT_USER_ERROR
    error = capsys.readouterr().err
    assert "3 of 42 lines unreadable, first: a.jsonl line 39: invalid Unicode; limit a share of 0.01" in error
    assert error.count("\n") == 1
    assert run(tmp_path / "a.jsonl", tmp_path / "out", "--max_bad_line_share=0.1") == EXIT_DONE
    found = [text for split in ("train", "validation", "test") for text in read_split(tmp_path / "out", split)]
    assert sorted(found) == sorted([*texts[:37], f"{texts[37]} nulhere", f"{texts[39]} whole \U0001f600"])
    faults = {fault.fault for fault in read_findings(tmp_path / "out").sources["corpus"].faults}
    assert faults == {"invalid Unicode", "NUL bytes", "invalid UTF-8"}
