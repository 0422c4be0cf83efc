"""`make bench`: TokenizeCorpus beside tokenizers' encode_batch_fast: same shards, same tokenizer, same part files.

    python tests/bench/encode_beside_tokenizers.py [FOLDER] [--vocabulary 32000] [--runs 5] [--large BYTES]

The text is all .jsonl of FOLDER, or of the folder that LANGADAPT_REAL_TEXT names; without either the sample's corpus.
It is laid into four shards as PrepareCorpus lays it, and a byte-level tokenizer is trained on it. Then TokenizeCorpus'
own `write_parts` goes from the shards to the part files in processes of their own, by turns with gigatoken and with
encode_batch_fast, both with as many threads. What is timed is that work alone, by the wall clock and in processor
seconds of all threads, checks against tokenizers included; what is done once a step, whatever its text, is told apart.
Each figure is the median of the runs. The part files must be the same, byte by byte.

--large takes a second row on so many bytes made from the same sentences, with ever new word forms among them: both
encoders keep what they have met, and in a text that merely repeats itself they would meet nothing new.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "steps" / "sample_data" / "corpus.jsonl"
SHARDS = 4
LOWEST_RATIO = 20.0


def run_once(corpus: Path, trained: Path, output: Path, fast: bool) -> None:
    """In a process of its own: encodes and packs once and prints what it took, as JSON."""
    began = time.perf_counter()
    from steps.configs.tokenize_corpus import TokenizeCorpusConfig
    from steps.contract import StepFolders
    from steps.text.bbpe import load_fast_tokenizer
    from steps.text.fast_encoding import CorpusEncoder
    from steps.tokenize_corpus import vocabulary_of, write_parts

    imported = time.perf_counter()
    vocabulary = vocabulary_of(trained / "tokenizer")
    threads = int(os.environ["RAYON_NUM_THREADS"])
    encoder = CorpusEncoder(load_fast_tokenizer(trained / "tokenizer"), fast=fast, threads=threads)
    assert encoder.is_fast == fast, "gigatoken does not give tokenizers' ids, see the warning"
    folders = StepFolders(output, inputs={"corpus": corpus, "tokenizer": trained})
    ready, processor = time.perf_counter(), time.process_time()
    write_parts(TokenizeCorpusConfig(), folders, encoder, vocabulary)
    done = time.perf_counter()
    figures = {
        "imports": imported - began, "loading": ready - imported, "seconds": done - ready,
        "processor_seconds": time.process_time() - processor, "peak_mb": peak_megabytes(), "fast": encoder.is_fast,
    }  # fmt: skip
    print(json.dumps(figures))


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1_024)


def read_texts(files: list[Path]) -> Iterator[str]:
    """The documents of JSON lines; a line without a text is none."""
    for file in files:
        with file.open(encoding="utf-8") as stream:
            for line in stream:
                if text := json.loads(line).get("text"):
                    yield text


def lay_out(files: list[Path], corpus: Path) -> int:
    """Writes the shards of a prepared corpus, train alone; returns the bytes of their text."""
    from steps.schemas.corpus import CorpusSummary, SplitSummary
    from steps.text.corpus import SUMMARY_NAME, SplitWriter, text_sha256

    corpus.mkdir()
    writer = SplitWriter(corpus, "train", SHARDS)
    for text in read_texts(files):
        writer.add(text_sha256(text), text)
    train = writer.close()
    splits = {"train": train, "validation": SplitSummary(shards=[], documents=0, words=0, bytes=0)}
    (corpus / SUMMARY_NAME).write_text(CorpusSummary(splits=splits, sources={}).model_dump_json())
    return train.bytes


def measure(corpus: Path, trained: Path, folder: Path, runs: int, threads: int) -> dict[bool, dict[str, float]]:
    """Medians of the runs with gigatoken (True) and with encode_batch_fast (False), which take turns."""
    threads_of_all = {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    environment = {**os.environ, **threads_of_all, "TOKENIZERS_PARALLELISM": "true", "PYTHONPATH": str(ROOT)}
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for _ in range(runs):
        for fast in found:
            output = folder / ("fast" if fast else "plain")
            command = [sys.executable, __file__, "--child", str(corpus), str(trained), str(output), str(int(fast))]
            finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found[fast].append(json.loads(finished.stdout.splitlines()[-1]))
    return {
        fast: {name: statistics.median(run[name] for run in each) for name in each[0]} for fast, each in found.items()
    }


def same_files(first: Path, second: Path) -> bool:
    names = sorted(path.relative_to(first) for path in first.rglob("part-*"))
    others = sorted(path.relative_to(second) for path in second.rglob("part-*"))
    return names == others and len(names) > 0 and all(
        filecmp.cmp(first / name, second / name, shallow=False) for name in names
    )  # fmt: skip


def compare(name: str, files: list[Path], trained: Path, folder: Path, runs: int, threads: int) -> bool:
    """Prints a row; True where the part files are the same and the ratio is high enough."""
    folder.mkdir()
    size = lay_out(files, folder / "corpus")
    found = measure(folder / "corpus", trained, folder, runs, threads)
    fast, plain = found[True], found[False]
    same = same_files(folder / "fast", folder / "plain")
    ratio = plain["seconds"] / fast["seconds"]
    print(f"{name}: {size:,} bytes of text, {SHARDS} shards, {threads} threads, medians of {runs}")
    for label, row in (("gigatoken", fast), ("encode_batch_fast", plain)):
        print(
            f"  {label}: {row['seconds']:.3f} s, {size / 1e6 / row['seconds']:.1f} MB/s "
            f"({row['processor_seconds']:.3f} processor seconds); once a step: imports {row['imports']:.2f} s, "
            f"tokenizer {row['loading']:.2f} s; peak memory {row['peak_mb']:.0f} MB"
        )
    print(
        f"  ratio {ratio:.1f} (limit {LOWEST_RATIO:g}), in processor seconds "
        f"{plain['processor_seconds'] / fast['processor_seconds']:.1f}; "
        f"part files {'byte-identical' if same else 'DIFFERENT'}",
        flush=True,
    )
    return same and ratio >= LOWEST_RATIO


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        corpus, trained, output, fast = sys.argv[2:]
        run_once(Path(corpus), Path(trained), Path(output), fast == "1")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("LANGADAPT_REAL_TEXT")
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="a folder with .jsonl")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="tokens asked for, special ones included")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each")
    parser.add_argument("--large", type=float, default=0, help="bytes of a second, made text (default: none)")
    given = parser.parse_args()
    files = sorted(Path(given.folder).glob("*.jsonl")) if given.folder else [SAMPLE]
    if not files:
        parser.error(f"no .jsonl in {given.folder}")
    from steps.text.bbpe import learnt_tokens, train_bbpe
    from steps.train_tokenizer import write_tokenizer_folder

    with tempfile.TemporaryDirectory() as place:
        trained = Path(place, "trained")
        tokenizer = train_bbpe(list(read_texts(files)), given.vocabulary, 2)
        write_tokenizer_folder(tokenizer, trained / "tokenizer", 2_048)
        print(f"{', '.join(file.name for file in files)}; a tokenizer of {learnt_tokens(tokenizer):,} tokens")
        good = compare("all of it", files, trained, Path(place, "all"), given.runs, given.threads)
        if given.large:
            sys.path.insert(0, str(ROOT / "tests" / "helpers"))
            from large_corpus import large_corpus

            made = Path(place, "made.jsonl")
            large_corpus(made, int(given.large))
            good &= compare("made from it", [made], trained, Path(place, "large"), given.runs, given.threads)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
