"""The characters that byte-level tokenizers write bytes with (GPT-2's table)."""

from __future__ import annotations

from functools import cache


@cache
def byte_of_character() -> dict[str, int]:
    """Byte behind each of the 256 characters, in the order of Llama 3's first 256 ids.

    Printable Latin-1 bytes stand for themselves; the other 68, in order, are the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


@cache
def _characters() -> dict[int, str]:
    return {byte: character for character, byte in byte_of_character().items()}


def spell(token: bytes) -> str:
    """A token's spelling: one character a byte."""
    return token.decode("latin-1").translate(_characters())


def bytes_of(spelling: str) -> bytes:
    """The bytes that a spelling stands for. Raises KeyError for a character that stands for none."""
    table = byte_of_character()
    return bytes(table[character] for character in spelling)
