"""PrepareCorpus: raw text becomes clean, distinct documents, split into train, validation and test.

    python -m steps.prepare_corpus --corpus DIR [--source_corpus DIR] [--extra_heldout DIR] --output DIR

Reads    corpus         .jsonl, .txt, .parquet, each also .gz or .zst: the new language
         source_corpus  the base model's language, replayed in training and measured for retention (optional)
         extra_heldout  a further held-out text, kept out of training (optional)
Writes   train/ validation/ test/ part-*.jsonl, corpus.json; extra_heldout/ and source_train/ source_validation/
         source_test/ where given; findings.json, a report of what is odd about the inputs

A document's place follows from its own sha256: neither the order nor the form of the input files changes the output,
and a document stays in its split when the corpus grows.

The text goes through the disk; memory holds the index of near-duplicates (steps/text/deduplication.py), about 16 GB
for a million distinct documents of 500 words.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import Folder, StepError, StepFolders, report, run_step, warn, write_json
from steps.schemas.corpus import CorpusFindings, CorpusSummary, SplitSummary
from steps.text.appending import AppendedFile
from steps.text.corpus import FINDINGS_NAME, SUMMARY_NAME, SplitWriter, hash_share, text_sha256
from steps.text.corpus_checks import SAME_LANGUAGE_DISTANCE, Finding, language_distance
from steps.text.corpus_input import Input
from steps.text.deduplication import NearDuplicateIndex, shingles
from steps.text.heldout import HeldoutCheck
from steps.text.normalisation import cut, normalise, repair_homoglyphs
from steps.text.personal_data import mask_personal_data
from steps.text.reading import Record, read_records

FOLDERS = [
    Folder("corpus", sealed=False),
    Folder("source_corpus", sealed=False, required=False),
    Folder("extra_heldout", sealed=False, required=False),
]
REPORTS = (FINDINGS_NAME,)
# The extra held-out text goes first, so that it is the training text's copies that are dropped.
ORDER = ("extra_heldout", "corpus", "source_corpus")
SPOOL_BUCKETS = 256


def prepare_corpus(config: PrepareCorpusConfig, folders: StepFolders) -> dict[str, float | int]:
    """Cleans, deduplicates and splits; warns of what is odd; returns the counts of the manifest."""
    inputs = {name: Input(name, path, config) for name in ORDER if (path := folders.get(name))}
    splits: dict[str, SplitSummary] = {}
    index = NearDuplicateIndex(config.near_duplicate_similarity, config.near_duplicate_shingle_words)
    heldout = HeldoutCheck()
    for text_input in inputs.values():
        text_input.kilobytes_of_all = sum(other.kilobytes for other in inputs.values())
    for before, text_input in itertools.pairwise(inputs.values()):
        text_input.kilobytes_before = before.kilobytes_before + before.kilobytes
    for name, text_input in inputs.items():
        if name == "source_corpus":
            # Another language: it is compared with itself alone.
            index = NearDuplicateIndex(config.near_duplicate_similarity, config.near_duplicate_shingle_words)
        shares = {"test": config.test_share, "validation": config.validation_share, "train": 1.0}
        if name == "source_corpus":
            shares = {f"source_{split}": share for split, share in shares.items()}
        if name == "extra_heldout":
            shares = {"extra_heldout": 1.0}
        splits |= write_splits(text_input, index, shares, folders.output, heldout)
    check_splits(splits, inputs)
    findings = {name: inputs[name].findings_summary(found) for name, found in tell_findings(inputs, heldout).items()}
    write_json(
        folders.output / FINDINGS_NAME, CorpusFindings(sources=dict(sorted(findings.items()))).model_dump(mode="json")
    )
    sources = {name: text_input.summary() for name, text_input in sorted(inputs.items())}
    summary = CorpusSummary(splits=splits, sources=sources)
    write_json(folders.output / SUMMARY_NAME, summary.model_dump(mode="json"))
    corpus = inputs["corpus"]
    personal = sum((text_input.personal for text_input in inputs.values()), Counter[str]())
    return {
        "documents": sum(splits[name].documents for name in ("train", "validation", "test")),
        "words": sum(splits[name].words for name in ("train", "validation", "test")),
        "bytes": sum(splits[name].bytes for name in ("train", "validation", "test")),
        "dropped": corpus.dropped.total(),
        "homoglyphs_repaired": corpus.homoglyphs,
        "personal_data": personal.total(),
        **{f"personal_data_{kind}": count for kind, count in sorted(personal.items())},
    }


def clean_documents(text_input: Input, output: Path) -> Iterator[tuple[str, str]]:
    """(digest, text) of the normalised documents in the order of their digests, copies included.

    Documents are spooled to disk by the first byte of their digest, so that memory holds one bucket of text at a time.
    """
    spool = output / ".spool"
    spool.mkdir()
    buckets = [AppendedFile(spool / f"{bucket:02x}") for bucket in range(SPOOL_BUCKETS)]
    for text in normalised_texts(text_input):
        digest = text_sha256(text)
        buckets[int(digest[:2], 16)].write(json.dumps([digest, text], ensure_ascii=False) + "\n")
    for file in buckets:
        file.flush()
    for bucket in range(SPOOL_BUCKETS):
        text_input.tell_progress(bucket / SPOOL_BUCKETS)
        with (spool / f"{bucket:02x}").open(encoding="utf-8") as stream:
            yield from sorted((digest, text) for digest, text in map(json.loads, stream))
    text_input.tell_progress(1.0)
    shutil.rmtree(spool)


def normalised_texts(text_input: Input) -> Iterator[str]:
    """Every usable document of the input. Raises StepError where too many lines are none, naming the first."""
    config = text_input.config
    first_fault: Record | None = None
    for record in read_records(text_input.path, config.text_field):
        text_input.lines += record.lines
        if record.text is None:
            first_fault = first_fault or record
            text_input.note_fault(record)
            continue
        text_input.read += 1
        if text_input.read % 10_000 == 0:
            report(documents_read=text_input.read)
        text_input.checks.see_read(record.text)
        pieces = cut(clean_text(record.text, text_input), config.max_document_bytes)
        text_input.cut += len(pieces) > 1
        for piece in pieces or [""]:
            if len(piece) < config.min_document_characters:
                text_input.dropped["too short"] += 1
            else:
                yield piece
    if first_fault and text_input.unreadable > config.max_bad_line_share * text_input.lines:
        raise text_input.too_many_faults(first_fault)


def clean_text(raw: str, text_input: Input) -> str:
    """The document normalised, its look-alikes repaired, its personal data counted and, if so set, masked."""
    text = normalise(raw)
    if text_input.config.repair_homoglyphs:
        text, repaired = repair_homoglyphs(text)
        text_input.homoglyphs += repaired
    masked, personal = mask_personal_data(text)
    if personal:
        text_input.personal += personal
        text_input.personal_documents += 1
    return masked if text_input.config.mask_personal_data else text


def write_splits(
    text_input: Input, index: NearDuplicateIndex, shares: dict[str, float], output: Path, heldout: HeldoutCheck
) -> dict[str, SplitSummary]:
    """Writes each distinct document to the split that its digest falls into; a share of 1 takes what is left."""
    config = text_input.config
    shards = {"train": config.train_shards, "source_train": config.train_shards}
    writers = {split: SplitWriter(output, split, shards.get(split, 1)) for split in shares}
    previous = ""
    for digest, text in clean_documents(text_input, output):
        if digest == previous:
            text_input.dropped["exact duplicate"] += 1
            continue
        previous = digest
        hashes = shingles(text, config.near_duplicate_shingle_words)
        place = index.match_or_keep(hashes)
        if place is not None:
            text_input.dropped["near duplicate"] += 1
            heldout.see_copy(text_input.name, place)
            continue
        text_input.kept += 1
        text_input.checks.see_kept(text)
        split = split_of(digest, shares)
        heldout.see_kept(split, hashes)
        if split:
            writers[split].add(digest, text)
    return {split: writer.close() for split, writer in writers.items()}


def split_of(digest: str, shares: dict[str, float]) -> str:
    """The split that a digest falls into; empty where the shares leave it out."""
    upper = 0.0
    for split, share in shares.items():
        upper += share
        if hash_share(digest) < upper:
            return split
    return ""


def tell_findings(inputs: dict[str, Input], heldout: HeldoutCheck) -> dict[str, list[Finding]]:
    """Warns of what is odd about the inputs, each and together; returns all that was looked for, by input."""
    findings = {name: list(text_input.findings()) for name, text_input in inputs.items()}
    for name, finding in heldout.findings():
        findings[name].append(finding)
    for name, found in findings.items():
        for finding in found:
            if finding.is_warned:
                warn(finding.name, finding.message(name))
    for name, is_same_wanted in (("extra_heldout", True), ("source_corpus", False)):
        distance = language_distance(inputs[name].checks, inputs["corpus"].checks) if name in inputs else None
        if distance is None or (distance < SAME_LANGUAGE_DISTANCE) == is_same_wanted:
            continue
        apart = f"{distance:.3f} from the corpus by its letter pairs; one language {SAME_LANGUAGE_DISTANCE} at most"
        if is_same_wanted:
            warn("heldout-other-language", f"{name}: {apart}. Is it text of the new language?")
        else:
            warn(
                "source-corpus-same-language", f"{name}: {apart}. Is it the base model's language? Are the two swapped?"
            )
    return findings


def check_splits(splits: dict[str, SplitSummary], inputs: dict[str, Input]) -> None:
    """Raises StepError that names the input where it gave no document, or one of its splits came out empty."""
    for text_input in inputs.values():
        if text_input.kept == 0:
            why = f" kept ({text_input.dropped_text()})" if text_input.dropped else ""
            value = f"no documents{why} in {text_input.path}"
            raise StepError(text_input.name, value, limit="at least one", remedy="Give more text.")
    for name, split in splits.items():
        source = {"extra_heldout": "extra_heldout", "source_test": "source_corpus"}.get(name, "corpus")
        # Of a short source corpus these two may be empty: then ContinuedPretraining says that nothing is replayed.
        if split.documents == 0 and name not in ("source_train", "source_validation"):
            remedy = "Give more documents or raise prepare_corpus.validation_share and test_share."
            dropped = inputs[source].dropped_text()
            value = f"no {name} document among {inputs[source].kept:,}{f' (dropped: {dropped})' if dropped else ''}"
            raise StepError(source, value, limit="at least 1", remedy=remedy)


if __name__ == "__main__":
    sys.exit(run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS, reports=REPORTS))
