"""PrepareCorpus: raw text becomes clean, distinct documents, split into train, validation and test.

    python -m steps.prepare_corpus --corpus DIR [--source_corpus DIR] [--extra_heldout DIR] --output DIR

Reads    corpus         .jsonl, .txt, .parquet, each also .gz or .zst: the new language
         source_corpus  the base model's language, replayed in training and measured for retention (optional)
         extra_heldout  a further held-out text, kept out of training (optional)
Writes   train/ validation/ test/ part-*.jsonl, corpus.json; extra_heldout/ and source_train/ source_validation/
         source_test/ where given; findings.json, a report of what is odd about the inputs

A document's place follows from its own sha256: neither the order nor the form of the input files changes the output,
and a document stays in its split when the corpus grows.

Text and near-duplicates go through the disk, about three times the corpus while the step runs; memory does not grow
with the corpus but for some 100 bytes of each document that is like another (steps/text/near_duplicates.py). It is 0.2
to 0.3 GB for 2 GB of usual text; a single document of 100 MB takes 0.6 GB, with an emoji in it 1.0 GB.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import Folder, StepError, StepFolders, report, run_step, warn, write_json
from steps.schemas.corpus import CorpusFindings, CorpusSummary, SplitSummary
from steps.text.corpus import FINDINGS_NAME, SUMMARY_NAME, SplitWriter, hash_share
from steps.text.corpus_checks import SAME_LANGUAGE_DISTANCE, Finding, language_distance
from steps.text.corpus_input import PASSES, Input, Progress
from steps.text.deduplication import shingle_runs
from steps.text.heldout import HeldoutCheck
from steps.text.near_duplicates import NearDuplicateSearch
from steps.text.normalisation import cut, normalise, repair_homoglyphs, segments
from steps.text.personal_data import mask_personal_data
from steps.text.reading import Record, read_records
from steps.text.spool import BUCKETS, DocumentSpool

FOLDERS = [
    Folder("corpus", sealed=False),
    Folder("source_corpus", sealed=False, required=False),
    Folder("extra_heldout", sealed=False, required=False),
]
REPORTS = (FINDINGS_NAME,)
# The extra held-out text goes first, so that it is the training text's copies that are dropped. The source corpus is in
# another language: it is compared with itself alone.
COMPARED = (("extra_heldout", "corpus"), ("source_corpus",))
BATCH_CHARACTERS = 1 << 18
# A document is normalised in pieces of so many, or of twice max_document_bytes.
SEGMENT_CHARACTERS = 1 << 23


def prepare_corpus(config: PrepareCorpusConfig, folders: StepFolders) -> dict[str, float | int]:
    """Cleans, deduplicates and splits; warns of what is odd; returns the counts of the manifest."""
    inputs = {name: Input(name, path, config) for name in itertools.chain(*COMPARED) if (path := folders.get(name))}
    splits: dict[str, SplitSummary] = {}
    heldout = HeldoutCheck()
    progress = Progress({name: text_input.kilobytes for name, text_input in inputs.items()})
    for names in COMPARED:
        if compared := [inputs[name] for name in names if name in inputs]:
            splits |= write_compared(compared, folders.output, heldout, progress)
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


def write_compared(
    inputs: list[Input], output: Path, heldout: HeldoutCheck, progress: Progress
) -> dict[str, SplitSummary]:
    """Writes the splits of inputs that are compared with one another: of near-duplicates the first is kept."""
    config = inputs[0].config
    folder = output / ".spool"
    (folder / "bands").mkdir(parents=True)
    similarity, shingle_words = config.near_duplicate_similarity, config.near_duplicate_shingle_words
    search = NearDuplicateSearch(folder / "bands", similarity, shingle_words)
    spools = []
    for text_input in inputs:
        spool = DocumentSpool(folder / text_input.name)
        for text in normalised_texts(text_input, progress):
            spool.add(text)
        spool.close()
        spools.append(spool)
        for bucket, (documents, copies) in enumerate(spool.buckets()):
            progress.tell(text_input.name, 1 + bucket / BUCKETS)
            if copies:
                text_input.dropped["exact duplicate"] += copies
            for batch in in_batches(documents):
                search.see([text for _, text in batch])
    search.find()
    splits: dict[str, SplitSummary] = {}
    first_number = 0
    for text_input, spool in zip(inputs, spools, strict=True):
        writer = InputWriter(text_input, output, heldout)
        for bucket, (documents, _) in enumerate(spool.buckets()):
            progress.tell(text_input.name, 2 + bucket / BUCKETS)
            for batch in in_batches(documents):
                writer.write(batch, first_number, search)
                first_number += len(batch)
        splits |= writer.close()
        progress.tell(text_input.name, PASSES)
    search.close()
    shutil.rmtree(folder)
    return splits


def in_batches(documents: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Documents in lists of about BATCH_CHARACTERS, what is hashed at once."""
    batch: list[tuple[str, str]] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document[1])
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def normalised_texts(text_input: Input, progress: Progress) -> Iterator[str]:
    """Every usable document of the input. Raises StepError where too many lines are none, naming the first."""
    config = text_input.config
    first_fault: Record | None = None
    read_characters = 0
    for record in read_records(text_input.path, config.text_field):
        text_input.lines += record.lines
        if record.text is None:
            first_fault = first_fault or record
            text_input.note_fault(record)
            continue
        text_input.read += 1
        read_characters += len(record.text)
        if text_input.read % 1_000 == 0:
            # Of compressed text it is soon too much.
            progress.tell(text_input.name, min(read_characters / (1_000 * text_input.kilobytes + 1), 0.9))
        if text_input.read % 10_000 == 0:
            report(documents_read=text_input.read)
        text_input.checks.see_read(record.text)
        pieces = 0
        for piece in clean_pieces(record.text, text_input):
            pieces += 1
            if len(piece) < config.min_document_characters:
                text_input.dropped["too short"] += 1
            else:
                yield piece
        text_input.cut += pieces > 1
        if not pieces:
            text_input.dropped["too short"] += 1
    if first_fault and text_input.unreadable > config.max_bad_line_share * text_input.lines:
        raise text_input.too_many_faults(first_fault)


def clean_pieces(raw: str, text_input: Input) -> Iterator[str]:
    """The document normalised, in pieces of at most max_document_bytes, none of which is empty."""
    max_bytes = text_input.config.max_document_bytes
    personal_before = text_input.personal.total()
    for segment in segments(raw, max(SEGMENT_CHARACTERS, 2 * max_bytes)):
        yield from cut(clean_text(segment, text_input), max_bytes)
    text_input.personal_documents += text_input.personal.total() > personal_before


def clean_text(raw: str, text_input: Input) -> str:
    """The text normalised, its look-alikes repaired, its personal data counted and, if so set, masked."""
    text = normalise(raw)
    if text_input.config.repair_homoglyphs:
        text, repaired = repair_homoglyphs(text)
        text_input.homoglyphs += repaired
    masked, personal = mask_personal_data(text)
    text_input.personal += personal
    return masked if text_input.config.mask_personal_data else text


class InputWriter:
    """Writes each distinct document of an input to the split that its digest falls into."""

    def __init__(self, text_input: Input, output: Path, heldout: HeldoutCheck) -> None:
        self._input, self._heldout = text_input, heldout
        self._shares = split_shares(text_input)
        shards = {"train": text_input.config.train_shards, "source_train": text_input.config.train_shards}
        self._writers = {split: SplitWriter(output, split, shards.get(split, 1)) for split in self._shares}

    def write(self, documents: list[tuple[str, str]], first_number: int, search: NearDuplicateSearch) -> None:
        """documents: (digest, text) in the order of digests. first_number: the first one's number in `search`."""
        shingle_words = self._input.config.near_duplicate_shingle_words
        runs, starts = shingle_runs([text for _, text in documents], shingle_words)
        own_runs = numpy.split(runs, starts[1:])
        for number, ((digest, text), own) in enumerate(zip(documents, own_runs, strict=True), first_number):
            near = search.match_or_keep(number, own)
            if near is not None:
                self._input.dropped["near duplicate"] += 1
                self._heldout.see_copy(self._input.name, near)
                continue
            self._input.kept += 1
            self._input.checks.see_kept(text)
            split = split_of(digest, self._shares)
            self._heldout.see_kept(split, number, own)
            if split:
                self._writers[split].add(digest, text)

    def close(self) -> dict[str, SplitSummary]:
        """What each split holds, once all documents are written."""
        return {split: writer.close() for split, writer in self._writers.items()}


def split_shares(text_input: Input) -> dict[str, float]:
    """The share of each split of an input; a share of 1 takes what is left."""
    if text_input.name == "extra_heldout":
        return {"extra_heldout": 1.0}
    prefix = "source_" if text_input.name == "source_corpus" else ""
    config = text_input.config
    return {f"{prefix}test": config.test_share, f"{prefix}validation": config.validation_share, f"{prefix}train": 1.0}


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
