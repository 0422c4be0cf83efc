"""A report as Markdown: the same parts in the same order, charts in words, tokens with a bar between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import singledispatch

from pipeline.report import blocks
from pipeline.report.blocks import SIGNS, Cell, Report, Tone
from pipeline.report.facts import Token
from pipeline.report.markup import visible_text

BETWEEN = "│"
# What Markdown, or the HTML in it, would act on.
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown(report: Report) -> str:
    """The whole file."""
    lines = [f"# {_verdict(report.verdicts[0].tone, report.verdicts[0].text)}", ""]
    for number, verdict in enumerate(report.verdicts):
        lines += [f"**{_verdict(verdict.tone, verdict.text)}**", ""] if number else []
        lines += [*(f"- {text_line(reason)}" for reason in verdict.reasons), *([""] if verdict.reasons else [])]
    lines += [f"{text_line(report.title)} {code(report.place)}", ""]
    rows = [[figure.name, figure.value, figure.note] for figure in report.figures]
    lines += [*_table(blocks.Table(("", "", ""), rows)), ""]
    for section in report.sections:
        lines += [f"## {text_line(section.title)}", ""]
        for block in section.blocks:
            lines += [*written(block), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def text_line(text: str) -> str:
    """A text of one line in which nothing is Markdown or HTML."""
    return _SIGNS.sub(r"\\\1", visible_text(" ".join(text.split()))).replace("&", "&amp;")


def code(text: str) -> str:
    """A text in backticks, more of them than it holds itself."""
    shown = visible_text(" ".join(text.split()))
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}" if shown else ""


def fenced(text: str) -> list[str]:
    """A text of several lines as it is, within a fence that it does not hold itself."""
    shown = visible_text(text)
    fence = "`" * max(3, max(map(len, re.findall("`+", shown)), default=0) + 1)
    return [f"{fence}text", *shown.split("\n"), fence]


def _verdict(tone: Tone, text: str) -> str:
    return f"{SIGNS[tone]} {text_line(text)}"


def _table(table: blocks.Table) -> list[str]:
    marks = ["---:" if column in table.right else "---" for column in range(len(table.headings))]
    head = [_row([*table.headings]), f"| {' | '.join(marks)} |"]
    return head + [_row(row, is_chosen=number == table.chosen) for number, row in enumerate(table.rows)]


def _row(row: Sequence[Cell | str], *, is_chosen: bool = False) -> str:
    return f"| {' | '.join(_cell(cell, is_chosen) for cell in row)} |"


def _cell(content: Cell | str, is_chosen: bool) -> str:
    cell = content if isinstance(content, Cell) else Cell(content)
    # A bar ends a cell, in code as well.
    shown = code(cell.text).replace("|", "\\|") if cell.is_code else text_line(cell.text)
    shown = f"**{shown}**" if is_chosen and shown else shown
    return f"{SIGNS[cell.tone]} {shown}" if cell.tone and cell.tone != "plain" else shown


@singledispatch
def written(block: object) -> Iterator[str]:
    """The lines of a block."""
    raise AssertionError(f"no block: {block!r}")


@written.register
def _(block: blocks.Subheading) -> Iterator[str]:
    yield f"### {text_line(block.text)}"


@written.register
def _(block: blocks.Paragraph) -> Iterator[str]:
    yield f"{SIGNS[block.tone]} {text_line(block.text)}" if block.tone else text_line(block.text)


@written.register
def _(block: blocks.Items) -> Iterator[str]:
    for text in block.texts:
        yield f"- {text_line(text)}"


@written.register
def _(block: blocks.Table) -> Iterator[str]:
    yield from _table(block)


@written.register
def _(block: blocks.Picture) -> Iterator[str]:
    yield f"**{text_line(block.title)}** ({text_line(block.unit)}): {text_line(block.tells)}"


@written.register
def _(block: blocks.Gallery) -> Iterator[str]:
    for picture in block.pictures:
        yield from written(picture)
        yield ""


@written.register
def _(block: blocks.Pair) -> Iterator[str]:
    for part in (block.picture, *block.beside):
        yield from written(part)
        yield ""


@written.register
def _(block: blocks.Details) -> Iterator[str]:
    yield f"### {text_line(block.title)}"
    yield ""
    for part in block.blocks:
        yield from written(part)
        yield ""


@written.register
def _(block: blocks.Cut) -> Iterator[str]:
    yield f"**{text_line(block.name)}** ({text_line(block.note)}):"
    yield ""
    yield from fenced(BETWEEN.join(map(_token, block.tokens)))


def _token(token: Token) -> str:
    return token.text.replace("\n", "⏎")


@written.register
def _(block: blocks.Sample) -> Iterator[str]:
    yield f"**Prompt:** {text_line(block.prompt)}"
    for name, text, note in block.replies:
        yield ""
        yield f"{name}{f' ({text_line(note)})' if note else ''}:"
        yield ""
        yield from fenced(text if text.strip() else "(nothing)")
