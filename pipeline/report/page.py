"""A report as one HTML file: no script, no network, readable on a telephone, in the dark and on paper.

The page's own policy forbids scripts and every request, whatever the texts in it are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import singledispatch
from importlib import resources

from pipeline.report import blocks
from pipeline.report.blocks import SIGNS, Cell, Figure, Report, Section, Tone, Verdict
from pipeline.report.facts import Token
from pipeline.report.markup import Markup, element, joined

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# Shades of tokens, one after the other.
TOKEN_SHADES = 5
# Letters of a cell that is kept on one line.
SHORT_CELL = 24


def page(report: Report) -> str:
    """The whole file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{report.verdicts[0].text}: {report.title}"),
        element("style", Markup(style())),
    )
    header = element(
        "header",
        element("p", report.title, " ", element("code", report.place), class_="title"),
        *(_verdict(verdict) for verdict in report.verdicts),
        element("dl", *(_figure(figure) for figure in report.figures), class_="figures"),
    )
    links = [element("a", section.title, href=f"#{section.anchor}") for section in report.sections if section.anchor]
    body = element(
        "body",
        element("main", header, element("nav", *links, aria_label="Sections"), *map(_section, report.sections)),
    )
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def style() -> str:
    """The page's style sheet, as it stands beside this module."""
    return resources.files("pipeline.report").joinpath("style.css").read_text("utf-8")


def _verdict(verdict: Verdict) -> Markup:
    reasons = element("ul", *(element("li", reason) for reason in verdict.reasons)) if verdict.reasons else None
    heading = element("h1", element("span", SIGNS[verdict.tone], class_="sign", aria_hidden="true"), " ", verdict.text)
    return element("div", heading, reasons, class_=f"verdict {verdict.tone}")


def _figure(figure: Figure) -> Markup:
    parts = figure.value.split(" → ")
    # Each value stays whole; a line may break before an arrow.
    value = joined(*(joined(" → " if number else "", element("span", part)) for number, part in enumerate(parts)))
    return element(
        "div",
        element("dt", figure.name),
        element("dd", value, class_="value"),
        element("dd", figure.note, class_="note"),
    )


def _section(section: Section) -> Markup:
    return element(
        "section", element("h2", section.title), *map(rendered, section.blocks), id=section.anchor or None
    )  # fmt: skip


@singledispatch
def rendered(block: object) -> Markup:
    """The markup of a block."""
    raise AssertionError(f"no block: {block!r}")


@rendered.register
def _(block: blocks.Subheading) -> Markup:
    return element("h3", block.text)


@rendered.register
def _(block: blocks.Paragraph) -> Markup:
    return element("p", _sign(block.tone), block.text, class_=block.tone)


@rendered.register
def _(block: blocks.Items) -> Markup:
    rows = [element("li", _sign(block.tone), text) for text in block.texts]
    return element("ul", *rows, class_=f"items {block.tone or ''}".strip())


@rendered.register
def _(block: blocks.Table) -> Markup:
    head = [_cell("th", text, column in block.right) for column, text in enumerate(block.headings)]
    rows = [
        element("tr", *(_cell("td", cell, column in block.right) for column, cell in enumerate(row)),
                class_="chosen" if number == block.chosen else None)
        for number, row in enumerate(block.rows)
    ]  # fmt: skip
    table = element("table", element("thead", element("tr", *head)), element("tbody", *rows))
    # One that is wider than the page moves within its box, by keyboard, too.
    return element("div", table, class_="box", tabindex="0", role="region", aria_label="table")


def _cell(name: str, content: Cell | str, is_right: bool) -> Markup:
    cell = content if isinstance(content, Cell) else Cell(content)
    kinds = ["right"] if is_right else []
    kinds += [cell.tone] if cell.tone else []
    kinds += ["short"] if len(cell.text) <= SHORT_CELL and not cell.is_code else []
    text = element("code", cell.text) if cell.is_code else _breakable(cell.text)
    return element(name, _sign(cell.tone), text, class_=" ".join(kinds) or None)


def _breakable(text: str) -> Markup:
    """A text in which a long word may break after its dots and underscores."""
    if max(map(len, text.split()), default=0) <= SHORT_CELL:
        return joined(text)
    parts = re.split(r"(?<=[._])(?=\w)", text)
    return joined(*(joined(element("wbr") if number else None, part) for number, part in enumerate(parts)))


@rendered.register
def _(block: blocks.Picture) -> Markup:
    legend = [element("span", element("span", class_=f"key series-{number}"), name) for number, name in block.legend]
    caption = element(
        "figcaption",
        element("strong", block.title),
        element("span", block.unit, class_="unit"),
        element("span", *legend, class_="legend") if legend else None,
    )
    drawing = element("div", block.svg, class_="box", tabindex="0", role="region", aria_label=block.title)
    return element("figure", caption, drawing, class_="wide" if block.is_wide else None)


@rendered.register
def _(block: blocks.Gallery) -> Markup:
    return element("div", *map(rendered, block.pictures), class_="gallery")


@rendered.register
def _(block: blocks.Pair) -> Markup:
    return element("div", rendered(block.picture), element("div", *map(rendered, block.beside)), class_="pair")


@rendered.register
def _(block: blocks.Details) -> Markup:
    return element("details", element("summary", block.title), *map(rendered, block.blocks))


@rendered.register
def _(block: blocks.Cut) -> Markup:
    name = element("p", element("strong", block.name), element("span", block.note, class_="unit"), class_="cut-name")
    return joined(name, element("p", *_tokens(block.tokens), class_="cut large" if block.is_large else "cut", lang=""))


def _tokens(tokens: Sequence[Token]) -> list[Markup]:
    return [
        element("span", *_token_parts(token), class_=f"token shade-{number % TOKEN_SHADES}")
        for number, token in enumerate(tokens)
    ]


def _token_parts(token: Token) -> Iterator[Markup | str]:
    """The text of a token; a byte that is no whole letter small, by its two digits."""
    if not token.has_part_of_letter:
        yield token.text.replace("\n", "⏎")
        return
    for number, part in enumerate(re.split(r"\\x([0-9A-F]{2})", token.text)):
        yield element("small", part) if number % 2 else part


@rendered.register
def _(block: blocks.Sample) -> Markup:
    replies = [
        element(
            "div",
            element("p", element("strong", name), element("span", note, class_="unit"), class_="cut-name"),
            element("blockquote", text if text.strip() else "(nothing)", dir="auto", lang=""),
        )
        for name, text, note in block.replies
    ]
    quoted = element("q", block.prompt, dir="auto", lang="")
    prompt = element("p", element("span", "prompt", class_="unit"), " ", quoted)
    return element("article", prompt, element("div", *replies, class_="replies"), class_="sample")


def _sign(tone: Tone | None) -> Markup | None:
    return None if tone in (None, "plain") else element("span", f"{SIGNS[tone]} ", class_="sign", aria_hidden="true")
