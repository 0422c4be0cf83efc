"""corpus.json: what PrepareCorpus kept, and what it dropped and why."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SplitSummary(BaseModel):
    """One split: its shards in order (paths inside the folder) and its totals."""

    model_config = ConfigDict(extra="forbid")

    shards: list[str]
    documents: int
    words: int
    bytes: int


class SourceSummary(BaseModel):
    """One input: documents read, documents and unreadable lines dropped for each reason, letters repaired."""

    model_config = ConfigDict(extra="forbid")

    read: int
    dropped: dict[str, int]
    homoglyphs_repaired: int
    documents_cut: int


class CorpusSummary(BaseModel):
    """Splits are train, validation, test, and extra_heldout and source_test where given; sources are the inputs:
    corpus, and extra_heldout and source_corpus where given."""

    model_config = ConfigDict(extra="forbid")

    splits: dict[str, SplitSummary]
    sources: dict[str, SourceSummary]
