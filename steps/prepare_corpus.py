"""PrepareCorpus: raw text becomes clean, distinct documents, split into train, validation and test.

    python -m steps.prepare_corpus --corpus DIR [--source_corpus DIR] [--extra_heldout DIR] --output DIR

Reads    corpus         .jsonl, .txt, .parquet, each also .gz or .zst: the new language
         source_corpus  the base model's language, for retention (optional)
         extra_heldout  a further held-out text, kept out of training (optional)
Writes   train/ validation/ test/ [extra_heldout/ source_test/] part-*.jsonl, corpus.json

A document's place follows from its own sha256: neither the order nor the form of the input files changes the output,
and a document stays in its split when the corpus grows.

The text goes through the disk; memory holds the index of near-duplicates (steps/text/deduplication.py), about 16 GB
for a million distinct documents of 500 words.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import Folder, StepError, StepFolders, report, run_step, write_json
from steps.schemas.corpus import CorpusSummary, SourceSummary, SplitSummary
from steps.text.corpus import SUMMARY_NAME, SplitWriter, hash_share, text_sha256
from steps.text.deduplication import NearDuplicateIndex
from steps.text.normalisation import cut, normalise, repair_homoglyphs
from steps.text.reading import read_records

FOLDERS = [
    Folder("corpus", sealed=False),
    Folder("source_corpus", sealed=False, required=False),
    Folder("extra_heldout", sealed=False, required=False),
]
SPOOL_BUCKETS = 256


@dataclass
class Tally:
    """Counts of what was read from one input, and of what was dropped and why."""

    lines: int = 0
    read: int = 0
    kept: int = 0
    homoglyphs: int = 0
    cut: int = 0
    unreadable: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def summary(self) -> SourceSummary:
        """The counts in corpus.json."""
        return SourceSummary(
            read=self.read,
            dropped=dict(sorted(self.dropped.items())),
            homoglyphs_repaired=self.homoglyphs,
            documents_cut=self.cut,
        )


def prepare_corpus(config: PrepareCorpusConfig, folders: StepFolders) -> dict[str, float | int]:
    """Cleans, deduplicates and splits; returns the counts of the manifest."""
    tallies = {folder.name: Tally() for folder in FOLDERS if folders.get(folder.name)}
    splits: dict[str, SplitSummary] = {}
    index = NearDuplicateIndex(config.near_duplicate_similarity, config.near_duplicate_shingle_words)
    # The extra held-out text goes first, so that it is the training text's copies that are dropped.
    if extra := folders.get("extra_heldout"):
        tally = tallies["extra_heldout"]
        documents = clean_documents(extra, config, folders.output, tally)
        splits |= write_splits(documents, index, {"extra_heldout": 1.0}, config, folders.output, tally)
    shares = {"test": config.test_share, "validation": config.validation_share, "train": 1.0}
    corpus = tallies["corpus"]
    documents = clean_documents(folders["corpus"], config, folders.output, corpus)
    splits |= write_splits(documents, index, shares, config, folders.output, corpus)
    if source := folders.get("source_corpus"):
        source_index = NearDuplicateIndex(config.near_duplicate_similarity, config.near_duplicate_shingle_words)
        tally = tallies["source_corpus"]
        documents = clean_documents(source, config, folders.output, tally)
        shares = {"source_test": config.test_share}
        splits |= write_splits(documents, source_index, shares, config, folders.output, tally)
    check_splits(splits, corpus.kept)
    summary = CorpusSummary(splits=splits, sources={name: tally.summary() for name, tally in tallies.items()})
    write_json(folders.output / SUMMARY_NAME, summary.model_dump(mode="json"))
    return {
        "documents": sum(splits[name].documents for name in ("train", "validation", "test")),
        "words": sum(splits[name].words for name in ("train", "validation", "test")),
        "bytes": sum(splits[name].bytes for name in ("train", "validation", "test")),
        "dropped": corpus.dropped.total(),
        "homoglyphs_repaired": corpus.homoglyphs,
    }


def clean_documents(source: Path, config: PrepareCorpusConfig, output: Path, tally: Tally) -> Iterator[tuple[str, str]]:
    """(digest, text) of the normalised documents in the order of their digests, copies included.

    Documents are spooled to disk by the first byte of their digest, so that memory holds one bucket of text at a time.
    """
    spool = output / ".spool"
    spool.mkdir()
    streams = [(spool / f"{bucket:02x}").open("w", encoding="utf-8") for bucket in range(SPOOL_BUCKETS)]
    for text in normalised_texts(source, config, tally):
        digest = text_sha256(text)
        streams[int(digest[:2], 16)].write(json.dumps([digest, text], ensure_ascii=False) + "\n")
    for stream in streams:
        stream.close()
    for bucket in range(SPOOL_BUCKETS):
        with (spool / f"{bucket:02x}").open(encoding="utf-8") as stream:
            yield from sorted((digest, text) for digest, text in map(json.loads, stream))
    shutil.rmtree(spool)


def normalised_texts(source: Path, config: PrepareCorpusConfig, tally: Tally) -> Iterator[str]:
    """Every usable document of the input. Raises StepError where too many lines are none, naming the first."""
    first_fault = ""
    for record in read_records(source, config.text_field):
        tally.lines += 1
        if record.text is None:
            tally.dropped[f"unreadable line: {record.fault}"] += 1
            tally.unreadable += 1
            first_fault = first_fault or f"{record.source} line {record.number}: {record.fault}"
            continue
        tally.read += 1
        if tally.read % 10_000 == 0:
            report(documents_read=tally.read)
        text = normalise(record.text)
        if config.repair_homoglyphs:
            text, repaired = repair_homoglyphs(text)
            tally.homoglyphs += repaired
        pieces = cut(text, config.max_document_bytes)
        tally.cut += len(pieces) > 1
        for piece in pieces or [""]:
            if len(piece) < config.min_document_characters:
                tally.dropped["too short"] += 1
            else:
                yield piece
    if tally.unreadable > config.max_bad_line_share * tally.lines:
        value = f"{tally.unreadable} of {tally.lines} lines unreadable, first: {first_fault}"
        limit = f"a share of {config.max_bad_line_share}"
        raise StepError(
            str(source), value, limit=limit, remedy="Mend the file or raise prepare_corpus.max_bad_line_share."
        )


def write_splits(
    documents: Iterator[tuple[str, str]],
    index: NearDuplicateIndex,
    shares: dict[str, float],
    config: PrepareCorpusConfig,
    output: Path,
    tally: Tally,
) -> dict[str, SplitSummary]:
    """Writes each distinct document to the split that its digest falls into; a share of 1 takes what is left."""
    writers = {split: SplitWriter(output, split, config.train_shards if split == "train" else 1) for split in shares}
    previous = ""
    for digest, text in documents:
        if digest == previous:
            tally.dropped["exact duplicate"] += 1
            continue
        previous = digest
        if not index.add(text):
            tally.dropped["near duplicate"] += 1
            continue
        tally.kept += 1
        place, upper = hash_share(digest), 0.0
        for split, share in shares.items():
            upper += share
            if place < upper:
                writers[split].add(digest, text)
                break
    return {split: writer.close() for split, writer in writers.items()}


def check_splits(splits: dict[str, SplitSummary], documents: int) -> None:
    """Raises StepError where a split came out empty."""
    if documents == 0:
        raise StepError("corpus", "no documents", limit="at least one", remedy="Give text in the new language.")
    for name, split in splits.items():
        if split.documents == 0:
            remedy = "Give more documents or raise prepare_corpus.validation_share and test_share."
            raise StepError("corpus", f"no {name} document among {documents}", limit="at least 1", remedy=remedy)


if __name__ == "__main__":
    sys.exit(run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS))
