"""The tokenizer stage on real text: every kind and size, against Llama 3's real tokenizer; claim, number, limit.

Needs the real text (a folder beside the checkout, or LANGADAPT_REAL_TEXT) and the package llama-models.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from encoded_shards import random_text
from tokenizer_bases import write_base, write_llama_3_2_1b
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from workplace import ROOT, prove

from steps.schemas.fertility import FertilityReport
from steps.text.bbpe import encode_as_text, load_fast_tokenizer, train_bbpe

pytestmark = pytest.mark.verify

REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))
SIZES = "[8192,16384,32768,50048]"
EVERY_KIND = [
    f"--vocabulary_sizes={SIZES}",
    '--kinds=["bbpe","bbpe-apostrophe","unigram","unigram-suffix","extended","replaced"]',
    "--extended_tokens=[8192,16384,32768]",
    '--suffixes=["azerbaijani"]',
    "--max_vocabulary_parameters_share=0.3",
]
MOST_SECONDS = 240
LEAST_SAVING = 0.45
RANDOM_STRINGS = 100_000


def texts_of(*names: str) -> list[str]:
    """The texts of files of real text. Skips where one is missing."""
    missing = [name for name in names if not (REAL_TEXT / name).is_file()]
    if missing:
        print(f"\nnot measured: tokenizers on real text: no {missing[0]} in {REAL_TEXT}", flush=True)
        pytest.skip(f"no {missing[0]} in {REAL_TEXT}")
    return [json.loads(line)["text"] for name in names for line in (REAL_TEXT / name).read_text("utf-8").splitlines()]


def parallel(language: str) -> list[str]:
    texts_of("parallel_7_languages.jsonl")
    lines = map(json.loads, (REAL_TEXT / "parallel_7_languages.jsonl").read_text("utf-8").splitlines())
    return [line["text"] for line in lines if line["lang"] == language]


def run(step: str, *arguments: str) -> float:
    """Runs a step as a process; returns its seconds."""
    started = time.monotonic()
    finished = subprocess.run(
        [sys.executable, "-m", f"steps.{step}", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return time.monotonic() - started


def report_of(folder: Path) -> FertilityReport:
    return FertilityReport.model_validate_json((folder / "fertility.json").read_bytes())


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama_3_2_1b(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def laws(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The laws prepared, the encyclopedia held out, English as the source corpus."""
    texts_of("az_laws.jsonl", "az_heldout_wiki.jsonl")
    folder = tmp_path_factory.mktemp("laws")
    english = folder / "english.jsonl"
    english.write_text("".join(json.dumps({"text": text}) + "\n" for text in parallel("en")), "utf-8")
    run("prepare_corpus", f"--corpus={REAL_TEXT / 'az_laws.jsonl'}", f"--source_corpus={english}",
        f"--extra_heldout={REAL_TEXT / 'az_heldout_wiki.jsonl'}", f"--output={folder / 'corpus'}")  # fmt: skip
    return folder / "corpus"


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory, laws: Path, llama: Path) -> tuple[Path, float]:
    """TrainTokenizer's output on the laws with every kind, beside Llama 3, and its seconds."""
    output = tmp_path_factory.mktemp("every") / "tokenizers"
    return output, run(
        "train_tokenizer", f"--corpus={laws}", f"--base_model={llama}", f"--output={output}", *EVERY_KIND
    )


def test_every_kind_and_size_in_time(every_kind: tuple[Path, float]) -> None:
    output, seconds = every_kind
    report = report_of(output)
    print("\n" + "\n".join(report.table()) + f"\n{report.chosen}: {report.reason}")
    for name, why in report.left_out.items():
        print(f"{name}: {why}")
    kinds = {candidate.kind for candidate in report.candidates}
    complete = kinds == {"base", "bbpe", "unigram", "extended", "replaced"} and all(
        {"heldout", "extra", "source"} == candidate.texts.keys() for candidate in report.candidates
    )
    prove(f"{len(report.candidates)} candidates on the laws, sizes {SIZES}, fertility.json complete", complete, "True",
          complete)  # fmt: skip
    prove("seconds", f"{seconds:.0f}", f"{MOST_SECONDS}", seconds < MOST_SECONDS)
    errors = sum(text.round_trip_errors for candidate in report.candidates for text in candidate.texts.values())
    prove("held-out documents that a candidate does not give back", errors, "0", errors == 0)


def test_a_larger_corpus_beside_llama_3(tmp_path: Path, llama: Path) -> None:
    names = ("az_laws.jsonl", "az_web.jsonl", "az_fiction.jsonl")
    texts = texts_of(*names)
    (tmp_path / "corpus").mkdir()
    for name in names:
        (tmp_path / "corpus" / name).symlink_to(REAL_TEXT / name)
    run("prepare_corpus", f"--corpus={tmp_path / 'corpus'}", f"--extra_heldout={REAL_TEXT / 'az_heldout_wiki.jsonl'}",
        f"--output={tmp_path / 'prepared'}", "--test_share=0.01", "--validation_share=0.01")  # fmt: skip
    run("train_tokenizer", f"--corpus={tmp_path / 'prepared'}", f"--base_model={llama}",
        f"--output={tmp_path / 'tokenizers'}", "--vocabulary_sizes=[32768,100032]", "--min_frequency=1",
        "--max_vocabulary_parameters_share=0.3")  # fmt: skip
    report = report_of(tmp_path / "tokenizers")
    by_name = {candidate.name: candidate.texts["extra"] for candidate in report.candidates}
    base, ours = by_name["base"].tokens_per_word, by_name["bbpe-32768"].tokens_per_word
    figures = f"{ours:.3f} tokens a word on the encyclopedia, Llama 3 {base:.3f}"
    claim = f"bbpe-32768 of {len(texts):,} documents: {figures}; saved"
    prove(claim, f"{1 - ours / base:.1%}", f"at least {LEAST_SAVING:.0%}", 1 - ours / base >= LEAST_SAVING)
    told = report.left_out["bbpe-100032"]
    prove("100,032 tokens asked for", told, "says how many the text gives", told.endswith("tokens"))


def candidate_tokenizers(folder: Path) -> Iterator[tuple[str, Tokenizer]]:
    for path in sorted((folder / "candidates").iterdir()):
        yield path.name, load_fast_tokenizer(path)


def test_every_text_comes_back(every_kind: tuple[Path, float]) -> None:
    draw = random.Random(6)
    texts = [random_text(draw) for _ in range(RANDOM_STRINGS)]
    lines = [text for path in sorted(REAL_TEXT.glob("*.jsonl")) for text in texts_of(path.name)]
    for name, tokenizer in candidate_tokenizers(every_kind[0]):
        wrong = 0
        for documents in (texts[:50_000], texts[50_000:], lines):
            ids = [encoding.ids for encoding in encode_as_text(tokenizer, documents)]
            back = tokenizer.decode_batch(ids, skip_special_tokens=False)
            wrong += sum(one != other for one, other in zip(back, documents, strict=True))
        claim = f"{name}: of {len(texts):,} random strings and {len(lines):,} lines, not given back"
        prove(claim, wrong, "0", wrong == 0)


def test_extended_and_replaced_know_english_as_the_base_does(every_kind: tuple[Path, float], llama: Path) -> None:
    """The source corpus was nine tenths of these lines; the rest is protected by no text, only by the rule."""
    english, base = parallel("en"), load_fast_tokenizer(llama)
    of_base = [encoding.ids for encoding in encode_as_text(base, english)]
    for name, tokenizer in candidate_tokenizers(every_kind[0]):
        if name.startswith(("extended", "replaced")):
            own = [encoding.ids for encoding in encode_as_text(tokenizer, english)]
            unlike = sum(one != other for one, other in zip(own, of_base, strict=True))
            prove(f"{name}: of {len(english):,} English lines, ids unlike the base's", unlike, "0", unlike == 0)
            added = [len(one.get_added_tokens_decoder()) for one in (base, tokenizer)]
            prove(f"{name}: added tokens, base and candidate", added, "the same", added[0] == added[1])


def test_training_again_gives_the_same_bytes(
    tmp_path: Path, every_kind: tuple[Path, float], laws: Path, llama: Path
) -> None:
    run("train_tokenizer", f"--corpus={laws}", f"--base_model={llama}", f"--output={tmp_path / 'again'}", *EVERY_KIND)
    first = {path.name: path for path in (every_kind[0] / "candidates").iterdir()}
    second = {path.name: path for path in (tmp_path / "again" / "candidates").iterdir()}
    both = [name for name in first if name in second]
    files = {name: [folder[name] / "tokenizer.json" for folder in (first, second)] for name in both}
    same = [name for name, (one, other) in files.items() if one.read_bytes() == other.read_bytes()]
    claim = "tokenizer.json with the same bytes after another training"
    prove(claim, f"{len(same)} of {len(first)}", "all", len(same) == len(first) == len(second))


@pytest.mark.parametrize("language", ["tr", "fi", "ka", "km", "hi"])
def test_another_language_goes_through_the_step(tmp_path: Path, language: str) -> None:
    lines = parallel(language)
    (tmp_path / "text.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), "utf-8")
    run("prepare_corpus", f"--corpus={tmp_path / 'text.jsonl'}", f"--output={tmp_path / 'corpus'}",
        "--validation_share=0.1", "--test_share=0.1")  # fmt: skip
    base = write_base(tmp_path / "base", train_bbpe(parallel("en") + parallel("ka"), 4_096, 2))
    run("train_tokenizer", f"--corpus={tmp_path / 'corpus'}", f"--base_model={base}", f"--output={tmp_path / 'out'}",
        "--vocabulary_sizes=[1024,4096]", '--kinds=["bbpe","unigram","extended","replaced"]',
        "--extended_tokens=[1024]", "--max_vocabulary_parameters_share=1")  # fmt: skip
    report = report_of(tmp_path / "out")
    print("\n" + "\n".join([report.leads_why, *report.table()]))
    wanted = "bytes_per_token" if language == "km" else "tokens_per_word"
    prove(f"{language}: the measure that leads{'; ' + report.leads_why if report.leads_why else ''}", report.leads,
          wanted, report.leads == wanted and bool(report.leads_why) == (language == "km"))  # fmt: skip
    of = {candidate.name: candidate.texts["heldout"] for candidate in report.candidates}
    before, after = of["base"].bytes_per_token, of[report.chosen].bytes_per_token
    prove(f"{language}: bytes a token, base and {report.chosen}", f"{before:.2f}, {after:.2f}", "more", after > before)
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out" / "tokenizer")
    back = [loaded.decode(loaded(line)["input_ids"], skip_special_tokens=True) for line in lines]
    prove(f"{language}: lines that AutoTokenizer gives back", sum(map(str.__eq__, back, lines)), f"{len(lines)}",
          back == lines)  # fmt: skip
