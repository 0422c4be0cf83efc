"""corpus.json: what PrepareCorpus kept, and what it dropped and why. findings.json: what it found odd, and where."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SplitSummary(BaseModel):
    """One split: its shards in order (paths inside the folder) and its totals."""

    model_config = ConfigDict(extra="forbid")

    shards: list[str]
    documents: int
    words: int
    bytes: int


class FaultSummary(BaseModel):
    """Lines (rows of parquet) of one file that were passed over for one reason; the first one's number, from 1."""

    model_config = ConfigDict(extra="forbid")

    file: str
    fault: str
    lines: int
    first_line: int


class FindingSummary(BaseModel):
    """How many of the documents that were looked at have a peculiarity, and whether the step warned about it."""

    model_config = ConfigDict(extra="forbid")

    documents: int
    examined: int
    warned: bool


class SourceSummary(BaseModel):
    """One input: documents read, documents and unreadable lines dropped for each reason, letters repaired.

    personal_data: pieces found for each kind, masked or not.
    """

    model_config = ConfigDict(extra="forbid")

    read: int
    dropped: dict[str, int]
    homoglyphs_repaired: int
    documents_cut: int
    personal_data: dict[str, int] = {}


class CorpusSummary(BaseModel):
    """Splits are train, validation, test, and where given extra_heldout and source_train, source_validation,
    source_test; sources are the inputs: corpus, and extra_heldout and source_corpus where given."""

    model_config = ConfigDict(extra="forbid")

    splits: dict[str, SplitSummary]
    sources: dict[str, SourceSummary]


class SourceFindings(BaseModel):
    """Of one input: faults, the first 100 pairs of file and fault; findings, the peculiarities found, by name."""

    model_config = ConfigDict(extra="forbid")

    faults: list[FaultSummary]
    findings: dict[str, FindingSummary]


class CorpusFindings(BaseModel):
    """findings.json, a report: neither file names nor the share from which on it is warned are the corpus's content."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, SourceFindings]
