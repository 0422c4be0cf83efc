"""HTML and SVG made of elements: whatever is not markup already is escaped, corpus text and paths before all."""

from __future__ import annotations

import html
import unicodedata

# Marks that turn the direction of a line: a sample could make a figure beside it read backwards.
DIRECTION_MARKS = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}
VOID = ("meta", "wbr")


class Markup(str):
    """Text that is markup, made by `element` and `joined` alone."""

    __slots__ = ()


Content = str | Markup | None


def visible_text(text: str) -> str:
    """A text without what no page should get: control characters, halves of surrogates and marks of direction are shown
    by their code."""
    return "".join(letter if _is_shown(letter) else f"\\u{ord(letter):04X}" for letter in text)


def _is_shown(letter: str) -> bool:
    if letter in "\n\t":
        return True
    return ord(letter) not in DIRECTION_MARKS and unicodedata.category(letter) not in ("Cc", "Cs", "Cn")


def escaped(content: Content) -> Markup:
    """Markup as it is, a text escaped, None as nothing."""
    if content is None or isinstance(content, Markup):
        return content or Markup("")
    return Markup(html.escape(visible_text(content)))


def joined(*contents: Content) -> Markup:
    """Several pieces one after the other."""
    return Markup("".join(map(escaped, contents)))


def element(name: str, /, *contents: Content, **attributes: str | float | None) -> Markup:
    """An element. Attributes are named as in HTML; `class_` is class, an underscore a hyphen, None no attribute."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(visible_text(_number(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(*contents)}</{name}>")


def _number(value: str | float) -> str:
    """A coordinate to two decimals: more cannot be seen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
