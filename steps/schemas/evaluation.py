"""evaluation.json: the numbers that the gate reads and a person approves from. Bits per byte: lower is better."""

from __future__ import annotations

from typing import Literal

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


class TokenizerComparison(MeasuredText):
    """Two trainings that differ in the tokenizer alone; improvement is base_tokenizer - new_tokenizer."""

    base_tokenizer: float = Field(gt=0)
    new_tokenizer: float = Field(gt=0)
    improvement: float
    improvement_ci95: tuple[float, float] = Field(description="paired bootstrap over documents")


class BranchTraining(Section):
    """What one of the two trainings took, from its training.json."""

    steps: int = Field(gt=0)
    tokens: int = Field(gt=0, description="padding and replayed text included")
    flops: float = Field(gt=0, description="see steps/modeling/utilisation.py; validation left out")
    corpus_passes: float = Field(gt=0, description="a last step that goes on from the corpus's beginning counts")
    corpus_bytes: int = Field(gt=0, description="of one pass")
    parameters: int = Field(gt=0)
    validation_bits_per_byte: float = Field(
        gt=0, description="at its end, on its own validation blocks: the same documents, cut and counted otherwise"
    )


class Ablation(Section):
    """What the new tokenizer alone brought: after pretraining, before fine-tuning, which would blur it.

    Both trainings read the same documents in the same order, equally often, in steps of the same number of tokens.
    """

    equal_bytes: TokenizerComparison = Field(description="equal bytes of context: the headline")
    equal_tokens: TokenizerComparison = Field(description="the new tokenizer's context holds more text")
    extra_heldout: TokenizerComparison | None = Field(None, description="equal bytes of context")
    training: dict[Literal["base_tokenizer", "new_tokenizer"], BranchTraining]


class Proportion(Section):
    """A share of questions answered rightly, with Wilson's 95% interval."""

    right: int = Field(ge=0)
    share: float = Field(ge=0, le=1)
    ci95: tuple[float, float]


class ModelAccuracy(Section):
    """plain: by log-likelihood. by_byte: by log-likelihood a byte of the choice."""

    plain: Proportion
    by_byte: Proportion


class TaskAccuracy(Section):
    """One of the user's files of questions; chance is the accuracy of a guess."""

    kind: Literal["choice", "next_word"]
    items: int = Field(gt=0)
    chance: float = Field(ge=0, le=1)
    base: ModelAccuracy
    pretrained: ModelAccuracy
    candidate: ModelAccuracy


class SharedText(Section):
    """How many texts share an n-gram with the training text."""

    texts: int = Field(ge=0, description="texts looked for")
    contaminated: int = Field(ge=0)
    share: float = Field(ge=0, le=1, description="contaminated / texts, 0 where none was looked for")
    too_short: int = Field(ge=0, description="further texts, of too few words to be looked for")


class ContaminationSection(Section):
    """What of the test texts stands in the training text."""

    ngram_words: int = Field(gt=0)
    test: SharedText = Field(description="the documents of Evaluation.bits_per_byte")
    extra_heldout: SharedText | None = None
    accuracy: dict[str, SharedText] = Field(default_factory=dict, description="by task, question with right answer")


class Continuation(Section):
    """What one model wrote, in figures."""

    characters: int = Field(ge=0)
    words: int = Field(ge=0)
    repeated_trigrams: float = Field(ge=0, le=1, description="share of runs of 3 words that stood there before")
    distinct_bigrams: float = Field(ge=0, le=1, description="different pairs of words over all pairs")
    ended: bool = Field(description="ended by itself, before the limit of tokens")


class Sample(Section):
    """One held-out prompt, continued greedily by each model, and by the model's name the continuation in figures."""

    prompt: str
    base: str
    pretrained: str
    candidate: str
    figures: dict[Literal["base", "pretrained", "candidate"], Continuation]


class Evaluation(Section):
    """The whole file. bits_per_byte has equal bytes of context, equal_tokens equal tokens of context."""

    bits_per_byte: BitsPerByte
    equal_tokens: BitsPerByte
    extra_heldout: BitsPerByte | None = Field(None, description="the extra held-out text, equal bytes of context")
    champion: Champion
    retention: Retention | None = Field(None, description="where a source corpus is given")
    ablation: Ablation | None = Field(None, description="where the base model was trained with its own tokenizer too")
    accuracy: dict[str, TaskAccuracy] | None = Field(None, description="by file, where files of questions are given")
    contamination: ContaminationSection
    samples: list[Sample]
    bytes_scored: int = Field(gt=0, description="of the test documents; other texts state theirs in their section")
    documents: int = Field(gt=0, description="test documents scored")
    text_sha256: str = Field(description="sha256 of the test documents, in order, joined by NUL bytes")
