"""evaluation.json: the numbers that the gate reads and a person approves from. All bits per byte; lower is better."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class MeasuredText(Section):
    """How much text a section's figures rest on."""

    documents: int = Field(gt=0)
    bytes_scored: int = Field(gt=0, description="UTF-8 bytes of these documents")


class BitsPerByte(MeasuredText):
    """Three models on the same documents; improvement is base - candidate, so positive is better."""

    base: float = Field(gt=0)
    pretrained: float = Field(gt=0)
    candidate: float = Field(gt=0)
    improvement: float
    improvement_ci95: tuple[float, float] = Field(description="paired bootstrap over documents")


class Champion(Section):
    """The newest approved version, on the documents of Evaluation.bits_per_byte; where there is none, the base model
    stands in and present is False."""

    present: bool
    bits_per_byte: float = Field(gt=0)
    improvement: float = Field(description="champion - candidate")
    improvement_ci95: tuple[float, float]


class Retention(MeasuredText):
    """On the source language; loss is candidate - base, so lower is better."""

    base: float = Field(gt=0)
    candidate: float = Field(gt=0)
    loss: float


class Sample(Section):
    """One held-out prompt, continued greedily by each model."""

    prompt: str
    base: str
    pretrained: str
    candidate: str


class Evaluation(Section):
    """The whole file. bits_per_byte has equal bytes of context, equal_tokens equal tokens of context."""

    bits_per_byte: BitsPerByte
    equal_tokens: BitsPerByte
    extra_heldout: BitsPerByte | None = Field(None, description="the extra held-out text, equal bytes of context")
    champion: Champion
    retention: Retention | None = Field(None, description="where a source corpus is given")
    samples: list[Sample]
    bytes_scored: int = Field(gt=0, description="of the test documents; other texts state theirs in their section")
    documents: int = Field(gt=0, description="test documents scored")
    text_sha256: str = Field(description="sha256 of the test documents, in order, joined by NUL bytes")
