"""`make bench`: training 32,000 tokens beside Hugging Face tokenizers' BpeTrainer, on the same text in the same run.

    python tests/bench/train_beside_tokenizers.py [FOLDER] [--size 32000] [--runs 5] [--threads 2]

FOLDER holds .jsonl files with documents in their field `text`; without it LANGADAPT_REAL_TEXT names one, and without
that the sample is trained on. All of it is trained on but az_heldout_wiki.jsonl, on which tokens a word are counted;
where that file is not, every tenth document is held out instead.

Each run is a process of its own with the same number of threads; ours and theirs take turns. What is timed begins with
the texts in memory and ends at the whole tokenizer; imports are left out. Theirs is the configuration that ours had:
the same pattern, bytes and least frequency, and texts as they are. Seconds are medians of the wall clock's, so that
only a quiet machine gives good figures; the ratio bears some noise, since both suffer from it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from steps.contract import peak_memory_bytes
from steps.text.bbpe import (
    SPECIAL_TOKENS,
    assemble,
    encode_as_text,
    learnt_tokens,
    llama_3_pre_tokenizer,
    train_bbpe,
)

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data"
SAMPLE_FILE, HELDOUT_FILE = "corpus.jsonl", "az_heldout_wiki.jsonl"
MIN_FREQUENCY = 2
LEAST_RATIO, LARGEST_DIFFERENCE = 2.0, 0.002


def training_files(folder: Path) -> list[Path]:
    """The files that are trained on. Of the sample's folder only the corpus is running text."""
    files = [folder / SAMPLE_FILE] if folder == SAMPLE else sorted(folder.glob("*.jsonl"))
    return [path for path in files if path.name != HELDOUT_FILE]


def texts_of(files: list[Path]) -> Iterator[str]:
    """The documents, one at a time from the disk; lines without a text, such as questions and answers, are none."""
    for path in files:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if isinstance(text := json.loads(line).get("text"), str):
                    yield text


def training_texts(folder: Path) -> Iterator[str]:
    """The documents to train on: those that are not measured on, which another file may hold too."""
    heldout = set(heldout_texts(folder))
    return (text for text in texts_of(training_files(folder)) if text not in heldout)


def heldout_texts(folder: Path) -> list[str]:
    """The documents to measure on."""
    if (folder / HELDOUT_FILE).is_file():
        return list(texts_of([folder / HELDOUT_FILE]))
    return list(texts_of(training_files(folder)))[::10]


def train_by_tokenizers(texts: list[str], size: int) -> Tokenizer:
    """Tokenizers' own trainer around the same configuration."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = llama_3_pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL_TOKENS), min_frequency=MIN_FREQUENCY, special_tokens=[], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return assemble(model["vocab"], model["merges"])


def train_by_us(texts: list[str], size: int) -> Tokenizer:
    """What TrainTokenizer does."""
    return train_bbpe(texts, size, MIN_FREQUENCY)


TRAINERS = {"ours": train_by_us, "tokenizers": train_by_tokenizers}


def train(name: str, folder: Path, size: int, output: Path) -> None:
    """One run, in this process: writes the tokenizer and prints its seconds and peak memory as JSON.

    The texts are read before the clock starts, as reading them takes both the same.
    """
    texts = list(training_texts(folder))
    began = time.perf_counter()
    tokenizer = TRAINERS[name](texts, size)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "bytes": peak_memory_bytes()}))
    tokenizer.save(str(output))


def run(name: str, folder: Path, size: int, threads: int, output: Path) -> dict[str, float]:
    """One run in a fresh process: {"seconds", "bytes"}."""
    command = [sys.executable, __file__, str(folder), f"--size={size}", f"--train={name}", f"--output={output}"]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def tokens_per_word(tokenizer: Tokenizer, texts: list[str]) -> float:
    """Tokens of the texts by their words, which whitespace parts."""
    tokens = sum(len(encoding.ids) for encoding in encode_as_text(tokenizer, texts))
    return tokens / sum(len(text.split()) for text in texts)


def compare(folder: Path, size: int, runs: int, threads: int) -> bool:
    """Prints the comparison; True where both bars hold."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in TRAINERS}
    fertility: dict[str, float] = {}
    texts, least_learnt = heldout_texts(folder), size
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(runs):
            for name in TRAINERS:
                found[name].append(run(name, folder, size, threads, Path(temporary) / name))
        for name in TRAINERS:
            tokenizer = Tokenizer.from_file(str(Path(temporary) / name))
            fertility[name] = tokens_per_word(tokenizer, texts)
            seconds = statistics.median(one["seconds"] for one in found[name])
            memory = statistics.median(one["bytes"] for one in found[name])
            print(
                f"{name}: {seconds:.2f} s, peak memory {memory / 1e6:,.0f} MB, {learnt_tokens(tokenizer):,} tokens, "
                f"{fertility[name]:.4f} tokens a word on {len(texts):,} held-out documents"
            )
            least_learnt = min(least_learnt, learnt_tokens(tokenizer))
    ours, theirs = (statistics.median(one["seconds"] for one in found[name]) for name in TRAINERS)
    difference = abs(fertility["ours"] / fertility["tokenizers"] - 1)
    print(
        f"ratio of seconds {theirs / ours:.2f} (at least {LEAST_RATIO:g}); "
        f"tokens a word differ by {difference:.3%} (at most {LARGEST_DIFFERENCE:.1%})"
    )
    if least_learnt < size:
        print(f"the text is too little for {size:,} tokens: the seconds are not judged")
    return (least_learnt < size or theirs / ours >= LEAST_RATIO) and difference <= LARGEST_DIFFERENCE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(os.environ.get("LANGADAPT_REAL_TEXT") or SAMPLE))
    parser.add_argument("--size", type=int, default=32_000, help="tokens, special ones included")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each")
    parser.add_argument("--train", choices=list(TRAINERS), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train, given.folder, given.size, given.output)
        return 0
    if not training_files(given.folder):
        parser.error(f"no .jsonl file in {given.folder}")
    sizes = [len(text.encode()) for text in training_texts(given.folder)]
    print(
        f"training {given.size:,} tokens on {len(sizes):,} documents, {sum(sizes):,} bytes of "
        f"{', '.join(path.name for path in training_files(given.folder))}; {given.threads} threads, medians of "
        f"{given.runs} runs, each a fresh process",
        flush=True,
    )
    return 0 if compare(given.folder, given.size, given.runs, given.threads) else 1


if __name__ == "__main__":
    sys.exit(main())
