"""Text in columns: wrapped at words, by the cells that letters take on a terminal."""

from __future__ import annotations

import re
import unicodedata

from rich.cells import cell_len, set_cell_size

TAB = "    "
_WORDS = re.compile(r"\s*\S+|\s+$")


def visible(text: str) -> str:
    """The text without control characters, which would steer the terminal; line breaks and tabulators stay."""
    if text.isprintable():
        return text
    return "".join(
        "\ufffd" if unicodedata.category(letter) == "Cc" and letter not in "\n\t" else letter for letter in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """The rows of a text. More text changes the last row alone, and adds others."""
    rows: list[str] = []
    for line in text.replace("\t", TAB).split("\n"):
        row = ""
        for word in _WORDS.findall(line):
            if row and cell_len(row + word) > width:
                rows.append(row)
                row, word = "", word.lstrip()
            row += word
            while cell_len(row) > width:
                fitting = _beginning(row, width)
                rows.append(fitting)
                row = row[len(fitting) :]
        rows.append(row)
    return rows


def _beginning(text: str, width: int) -> str:
    """As many letters as fit, one at least."""
    count = len(text)
    while count > 1 and cell_len(text[:count]) > width:
        count = min(count - 1, max(1, len(text[:count]) * width // cell_len(text[:count])))
    while count < len(text) and cell_len(text[: count + 1]) <= width:
        count += 1
    return text[:count]


def padded(text: str, width: int) -> str:
    """The text in exactly so many cells."""
    return set_cell_size(text, width)
