"""Cuts a text into the tokens of several tokenizers, for the eye.

    python -m steps.cut_text TOKENIZER_JSON [TOKENIZER_JSON]... < TEXT

Reads    the text, UTF-8, from standard input; each tokenizer from its tokenizer.json alone, so that neither torch nor
         transformers is imported

Prints one JSON object: {"cuts": [[{"text", "bytes"}...]...]}, a list of tokens for each tokenizer in the order of the
command line. text: what the token's bytes spell, those that are no whole character as \\xC9. bytes: how many it has, so
that the tokens of a byte-level tokenizer can be laid over the text. No special token is added. Exit code 0, or 1 with
one line on standard error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from steps.text.byte_characters import byte_of_character
from steps.text.mask_view import text_of_bytes

# How sentencepiece writes a space, and a byte that no piece covers.
SPACE_PIECE = "▁"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def cut(tokenizer: Tokenizer, text: str) -> list[bytes]:
    """The bytes of each token of a text."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
    return [added[index].encode() if index in added else _bytes_of(tokenizer.id_to_token(index)) for index in ids]


def _bytes_of(spelling: str | None) -> bytes:
    """Of a byte-level spelling, else of sentencepiece's, whose sign for a space is none of the byte-level letters."""
    # An id that the tokenizer itself has given has a spelling.
    assert spelling is not None
    if byte := BYTE_PIECE.fullmatch(spelling):
        return bytes([int(byte[1], 16)])
    table = byte_of_character()
    if all(letter in table for letter in spelling):
        return bytes(table[letter] for letter in spelling)
    return spelling.replace(SPACE_PIECE, " ").encode()


def main(arguments: Sequence[str]) -> int:
    """Prints the cuts; returns the exit code."""
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    cuts = []
    for path in map(Path, arguments):
        try:
            content = path.read_bytes()
            tokenizer = Tokenizer.from_buffer(content)
        except (OSError, ValueError) as error:
            print(f"error: {path}: {' '.join(str(error).split())}. Name a tokenizer.json.", file=sys.stderr)
            return 1
        pieces = cut(tokenizer, text)
        cuts.append([{"text": text_of_bytes(piece), "bytes": len(piece)} for piece in pieces])
    print(json.dumps({"cuts": cuts}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
