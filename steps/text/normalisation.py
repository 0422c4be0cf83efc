"""Normalising text: NFC, line ends, control characters, Cyrillic look-alikes inside Latin words. Never lower-casing:
it would break the Turkic pairs İ/i and I/ı."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Cyrillic letters that look like Latin ones, as they stand in Latin-script texts typed on a Cyrillic keyboard.
LATIN_LOOK_ALIKES = str.maketrans(
    {
        "А": "A", "В": "B", "Е": "E", "К": "K", "М": "M", "Н": "H", "О": "O", "Р": "P", "С": "C", "Т": "T", "Х": "X",
        "У": "Y", "І": "I", "Ј": "J", "Ѕ": "S", "Ә": "Ə", "Һ": "H", "Ө": "Ö",
        "а": "a", "е": "e", "к": "k", "м": "m", "о": "o", "р": "p", "с": "c", "т": "t", "х": "x", "у": "y", "і": "i",
        "ј": "j", "ѕ": "s", "ә": "ə", "һ": "h", "ө": "ö",
    }
)  # fmt: skip
_CYRILLIC = r"\u0400-\u04ff"
# From the first letter of a word on: elsewhere nothing is tried.
_WORD_WITH_CYRILLIC = re.compile(rf"(?<![^\W\d_])(?:[^\W\d_{_CYRILLIC}]*+[{_CYRILLIC}])[^\W\d_]*+")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u0259\u018f]")
_UNMAPPED_CYRILLIC = re.compile(rf"[{_CYRILLIC}]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\u2060]")
# A zero-width space marks the edge of a word in Thai, Lao, Tibetan, Myanmar and Khmer; elsewhere it is a remnant.
_WITHOUT_SPACES = r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaa7f"
_ZERO_WIDTH_SPACE = re.compile(rf"(?<![{_WITHOUT_SPACES}])\u200b+(?![{_WITHOUT_SPACES}\u200b])")
# Beside these, characters may change in NFC or make others change. Most text has few of them, and is found to be NFC
# four times as fast as by looking each character up.
_NFC_ALONE = r"\u0000-\u02ff\u0400-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf"
_MAY_CHANGE_IN_NFC = re.compile(f"[^{_NFC_ALONE}]")
_SPACE_AT_LINE_END = re.compile(r"[ \t]+\n")
_MANY_BLANK_LINES = re.compile(r"\n{3,}")


def normalise(text: str) -> str:
    """NFC; one kind of line end; no control characters, trailing spaces or runs of blank lines."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if "\u200b" in text:
        text = _ZERO_WIDTH_SPACE.sub("", text)
    # Only now: what was deleted may have stood between a letter and its mark.
    if _MAY_CHANGE_IN_NFC.search(text):
        text = unicodedata.normalize("NFC", text)
    if " \n" in text or "\t\n" in text:
        text = _SPACE_AT_LINE_END.sub("\n", text)
    if "\n\n\n" in text:
        text = _MANY_BLANK_LINES.sub("\n\n", text)
    return text.strip()


def repair_homoglyphs(text: str) -> tuple[str, int]:
    """The text, NFC, with Cyrillic look-alikes inside Latin words mapped to Latin, and how many letters that were.

    A word is Latin when it has a Latin letter and each of its Cyrillic letters has a Latin look-alike; a word of
    Cyrillic letters alone stays as it is.
    """
    repaired = 0
    if not _UNMAPPED_CYRILLIC.search(text):
        return text, 0

    def repair(match: re.Match[str]) -> str:
        nonlocal repaired
        word = match.group()
        if not _LATIN.search(word):
            return word
        mapped = word.translate(LATIN_LOOK_ALIKES)
        if _UNMAPPED_CYRILLIC.search(mapped):
            return word
        repaired += sum(before != after for before, after in zip(word, mapped, strict=True))
        return mapped

    # A mark that has no composed form with the Cyrillic letter may have one with the Latin letter.
    return unicodedata.normalize("NFC", _WORD_WITH_CYRILLIC.sub(repair, text)), repaired


def segments(text: str, characters: int) -> Iterator[str]:
    """A text in pieces of at most so many characters, to be normalised one by one: a long one whole would take several
    times its memory. Cut at a blank line, else a line end, else a space, which the next piece begins with."""
    start = 0
    while len(text) - start > characters:
        end = start + characters
        places = (text.rfind(separator, start + characters // 2, end) for separator in ("\n\n", "\n", " "))
        end = next((place for place in places if place != -1), end)
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def cut(text: str, max_bytes: int) -> list[str]:
    """The text in pieces of at most `max_bytes` of UTF-8, cut at a blank line, else a line end, else a space."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return [text] if text else []
    pieces: list[str] = []
    start = 0
    while start < len(encoded):
        window = encoded[start : start + max_bytes].decode("utf-8", errors="ignore")
        head = window.lstrip()
        if start + max_bytes >= len(encoded):
            pieces.append(head.strip())
            break
        if len(head) < len(window):
            # The spaces between two pieces belong to neither and take no room in the next.
            start += len(window[: len(window) - len(head)].encode())
            continue
        places = (head.rfind(separator) for separator in ("\n\n", "\n", " "))
        # A separator in the first half would leave a needlessly small piece.
        end = next((place for place in places if place > len(head) // 2), len(head))
        pieces.append(head[:end].strip())
        start += len(head[:end].encode())
    return [piece for piece in pieces if piece]
