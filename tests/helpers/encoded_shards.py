"""Shards as PrepareCorpus writes them, texts that are hard to split, and gigatoken's ids beside those of tokenizers."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from steps.text.bbpe import encode_as_text
from steps.text.fast_encoding import CorpusEncoder

# Ranges of code points from which random texts are drawn: in any plane, assigned or not.
RANGES = (
    (0x00, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x8FF), (0x900, 0x1100), (0x1780, 0x17FF),
    (0x2000, 0x206F), (0x20A0, 0x2BFF), (0x3000, 0x33FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7FF), (0xE000, 0xFFFF),
    (0x10000, 0x1FFFF), (0x1F300, 0x1FAFF), (0x20000, 0x2FFFF), (0xE0000, 0xE01EF), (0x30000, 0x10FFFF),
)  # fmt: skip
PIECES = (
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u3000",
    "'s",
    "'LL",
    "’nın",
    "123",
    "İı",
    "ə\u0301",
    "<|eot_id|>",
    "\0",
    "a",
    " b",
)


def random_text(draw: random.Random) -> str:
    """Up to some 40 code points, of one script or of all, mixed with white space, apostrophes and digits."""
    ranges = RANGES if draw.random() < 0.3 else draw.sample(RANGES, 2)
    pieces = [
        draw.choice(PIECES) * draw.randint(1, 3) if draw.random() < 0.3 else chr(draw.randint(*draw.choice(ranges)))
        for _ in range(draw.randint(0, 40))
    ]
    return "".join(piece for piece in pieces if not "\ud800" <= piece[:1] <= "\udfff")


def write_shard(path: Path, texts: Iterable[str]) -> Path:
    """A shard of a prepared corpus."""
    lines = [
        json.dumps({"id": f"{number:016x}", "text": text}, ensure_ascii=False) for number, text in enumerate(texts)
    ]
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def unlike_texts(folder: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[int, int]:
    """(texts to which gigatoken gives other ids than tokenizers, or whose ids do not give them back; all tokens)."""
    encoder = CorpusEncoder(tokenizer)
    assert encoder.is_fast
    chunks = list(encoder.encode_shard(write_shard(folder / "texts.jsonl", texts)))
    found = [
        chunk.ids[a:b].tolist() for chunk in chunks for a, b in zip(chunk.offsets[:-1], chunk.offsets[1:], strict=True)
    ]
    wanted = [encoding.ids for encoding in encode_as_text(tokenizer, texts)]
    back = tokenizer.decode_batch(found, skip_special_tokens=False)
    assert len(found) == len(texts)
    assert sum(chunk.bytes for chunk in chunks) == sum(len(text.encode()) for text in texts)
    unlike = sum(
        own != other or decoded != text for own, other, decoded, text in zip(found, wanted, back, texts, strict=True)
    )
    return unlike, sum(map(len, found))


def assert_same_ids(folder: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Of every text gigatoken gives tokenizers' ids, and these give the text."""
    assert unlike_texts(folder, tokenizer, texts)[0] == 0
