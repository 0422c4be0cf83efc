"""The words of the product's messages: every string literal of its packages, what is filled in left out."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "steps", "containers")
# What a quoted line has in the place of the reader's own.
PLACEHOLDER = re.compile(r"\b(?:PATH|NAME|NUMBER|TEXT)\b")
# Between the parts of a line: subject, value, limit, remedy.
SEPARATORS = re.compile(r"; limit |: |\. ")


@functools.cache
def literals() -> str:
    """All of them, one a line."""
    found = (text for package in PACKAGES for path in (ROOT / package).rglob("*.py") for text in literals_of(path))
    return "\n".join(dict.fromkeys(found))


def literals_of(path: Path) -> Iterator[str]:
    """The string literals of a file; of a formatted one the fixed parts, each alone."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def fixed_words(line: str) -> list[str]:
    """What of a quoted line must stand in the source, piece by piece; settings and single words are pieces, too."""
    pieces = [piece for part in PLACEHOLDER.split(line) for piece in SEPARATORS.split(part)]
    return [piece for piece in (piece.strip(" ,.:;()") for piece in pieces) if re.search(r"[A-Za-z]{2}", piece)]


def is_in_source(piece: str) -> bool:
    """Whether a piece is part of one literal, or of two that a message puts side by side."""
    if piece in literals():
        return True
    halves = ((piece[: space.start()], piece[space.end() :]) for space in re.finditer(" ", piece))
    return any(
        min(len(first.split()), len(second.split())) > 1 and first in literals() and second in literals()
        for first, second in halves
    )
