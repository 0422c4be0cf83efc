"""Settings of PrepareCorpus."""

from __future__ import annotations

from pydantic import Field

from steps.contract import StepConfig


class PrepareCorpusConfig(StepConfig):
    """How raw text becomes clean, distinct, split documents."""

    text_field: str = Field("text", min_length=1, description="name of the JSON or parquet field with the text")
    train_shards: int = Field(
        # All are open for writing at once, and a process may usually open 1,024 files.
        4,
        ge=1,
        le=512,
        description="number of training shards",
    )
    validation_share: float = Field(0.05, gt=0, lt=0.5, description="share of documents for validation")
    test_share: float = Field(0.05, gt=0, lt=0.5, description="share of documents for the test split")
    min_document_characters: int = Field(20, ge=1, description="shorter documents are dropped")
    max_document_bytes: int = Field(
        1_000_000, ge=1_000, description="longer documents are cut at a paragraph, line or space, in UTF-8 bytes"
    )
    repair_homoglyphs: bool = Field(True, description="map Cyrillic look-alikes inside Latin words to Latin letters")
    near_duplicate_similarity: float = Field(
        # Below 0.7 the bands of the search no longer find nearly every pair.
        0.8,
        ge=0.7,
        le=1,
        description="Jaccard similarity of word shingles from which two documents are near-duplicates",
    )
    near_duplicate_shingle_words: int = Field(5, ge=1, le=20, description="words in one shingle")
    max_bad_line_share: float = Field(
        0.01, ge=0, le=1, description="share of unreadable lines beyond which the step stops"
    )
    mask_personal_data: bool = Field(
        False, description="replace telephone, card, account and identity numbers and e-mail addresses by placeholders"
    )
    warned_document_share: float = Field(
        # Lower, and the odd page of any real corpus is told of.
        0.02,
        ge=0,
        le=1,
        description="share of an input's documents from which it is warned that they are in another language or "
        "script, decoded wrongly, hold markup or lack letters",
    )
    corpus_digest: str = Field("", description="digest of the corpus, for the cache key")
    source_corpus_digest: str = Field("", description="digest of the source-language corpus, for the cache key")
    extra_heldout_digest: str = Field("", description="digest of the extra held-out text, for the cache key")
