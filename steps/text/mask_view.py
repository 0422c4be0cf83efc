"""A conversation's tokens for the eye: which are trained, and where each begins and ends.

Two ways to show them, both wrapped to a width:

    painted   for a terminal with colours: trained tokens on green, the others on grey, control tokens dim, the shade
              changing from token to token
    marked    without colours: ⟦trained tokens⟧, a │ between two tokens

In both a line break of the text is ⏎ before the break, a byte of a character that tokens share \\xC9, what no terminal
should get (control characters, marks of direction, joiners) its code.
"""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

OPEN, CLOSE, BETWEEN, BREAK = "⟦", "⟧", "│", "⏎"
SIGNS = (OPEN, CLOSE, BETWEEN, BREAK)
# Colours of xterm's 256, by (trained, control): dark letters on two greens, light ones on two greys.
LETTERS = {(True, False): 16, (True, True): 239, (False, False): 252, (False, True): 245}
SHADES = {True: (114, 71), False: (236, 239)}
HALF_CHARACTERS = "langadapt.half_characters"
# Categories of letters that are shown by their code: controls, formats, private use, unassigned, line separators.
HIDDEN = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")


def _spell_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"\\x{byte:02X}" for byte in error.object[error.start : error.end]), error.end


codecs.register_error(HALF_CHARACTERS, _spell_bytes)


@dataclass(frozen=True)
class ViewedToken:
    """text: what its bytes spell, those that are no whole character as \\xC9."""

    id: int
    text: str
    is_trained: bool
    is_control: bool


@dataclass(frozen=True)
class Piece:
    """Text of one style; a line break in it ends a line. style: parameters of an SGR sequence, empty for none."""

    text: str
    style: str = ""


def text_of_bytes(spelled: bytes) -> str:
    """The text of a token's bytes, those that are no whole character as \\xC9."""
    return spelled.decode(errors=HALF_CHARACTERS)


def visible(text: str, signs: Sequence[str] = (BREAK,)) -> str:
    """The text with ⏎ before its line breaks and codes for what cannot be seen, or is one of the signs in use."""
    shown = "".join(letter if letter == "\n" else _visible_letter(letter, signs) for letter in text)
    if shown and unicodedata.category(shown[0]).startswith("M"):
        # A mark that begins a token would sit on the letter of another.
        shown = f"◌{shown}"
    return re.sub("\n+", lambda found: f"{BREAK * len(found[0])}\n", shown)


def _visible_letter(letter: str, signs: Sequence[str]) -> str:
    if letter not in signs and unicodedata.category(letter) not in HIDDEN:
        return letter
    code = ord(letter)
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def painted(tokens: Sequence[ViewedToken], end_of_turn: str) -> Iterator[Piece]:
    """The tokens in colours; a turn ends its line."""
    for number, token in enumerate(tokens):
        style = style_of(token.is_trained, token.is_control, number)
        yield Piece(visible(token.text) + _turn_break(token, end_of_turn), style)


def style_of(is_trained: bool, is_control: bool, number: int) -> str:
    """The SGR parameters of the token with this number."""
    return f"38;5;{LETTERS[is_trained, is_control]};48;5;{SHADES[is_trained][number % 2]}"


def marked(tokens: Sequence[ViewedToken], end_of_turn: str) -> Iterator[Piece]:
    """The tokens with brackets around the trained and bars between all; a turn ends its line."""
    before = [False, *(token.is_trained for token in tokens)]
    for number, token in enumerate(tokens):
        following = tokens[number + 1].is_trained if number + 1 < len(tokens) else None
        opening = OPEN if token.is_trained and not before[number] else ""
        closing = CLOSE if token.is_trained and not following else "" if following is None else BETWEEN
        # A bracket that opens parts as well as a bar does.
        closing = "" if closing == BETWEEN and following and not token.is_trained else closing
        shown = visible(token.text, SIGNS) + _turn_break(token, end_of_turn)
        body, newline = (shown[:-1], "\n") if shown.endswith("\n") else (shown, "")
        yield Piece(f"{opening}{body}{closing}{newline}")


def _turn_break(token: ViewedToken, end_of_turn: str) -> str:
    return "\n" if token.is_control and token.text == end_of_turn else ""


def wrapped(pieces: Iterable[Piece], columns: int | None) -> list[str]:
    """The pieces as lines of at most so many columns, None for any number; a piece that fits a line is not cut."""
    lines: list[str] = []
    line, used = "", 0
    for piece in pieces:
        for index, part in enumerate(piece.text.split("\n")):
            if index:
                lines.append(line)
                line, used = "", 0
            for cut in _cut(part, used, columns):
                if cut is None:
                    lines.append(line)
                    line, used = "", 0
                    continue
                line += f"\x1b[{piece.style}m{cut}\x1b[0m" if piece.style else cut
                used += cell_len(cut)
    return [*lines, line] if line else lines


def _cut(text: str, used: int, columns: int | None) -> Iterator[str | None]:
    """Parts of a text that fit into the columns that are left of a line, then of whole ones; None for a new line."""
    if not text:
        return
    if columns is None or used + cell_len(text) <= columns:
        yield text
        return
    if used and cell_len(text) <= columns:
        yield None
        yield text
        return
    sizes = [cell_len(letter) for letter in text]
    start, room = 0, columns - used
    ends = list(itertools.accumulate(sizes, initial=0))
    for end in range(1, len(text) + 1):
        if ends[end] - ends[start] > room:
            if start < end - 1:
                yield text[start : end - 1]
            yield None
            start, room = end - 1, columns
    yield text[start:]
