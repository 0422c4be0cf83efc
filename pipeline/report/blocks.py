"""The parts that a report is laid out of, the same for the HTML page and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.report.facts import Token
from pipeline.report.markup import Markup

Tone = Literal["good", "bad", "warn", "plain"]
# A sign beside each colour: a page is also read without colours.
SIGNS: dict[Tone, str] = {"good": "✓", "bad": "✗", "warn": "!", "plain": "·"}


@dataclass(frozen=True)
class Cell:
    """tone: colours it, and puts its sign before. is_code: a name, path or digest."""

    text: str
    tone: Tone | None = None
    is_code: bool = False


Row = list[Cell | str]


@dataclass(frozen=True)
class Table:
    """rows: each as long as headings. right: columns of numbers. chosen: the row that is set apart."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    right: frozenset[int] = frozenset()
    chosen: int | None = None


@dataclass(frozen=True)
class Paragraph:
    text: str
    tone: Tone | None = None


@dataclass(frozen=True)
class Items:
    """A list; an empty one is not shown."""

    texts: Sequence[str]
    tone: Tone | None = None


@dataclass(frozen=True)
class Picture:
    """A chart under its title. tells: the same in words, which Markdown has in its place. is_wide: over the
    whole page.

    legend: (number of the colour, name) where several lines are drawn.
    """

    title: str
    unit: str
    svg: Markup
    tells: str
    is_wide: bool = False
    legend: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side, as many as there is room for."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Cut:
    """A text as the tokens of one tokenizer. is_large: one word, drawn large."""

    name: str
    tokens: Sequence[Token]
    note: str
    is_large: bool = False


@dataclass(frozen=True)
class Sample:
    """A prompt, and what each model wrote after it, with a note on each."""

    prompt: str
    replies: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Pair:
    """A picture with what belongs to it beside it, where there is room."""

    picture: Picture
    beside: Sequence[Block]


@dataclass(frozen=True)
class Details:
    """What few want to read: closed until it is asked for, open on paper."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Subheading:
    text: str


Block = Table | Paragraph | Items | Picture | Gallery | Cut | Sample | Pair | Details | Subheading


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence[Block]
    anchor: str = ""


@dataclass(frozen=True)
class Figure:
    """One of the figures that stand on top. source: the file, and where in it, that the value is read from."""

    name: str
    value: str
    note: str
    source: str = ""


@dataclass(frozen=True)
class Verdict:
    tone: Tone
    text: str
    reasons: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """verdicts, figures: of the one run, or of each of two, by its name."""

    title: str
    place: str
    verdicts: Sequence[Verdict]
    figures: Sequence[Figure]
    sections: Sequence[Section] = field(default_factory=tuple)
