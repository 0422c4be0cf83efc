"""The bytes that each token of a byte-level tokenizer stands for."""

from __future__ import annotations

from functools import cache

from transformers import PreTrainedTokenizerBase

from steps.contract import StepError


@cache
def byte_of_character() -> dict[str, int]:
    """Byte behind each of the 256 characters that byte-level tokenizers write bytes with (GPT-2's table).

    Printable Latin-1 bytes stand for themselves; the other 68, in order, are the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


class TokenBytes:
    """Bytes by token id. A token is read by its byte-level spelling, never decoded alone: decoding one token that ends
    inside a character gives the replacement character, three bytes that the text does not have (nanochat#693).

    Raises StepError for a token whose spelling is not byte-level.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._added = {index: token.content for index, token in tokenizer.added_tokens_decoder.items()}
        self._known: dict[int, bytes] = {}

    def __getitem__(self, token_id: int) -> bytes:
        if token_id not in self._known:
            self._known[token_id] = self._read(token_id)
        return self._known[token_id]

    def _read(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        spelling = self._tokenizer.convert_ids_to_tokens(token_id)
        table = byte_of_character()
        if not isinstance(spelling, str) or any(character not in table for character in spelling):
            raise StepError(
                f"token {token_id}", repr(spelling), limit="a byte-level token", remedy="Give a byte-level tokenizer."
            )
        return bytes(table[character] for character in spelling)
