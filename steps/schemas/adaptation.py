"""adaptation.json: how the new vocabulary's rows came about, and where the model stands at step 0."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Adaptation(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    initialiser: str
    base_vocabulary_rows: int
    vocabulary_rows: int
    rows_copied: int = Field(description="tokens with the same bytes, or special ones of the same name or role")
    rows_composed: int = Field(description="rows made by the initialiser")
    tied_embeddings: bool
    parameters_before: int
    parameters_after: int
    bits_per_byte_at_step_0: dict[str, float] = Field(description="by initialiser, on validation documents")
    measured_documents: int
