"""adaptation.json: how the new vocabulary's rows came about, and where the model stands at step 0."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RowLengths(BaseModel):
    """Euclidean lengths of a matrix' rows: of those that stand for tokens, not of padding."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    smallest: float
    median: float
    largest: float


class Adaptation(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    initialiser: str = Field(description="the one whose model is kept")
    reason: str = Field(description="why this one")
    base_vocabulary_rows: int
    vocabulary_rows: int
    rows_copied: int = Field(description="tokens with the same bytes, or special ones of the same name or role")
    rows_composed: int = Field(description="rows made by the initialiser")
    tied_embeddings: bool
    parameters_before: int
    parameters_after: int
    row_lengths: dict[str, RowLengths] = Field(description="of base and new embedding and, where not tied, head")
    bits_per_byte_at_step_0: dict[str, float] = Field(description="by initialiser, on validation documents")
    measured_documents: int
