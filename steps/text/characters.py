"""What a document's characters tell of its making: markup left in, wrong decoding, invisible characters, capitals."""

from __future__ import annotations

import re

# Names of the findings that `character_flags` gives.
MOJIBAKE, HTML_MARKUP, ALL_CAPITALS = "mojibake", "html-markup", "all-capitals"
UNUSUAL_KINDS = {
    "control characters": r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f",
    "zero-width characters": r"\u200b\u2060\ufeff",
    "soft hyphens": r"\u00ad",
    "private-use characters": r"\ue000-\uf8ff",
}
_UNUSUAL = re.compile(f"[{''.join(UNUSUAL_KINDS.values())}]")
_UNUSUAL_BY_KIND = {kind: re.compile(f"[{characters}]") for kind, characters in UNUSUAL_KINDS.items()}

_TAG = re.compile(
    r"</?(?:a|b|i|u|p|br|hr|h[1-6]|em|strong|span|div|font|img|ul|ol|li|table|tbody|tr|td|th|script|style|link|meta"
    r"|head|body|html|iframe|form|input|button|nav|section|article|header|footer)(?:\s[^<>]{0,300})?/?>",
    re.IGNORECASE,
)
_ENTITY = re.compile(
    r"&(?:nbsp|amp|lt|gt|quot|apos|[lr]aquo|[lr]dquo|[lr]squo|[mn]dash|hellip|#\d{2,6}|#x[0-9a-f]{2,5});", re.IGNORECASE
)

# UTF-8 read as Latin-1, cp1252 or cp1254: the first byte of a letter becomes one of these ...
_LEAD = "ÂÃÄÅÆÇÈÉÊËÌÍÎÏÐĞÑÒÓÔÕÖ×ØÙ"
# ... and the second one of these. Left out is what may follow a capital in good text: quotation marks, dashes, dots,
# the no-break space and letters.
_SECOND = "\u0080-\u009f€‚ƒ„†‡ˆ‰‹˜™›¡¢£¤¥¦§¨©¬\u00ad®¯°±²³´µ¶·¸¹¼½¾¿"
# Pairs whose second is a letter or the like: Ş ş Ğ ğ Ü ª º; quotation marks, the byte order mark, text decoded twice.
_PAIRS = "Å[žŸ]|Ä[žŸ]|Ã[œŸªº]|â€|ï»¿|Ã‚|Ã„|Ã…|Ãƒ|Â\u00a0"
# UTF-8 read as cp1251, three letters or more of it in a row.
_AS_1251 = r"(?:[РС][\u0402-\u040f\u0452-\u045f°±Ііґµ¶·№»«‚„…†‡€‰‹‘’“”•–—™›¤¦§©¬®\u00a0]){3,}"
_MOJIBAKE = re.compile(f"[{_LEAD}][{_SECOND}]|{_PAIRS}|\ufffd|{_AS_1251}|Й™|Д[±°]|Г[¶§]")
# No text without one of these holds any of it; a pattern that begins with a set is found many times faster.
_SECOND_OF_ANY = f"{_SECOND}žŸœªº»\u00a0\u0402-\u040f\u0452-\u045fІіґµ№«’“”•–—™…ƒ"
_MOJIBAKE_CANDIDATE = re.compile(f"[{_LEAD}âï\ufffdРСЙДГ](?:(?<=\ufffd)|[{_SECOND_OF_ANY}‘])")
_CAPITALS_CHARACTERS = range(20, 501)


def first_mojibake(text: str) -> str | None:
    """The first characters of UTF-8 that was read in another encoding, or U+FFFD; None where there are none."""
    if text.isascii() or not _MOJIBAKE_CANDIDATE.search(text):
        return None
    match = _MOJIBAKE.search(text)
    return match.group() if match else None


def first_markup(text: str) -> str | None:
    """The first HTML tag, else the first entity; None where there is none."""
    match = (_TAG.search(text) if "<" in text else None) or (_ENTITY.search(text) if "&" in text else None)
    return match.group() if match else None


def character_flags(text: str) -> list[str]:
    """The names of what was found in a document: MOJIBAKE, HTML_MARKUP, ALL_CAPITALS and the keys of UNUSUAL_KINDS."""
    flags = []
    if first_mojibake(text) is not None:
        flags.append(MOJIBAKE)
    # Of text decoded wrongly, control characters are a part.
    elif _UNUSUAL.search(text):
        flags += [kind for kind, characters in _UNUSUAL_BY_KIND.items() if characters.search(text)]
    if first_markup(text) is not None:
        flags.append(HTML_MARKUP)
    head = text[: _CAPITALS_CHARACTERS[-1]]
    # isupper() asks for one letter with a case; a text in a script without cases may hold one abbreviation.
    if len(head) in _CAPITALS_CHARACTERS and head.isupper() and 2 * sum(map(str.isupper, head)) > len(head):
        flags.append(ALL_CAPITALS)
    return flags
