"""The bytes that each token of a tokenizer stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from steps.contract import StepError
from steps.text.byte_characters import byte_of_character

# How sentencepiece writes a space, and a byte that no piece covers.
SPACE_PIECE = "▁"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


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


class PieceBytes(TokenBytes):
    """Bytes by token id of a sentencepiece-like tokenizer, as Llama 2, Mistral and Gemma have: a piece is its letters,
    with U+2581 for a space, and <0x0A> is one byte. A special token is its own letters."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self._special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}

    def _read(self, token_id: int) -> bytes:
        spelling = self._added.get(token_id) or self._tokenizer.convert_ids_to_tokens(token_id)
        if token_id in self._special or not isinstance(spelling, str):
            return str(spelling).encode()
        byte = BYTE_PIECE.fullmatch(spelling)
        return bytes([int(byte[1], 16)]) if byte else spelling.replace(SPACE_PIECE, " ").encode()


def token_bytes_of(tokenizer: PreTrainedTokenizerBase) -> TokenBytes:
    """The bytes of any tokenizer's tokens, byte-level or sentencepiece-like. Raises StepError for one that is neither,
    such as WordPiece, whose tokens do not say where a space stood."""
    backend = tokenizer.backend_tokenizer
    # Their state is JSON; that of the whole tokenizer would bring its vocabulary along.
    states = [part.__getstate__() for part in (backend.normalizer, backend.pre_tokenizer, backend.decoder) if part]
    parts = json.dumps([json.loads(state) for state in states], ensure_ascii=False)
    if '"ByteLevel"' in parts:
        return TokenBytes(tokenizer)
    if '"Metaspace"' in parts or SPACE_PIECE in parts:
        return PieceBytes(tokenizer)
    raise StepError(
        "tokenizer",
        f"{type(backend.model).__name__} whose tokens do not spell bytes",
        limit="byte-level or sentencepiece",
        remedy="Give a model with such a tokenizer.",
    )


def spelled_sizes(token_bytes: TokenBytes, ids: Sequence[int], text: str) -> list[int] | None:
    """Bytes of the text behind each token, which add up to the text's; None where the tokens spell something else.

    Sentencepiece puts a space before a text that has none. That space is no part of the text, so the first token
    stands for one byte less, be it none; its probability counts all the same.
    """
    pieces = [token_bytes[token_id] for token_id in ids]
    spelled, wanted = b"".join(pieces), text.encode()
    sizes = [len(piece) for piece in pieces]
    if spelled == b" " + wanted:
        sizes[0] -= 1
    elif spelled != wanted:
        return None
    return sizes
