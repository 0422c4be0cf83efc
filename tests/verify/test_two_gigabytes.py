"""Corpora of gigabytes: peak memory and speed of the steps that stream them, each in a process of its own.

LANGADAPT_CORPUS_BYTES sets the size (2e9 without it, with which the proof takes about an hour on two cores);
LANGADAPT_LARGE_FOLDER a folder on a disk with room for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from large_corpus import large_corpus
from workplace import ROOT, SAMPLE, prove

from steps.contract import EXIT_DONE
from steps.make_sample import cached_sample, default_cache
from steps.text.corpus import read_split, read_summary

pytestmark = pytest.mark.verify

CORPUS_BYTES = int(float(os.environ.get("LANGADAPT_CORPUS_BYTES", "2e9")))
MAX_PEAK_BYTES = 1.5e9
# The corpus, its spool, the keys of its documents, the prepared shards, the blocks.
DISK_FACTOR = 5
# The peak of a child is at first that of the process that starts it: the one in between is small.
STARTER = (
    "import json, resource, subprocess, sys, time\n"
    "began = time.monotonic()\n"
    "code = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode\n"
    "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "unit = 1 if sys.platform == 'darwin' else 1024\n"
    "seconds = [time.monotonic() - began, used.ru_utime + used.ru_stime]\n"
    "print(json.dumps([code, used.ru_maxrss * unit, *seconds]))\n"
)


class Used(NamedTuple):
    """What a step took: bytes of resident memory, seconds of wall clock and of processors."""

    exit_code: int
    peak_bytes: int
    seconds: float
    cpu_seconds: float


def run_step_alone(step: str, *arguments: str) -> tuple[Used, str]:
    """Runs `python -m steps.STEP`; what it used, and what it printed."""
    command = [sys.executable, "-c", STARTER, sys.executable, "-m", f"steps.{step}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return Used(*json.loads(done.stdout)), done.stderr


def prove_step(step: str, size: int, *arguments: str) -> None:
    used, printed = run_step_alone(step, *arguments)
    assert used.exit_code == EXIT_DONE, printed[-2_000:]
    claim = (
        f"{step} on {size / 1e9:.2f} GB, {used.seconds:,.0f} s, {used.cpu_seconds:,.0f} s of processors, "
        f"{size / 1e6 / used.cpu_seconds:.1f} MB a second of them: peak memory, GB"
    )
    prove(claim, round(used.peak_bytes / 1e9, 3), "1.5", used.peak_bytes <= MAX_PEAK_BYTES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with room for all of it, emptied afterwards."""
    place = os.environ.get("LANGADAPT_LARGE_FOLDER")
    made = Path(place) / "two-gigabytes" if place else tmp_path_factory.mktemp("two_gigabytes")
    made.mkdir(parents=True, exist_ok=True)
    needed, free = DISK_FACTOR * CORPUS_BYTES, shutil.disk_usage(made).free
    if free < needed:
        reason = f"{free / 1e9:.1f} GB free in {made} of {needed / 1e9:.1f} GB that the proof needs"
        print(f"\nskipped: {reason}")
        pytest.skip(reason)
    yield made
    shutil.rmtree(made)


def test_the_three_steps_on_a_large_corpus(folder: Path) -> None:
    corpus = folder / "corpus.jsonl"
    began = time.monotonic()
    documents = large_corpus(corpus, CORPUS_BYTES)
    size, seconds = corpus.stat().st_size, time.monotonic() - began
    print(f"\nmade {size / 1e9:.2f} GB, {documents:,} documents, {size / 1e6 / seconds:.0f} MB/s", flush=True)
    prepared, tokenizer = folder / "prepared", folder / "tokenizer"
    prove_step("prepare_corpus", size, f"--corpus={corpus}", f"--output={prepared}")
    assert not (prepared / ".spool").exists()
    corpus.unlink()
    text_bytes = read_summary(prepared).splits["train"].bytes
    base = cached_sample(default_cache()) / "base_model"
    # The sample's model is so small that such a vocabulary is most of it.
    sizes = ["--vocabulary_sizes=[32768]", "--max_vocabulary_parameters_share=1"]
    prove_step(
        "train_tokenizer", text_bytes, f"--corpus={prepared}", f"--base_model={base}", *sizes, f"--output={tokenizer}"
    )
    every = ['--kinds=["bbpe","bbpe-apostrophe","unigram","unigram-suffix","extended","replaced"]']
    every += ['--suffixes=["azerbaijani"]', f"--output={folder / 'every-kind'}"]
    print("\nTrainTokenizer with every kind:")
    prove_step("train_tokenizer", text_bytes, f"--corpus={prepared}", f"--base_model={base}", *sizes, *every)
    blocks = folder / "blocks"
    prove_step("tokenize_corpus", text_bytes, f"--corpus={prepared}", f"--tokenizer={tokenizer}", f"--output={blocks}")


# A JSON line, one with a character that takes four bytes in memory, and paragraphs of short and of long lines.
LONG_DOCUMENTS = {
    "line.jsonl": ("{}", " "),
    "emoji.jsonl": ("{} \U0001f600", " "),
    "short-lines.txt": ("{}", "\n"),
    "long-line.txt": ("{}", " "),
}


@pytest.mark.parametrize("name", list(LONG_DOCUMENTS))
def test_a_document_of_100_megabytes(folder: Path, name: str) -> None:
    form, separator = LONG_DOCUMENTS[name]
    with (SAMPLE / "corpus.jsonl").open(encoding="utf-8") as stream:
        others = [json.loads(line)["text"] for line in stream]
    words = " ".join(others).split()
    numbered = (f"{word}{number}" for number in range(10**9) for word in words)
    parts, size = [], 0
    while size < 100_000_000:
        parts.append(next(numbered))
        size += len(parts[-1].encode()) + 1
    long = form.format(separator.join(parts))
    texts = [*(text.replace("\n\n", "\n") for text in others), long]
    if name.endswith(".jsonl"):
        content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    else:
        content = "\n\n".join(texts)
    (folder / name).write_text(content, "utf-8")
    del content, texts
    output = folder / "long"
    used, printed = run_step_alone("prepare_corpus", f"--corpus={folder / name}", f"--output={output}")
    assert used.exit_code == EXIT_DONE, printed[-2_000:]
    pieces = [text for split in ("train", "validation", "test") for text in read_split(output, split)]
    assert sum(len(text.encode()) for text in pieces) > 0.99 * size
    assert max(len(text.encode()) for text in pieces) <= 1_000_000
    shutil.rmtree(output)
    claim = f"PrepareCorpus, one document of 100 MB in {name}, {used.cpu_seconds:.0f} s of processors: peak memory, GB"
    prove(claim, round(used.peak_bytes / 1e9, 3), "1.5", used.peak_bytes <= MAX_PEAK_BYTES)
