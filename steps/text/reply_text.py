"""A reply's tokens as text that can be shown while it comes: whole characters, never a half one."""

from __future__ import annotations

import codecs
from collections.abc import Container

import regex

from steps.text.token_bytes import PieceBytes, TokenBytes

# What a further code point may still change: a thumb gets its colour, two letters become a flag, people a family.
_UNFINISHED = regex.compile(r"[\p{Extended_Pictographic}\p{Regional_Indicator}\u200d\ufe0f\U0001F3FB-\U0001F3FF]")
_CHARACTER = regex.compile(r"\X")


class ReplyText:
    """Takes the tokens of one reply and gives the text that is sure by then.

    skipped: ids that stand for no text, as control tokens.
    """

    def __init__(self, token_bytes: TokenBytes, skipped: Container[int] = ()) -> None:
        self._token_bytes, self._skipped = token_bytes, skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        # Sentencepiece writes a space before the first word that no text has.
        self._drops_space = isinstance(token_bytes, PieceBytes)

    def add(self, token_id: int) -> str:
        """The text that this token makes sure of; empty where its character is not whole yet."""
        if token_id in self._skipped:
            return ""
        text = self._decoder.decode(self._token_bytes[token_id])
        if text and self._drops_space:
            text, self._drops_space = text.removeprefix(" "), False
        text = self._held + text
        last = _last_character(text)
        self._held = last if _UNFINISHED.search(last) else ""
        return text[: len(text) - len(self._held)]

    def finish(self) -> str:
        """What was held back. The bytes of a character that was not finished are left out."""
        text, self._held = self._held, ""
        return text


def _last_character(text: str) -> str:
    """The last character as a reader counts them, of one code point or of many; empty for an empty text."""
    found = _CHARACTER.findall(text)
    return found[-1] if found else ""
