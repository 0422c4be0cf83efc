"""The prepared corpus on disk: shards of {"id", "text"} lines in the order of their sha256, and what tells of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from steps.contract import StepError
from steps.schemas.corpus import CorpusFindings, CorpusSummary, SplitSummary
from steps.text.appending import AppendedFile

SUMMARY_NAME, FINDINGS_NAME = "corpus.json", "findings.json"


def text_sha256(text: str) -> str:
    """Hexadecimal sha256 of a document's UTF-8 bytes: its identity, its place in the order, its split."""
    return hashlib.sha256(text.encode()).hexdigest()


def hash_share(digest: str) -> float:
    """A document's place in [0, 1), from the first 64 bits of its digest."""
    return int(digest[:16], 16) / 2**64


def read_summary(folder: Path) -> CorpusSummary:
    """corpus.json of a prepared corpus."""
    return CorpusSummary.model_validate_json((folder / SUMMARY_NAME).read_bytes())


def read_findings(folder: Path) -> CorpusFindings:
    """findings.json of a prepared corpus."""
    return CorpusFindings.model_validate_json((folder / FINDINGS_NAME).read_bytes())


def iterate_shard(path: Path) -> Iterator[str]:
    """The documents of one shard, in its order."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)["text"]


def iterate_split(folder: Path, split: str) -> Iterator[str]:
    """The documents of a split, shard after shard as corpus.json names them. Raises StepError for an unknown split."""
    splits = read_summary(folder).splits
    if split not in splits:
        raise StepError(split, "no such split", limit=", ".join(splits), remedy="Prepare the corpus with it.")
    for shard in splits[split].shards:
        yield from iterate_shard(folder / shard)


def read_split(folder: Path, split: str) -> list[str]:
    """All documents of a split (meant for the small held-out ones)."""
    return list(iterate_split(folder, split))


def first_documents(folder: Path, split: str, max_bytes: int) -> list[str]:
    """Documents of a split, in its order, until they have `max_bytes` of UTF-8; one at least where it has any."""
    documents: list[str] = []
    size = 0
    for text in iterate_split(folder, split):
        size += len(text.encode())
        if documents and size > max_bytes:
            break
        documents.append(text)
    return documents


class SplitWriter:
    """Writes the shards of one split side by side; documents must come in the order of their digests."""

    def __init__(self, folder: Path, split: str, shards: int) -> None:
        self._names = [f"{split}/part-{shard:05d}.jsonl" for shard in range(shards)]
        (folder / split).mkdir(parents=True, exist_ok=True)
        self._files = [AppendedFile(folder / name) for name in self._names]
        self._documents = self._words = self._bytes = 0

    def add(self, digest: str, text: str) -> None:
        # The last digits choose the shard: the first ones chose the split and give the order.
        file = self._files[int(digest[-8:], 16) % len(self._files)]
        file.write(json.dumps({"id": digest[:16], "text": text}, ensure_ascii=False) + "\n")
        self._documents += 1
        self._words += len(text.split())
        self._bytes += len(text.encode())

    def close(self) -> SplitSummary:
        for file in self._files:
            file.flush()
        return SplitSummary(shards=self._names, documents=self._documents, words=self._words, bytes=self._bytes)
