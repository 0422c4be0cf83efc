"""fertility.json: every tokenizer candidate side by side.

Fields that later versions added may be missing in a file of an earlier one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

TextName = Literal["heldout", "extra", "source"]
Measure = Literal["tokens_per_word", "bytes_per_token"]
MEASURE_NAMES: dict[Measure, str] = {"tokens_per_word": "tokens a word", "bytes_per_token": "bytes a token"}


class TextFertility(BaseModel):
    """One candidate on one held-out text. A word is what stands between white space."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    tokens_per_word: float = Field(gt=0)
    ci95: tuple[float, float] = Field(description="bootstrap interval of tokens_per_word over documents")
    bytes_per_token: float = Field(gt=0)
    bytes_per_token_ci95: tuple[float, float] | None = Field(None, description="the same of bytes_per_token")
    one_token_words: float = Field(ge=0, le=1, description="share of words that are one token")
    renyi_efficiency: float | None = Field(
        None, ge=0, le=1, description="of the tokens' frequencies, order 2.5: how evenly the vocabulary is used"
    )
    round_trip_errors: int = Field(ge=0, description="documents that decoding does not give back")
    documents_unlike_base: int | None = Field(
        None, description="of an extended or replaced tokenizer: documents whose ids are not the base's"
    )


class FertilityCandidate(BaseModel):
    """One tokenizer: texts are `heldout`, and `extra` and `source` where the corpus has them.

    Some tokenizers come of one training: each states the whole of its seconds.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str
    kind: Literal["base", "extended", "replaced", "bbpe", "unigram"]
    vocab_size: int
    vocabulary_parameters: int | None = Field(None, description="of embedding and untied head, padded rows included")
    vocabulary_parameters_share: float | None = Field(None, ge=0, le=1, description="of the whole adapted model")
    context_words: float | None = Field(None, description="held-out words that the model's context holds")
    texts: dict[TextName, TextFertility]
    train_seconds: float = Field(ge=0)
    peak_memory_bytes: int = Field(ge=0, description="peak resident memory of the process after this candidate")


class FertilityChange(BaseModel):
    """Tokens a word on the held-out text, at a path that does not depend on which candidate was chosen."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    base: float = Field(gt=0)
    chosen: float = Field(gt=0)


class TrainingText(BaseModel):
    """What the candidates were trained on; share is bytes over those of the training split."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    documents: int
    bytes: int
    share: float = Field(ge=0, le=1)


class FertilityReport(BaseModel):
    """The whole file; the base tokenizer is the first candidate.

    leads: the measure to read first. Where white space does not part words, tokens a word say little; leads_why.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    leads: Measure = "tokens_per_word"
    leads_why: str = ""
    candidates: list[FertilityCandidate]
    left_out: dict[str, str] = Field(default_factory=dict, description="candidates asked for that came to nothing")
    chosen: str
    reason: str
    tokens_per_word: FertilityChange
    training: TrainingText | None = None
    words_counted: Literal["whitespace"] = "whitespace"

    def headline(self) -> str:
        """Base and chosen by the measure that leads, such as `3.33 -> 1.60 tokens a word (bbpe-50048)`."""
        before, after = self.tokens_per_word.base, self.tokens_per_word.chosen
        if self.leads == "bytes_per_token":
            texts = {candidate.name: candidate.texts["heldout"] for candidate in self.candidates}
            before, after = (texts[name].bytes_per_token for name in (self.candidates[0].name, self.chosen))
        return f"{before:.2f} -> {after:.2f} {MEASURE_NAMES[self.leads]} ({self.chosen})"

    def table(self) -> list[str]:
        """The candidates in aligned lines below two of headings, the chosen one marked, the leading measure first."""
        other: Measure = "bytes_per_token" if self.leads == "tokens_per_word" else "tokens_per_word"
        extra = [name for name in ("extra", "source") if any(name in row.texts for row in self.candidates)]
        headings = [("", "candidate"), ("", "tokens"), _heading(self.leads), ("", "95%"), _heading(other)]
        headings += [("one-token", "words"), ("Renyi", "efficiency"), ("share of", "model"), ("words in", "context")]
        headings += [("decoding", "errors"), *((name, _heading(self.leads)[1]) for name in extra)]
        rows = [*map(list, zip(*headings, strict=True)), *(self._row(one, other, extra) for one in self.candidates)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
        lines = []
        for row in rows:
            mark = "*" if row[0] == self.chosen else " "
            right = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            lines.append("  ".join([f"{mark} {row[0].ljust(widths[0])}", *right]))
        return lines

    def _row(self, candidate: FertilityCandidate, other: Measure, extra: list[str]) -> list[str]:
        text = candidate.texts["heldout"]
        interval = text.ci95 if self.leads == "tokens_per_word" else text.bytes_per_token_ci95
        share, words = candidate.vocabulary_parameters_share, candidate.context_words
        texts = {str(name): measured for name, measured in candidate.texts.items()}
        return [
            candidate.name,
            f"{candidate.vocab_size:,}",
            f"{getattr(text, self.leads):.3f}",
            f"{interval[0]:.2f}-{interval[1]:.2f}" if interval else "",
            f"{getattr(text, other):.3f}",
            f"{text.one_token_words:.0%}",
            f"{text.renyi_efficiency:.3f}" if text.renyi_efficiency is not None else "",
            f"{share:.0%}" if share is not None else "",
            f"{words:,.0f}" if words is not None else "",
            f"{sum(measured.round_trip_errors for measured in texts.values()):,}",
            *(f"{getattr(texts[name], self.leads):.3f}" if name in texts else "" for name in extra),
        ]


def _heading(measure: Measure) -> tuple[str, str]:
    first, second = MEASURE_NAMES[measure].split(" ", 1)
    return first, second
