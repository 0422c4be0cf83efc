"""The documents of prepared shards as token ids: by gigatoken, many times as fast, where it gives tokenizers' ids.

Text is text here: a special token that is spelt in it becomes the tokens of its characters, and no BOS is added.

gigatoken is believed nothing. It is given the tokenizer without its special tokens, so that it knows none of them. At
the start it must give tokenizers' ids on HARD_TEXTS, then on the first documents of the corpus, then on some of every
chunk. Where it does not, or cannot do what the tokenizer does, tokenizers encodes all, and one warning says why.

The two know Unicode by tables of different years, and so split text with the youngest letters differently. Documents
with such code points, which are next to none, are tokenizers' in any case.
"""

from __future__ import annotations

import json
import os
import queue
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
from tokenizers import Tokenizer

from steps.contract import warn
from steps.text.bbpe import encode_as_text
from steps.text.packing import EncodedDocuments, encoded_documents

# What is read at once, whole lines. Token ids take four bytes for each byte of text at most, tokenizers' own encodings
# fifty and more.
CHUNK_BYTES, PLAIN_CHUNK_BYTES = 8 << 20, 1 << 20
# Of each chunk so many documents are encoded twice, spread from the first to the last, and the corpus' first ones.
CHECKED_DOCUMENTS, FIRST_DOCUMENTS = 4, 32
# A line longer than this is not checked: it would take longer than the chunk.
LONGEST_CHECKED_LINE_BYTES = 4 << 10
# Each thread has a gigatoken of its own, which keeps the words that it has met: its own threads begin anew with each
# call. Beyond so many what Python does between the calls is in the way.
MOST_THREADS = 8
# Where programs that split text into tokens are known to differ.
HARD_TEXTS = (
    "", " ", "a", "\n", "\0", "a\0b\0\0", "\t\tx", "\r\n\r\nCRLF\r\n", " \n \n\n x  y   z    ", "x" + " " * 300 + "y",
    "\n" * 300 + "z", "a" * 2_000, "ab" * 500, "=" * 999, "\u00a0x\u2003y\u2028z\u2029\u0085w\u3000v\u200bu\ufeff",
    "I'm you're WE'LL they'D it's 'Tis Bakı'nın Bakı’nın o'clock '' ''' don't", "İıIi ŞşĞğÇçÖöÜü Əə Ә́ә i̇ I\u0307",
    "e\u0301 a\u030a\u0323\u0301 \u0301x \u1100\u1161\u11a8 각 ﬁ \u212b \u00c5 \u017ft '\u017f \u212a",
    "0 1 12 123 1234 12345678901 ٣٤٥٦ १२३४ ½ ² Ⅷ 一二三 𝟙𝟚𝟛𝟜 1a2b", "😀😀 👩‍👩‍👧‍👦 🇦🇿🇹🇷 ❤️ 👍🏽",
    "漢字かな交じり文、中文没有空格。한국어 문장", "ភាសាខ្មែរមិនដកឃ្លា ไทยไม่เว้นวรรค မြန်မာ", "हिन्दी में लिखा",
    "ქართული ენა Русский Ελληνικά", "עִבְרִית العَرَبِيَّة", "\ud7ff\ufffd", "\x01\x02\x1b[0m\x7f\x80\x9f",
    "\u0378\u0379\ue000\ufdd0\uffff\U000e0001\U000f0000\U0010ffff\U0001fbff", "x\u0378y \u0378 1\u03782",
    "<|begin_of_text|>Salam<|eot_id|> <|end_of_text|>\n<|reserved_special_token_7|><s></s><pad><unk>[CLS]<|im_start|>",
    '"quotes" \\ back\\nslash \\u0041 {"text": "json"}', "def f(x):\n    return x ** 2  # code\n\n\tif a!=b:\n\t\tpass",
    "https://example.org/a?b=c&d=%20#e name@example.org $1,234.56 -- … — «sitat» „sitat“", "aAaA BBBccc camelCaseXML",
)  # fmt: skip


class IdsDifferError(Exception):
    """gigatoken and tokenizers disagree on the corpus: what was encoded so far must not be used."""


class _NotUsableError(Exception):
    """Why gigatoken cannot stand in for a tokenizer."""


class CorpusEncoder:
    """Token ids of the documents of prepared shards, those of steps.text.bbpe.encode_as_text."""

    def __init__(
        self, tokenizer: Tokenizer, *, fast: bool = True, chunk_bytes: int = CHUNK_BYTES, threads: int | None = None
    ) -> None:
        """tokenizer: special tokens stay text to it. fast: False leaves all to tokenizers. chunk_bytes: what gigatoken
        is given at once. threads: shards that it encodes at once; one for each processor, up to MOST_THREADS, if none
        are given.

        Warns where gigatoken cannot be used.
        """
        self._tokenizer = tokenizer
        # For good: shards may be encoded at once, and encode_as_text would set it back for another.
        tokenizer.encode_special_tokens = True
        self._fast: _FastEncoder | None = None
        self._threads = max(1, min(threads or os.cpu_count() or 1, MOST_THREADS))
        if fast:
            try:
                self._fast = _FastEncoder(tokenizer, chunk_bytes, self._threads)
            except (_NotUsableError, IdsDifferError) as reason:
                self.turn_off(str(reason))

    @property
    def is_fast(self) -> bool:
        return self._fast is not None

    @property
    def threads(self) -> int:
        """How many shards are worth encoding at once: tokenizers has threads of its own."""
        return self._threads if self.is_fast else 1

    def turn_off(self, reason: str) -> None:
        """From here on tokenizers encodes, and the log says why."""
        self._fast = None
        warn("fast-encoding-off", f"tokenizers encodes the corpus, some 20 times as slow as gigatoken: {reason}.")

    def encode_shard(self, shard: Path) -> Iterator[EncodedDocuments]:
        """The documents of a shard, in its order, some megabytes at a time. Several threads may encode a shard each.

        Raises IdsDifferError where gigatoken turns out to be wrong: turn it off and encode all shards again.
        """
        return _encode_plainly(self._tokenizer, shard) if self._fast is None else self._fast.encode_shard(shard)


class _FastEncoder:
    def __init__(self, tokenizer: Tokenizer, chunk_bytes: int, threads: int) -> None:
        """Raises _NotUsableError, or IdsDifferError where the ids of HARD_TEXTS are other ones."""
        self._tokenizer = tokenizer
        engine, self._source_type = _load_gigatoken(tokenizer)
        self._token_bytes = _token_bytes(tokenizer)
        self._is_young = _young_code_points()
        self._begins_young = _young_beginnings(self._is_young)
        self._chunk_bytes = chunk_bytes
        self._unchecked_firsts = FIRST_DOCUMENTS
        self._engines: queue.SimpleQueue[Any] = queue.SimpleQueue()
        lines = "".join(json.dumps({"id": "0", "text": text}, ensure_ascii=False) + "\n" for text in HARD_TEXTS)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "hard.jsonl")
            path.write_bytes(lines.encode())
            # Each is proved, and makes its tables ready.
            for number in range(threads):
                own = engine if number == 0 else _load_gigatoken(tokenizer)[0]
                self._compare(self._encode_file(own, path), range(len(HARD_TEXTS)), HARD_TEXTS)
                self._engines.put(own)

    def encode_shard(self, shard: Path) -> Iterator[EncodedDocuments]:
        engine = self._engines.get()
        try:
            yield from self._encode_with(engine, shard)
        finally:
            self._engines.put(engine)

    def _encode_with(self, engine: Any, shard: Path) -> Iterator[EncodedDocuments]:
        with tempfile.TemporaryDirectory() as folder:
            path = shard if shard.stat().st_size <= self._chunk_bytes else Path(folder, "chunk.jsonl")
            for chunk in _read_chunks(shard, self._chunk_bytes):
                if path != shard:
                    path.write_bytes(chunk)
                yield self._encode_chunk(engine, chunk, path)

    def _encode_chunk(self, engine: Any, chunk: bytes, path: Path) -> EncodedDocuments:
        """chunk: whole lines. path: where gigatoken finds them."""
        encoded = self._encode_file(engine, path)
        numbers, texts, lines = _documents_to_check(chunk, self._unchecked_firsts)
        if len(encoded.offsets) - 1 != lines:
            raise IdsDifferError(f"gigatoken finds {len(encoded.offsets) - 1} documents in {lines} lines")
        encoded = self._with_young_documents(chunk, encoded)
        self._unchecked_firsts = 0
        self._compare(encoded, numbers, texts)
        return encoded

    def _with_young_documents(self, chunk: bytes, encoded: EncodedDocuments) -> EncodedDocuments:
        """With tokenizers' ids of the documents that hold code points younger than either table may know."""
        places = _young_places(chunk, self._is_young, self._begins_young).tolist()
        if not places:
            return encoded
        starts = {chunk.rfind(b"\n", 0, place) + 1 for place in places}
        numbers, texts = _documents_at(chunk, starts)[:2]
        lengths, pieces, end = numpy.diff(encoded.offsets), [], 0
        for number, wanted in zip(numbers, encode_as_text(self._tokenizer, texts), strict=True):
            pieces += [encoded.ids[end : encoded.offsets[number]], numpy.array(wanted.ids, dtype=numpy.uint32)]
            lengths[number], end = len(wanted.ids), encoded.offsets[number + 1]
        ids = numpy.concatenate([*pieces, encoded.ids[end:]])
        return EncodedDocuments(ids, numpy.concatenate([[0], numpy.cumsum(lengths)]), encoded.bytes)

    def _encode_file(self, engine: Any, path: Path) -> EncodedDocuments:
        layout = engine.encode_files(self._source_type([str(path)], field="text"), parallel=False).layout
        offsets = numpy.asarray(layout.offsets.data, dtype=numpy.int64)
        ids = numpy.asarray(layout.content.data)[offsets[0] : offsets[-1]]
        return EncodedDocuments(ids, offsets - offsets[0], self._bytes_of(ids))

    def _bytes_of(self, ids: numpy.ndarray) -> int:
        return int(numpy.bincount(ids, minlength=len(self._token_bytes)) @ self._token_bytes)

    def _compare(self, encoded: EncodedDocuments, numbers: Sequence[int], texts: Sequence[str]) -> None:
        """Raises IdsDifferError where the documents of these numbers have other ids, or another length in bytes."""
        for number, text, wanted in zip(numbers, texts, encode_as_text(self._tokenizer, texts), strict=True):
            ids = encoded.ids[encoded.offsets[number] : encoded.offsets[number + 1]]
            if ids.tolist() != wanted.ids or int(self._token_bytes[ids].sum()) != len(text.encode()):
                raise IdsDifferError(f"gigatoken gives other ids for {text[:60]!r}")


def _load_gigatoken(tokenizer: Tokenizer) -> tuple[Any, Any]:
    """(gigatoken's tokenizer, its type of JSON lines). Raises _NotUsableError."""
    try:
        import gigatoken
    except ImportError as error:
        raise _NotUsableError(f"gigatoken cannot be imported ({error})") from error
    settings = json.loads(tokenizer.to_str())
    model = settings["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback") or model.get("dropout"):
        raise _NotUsableError("the tokenizer is no byte-level BPE without dropout")
    if settings["normalizer"] is not None:
        raise _NotUsableError("the tokenizer normalises text")
    if matched := [token["content"] for token in settings["added_tokens"] if not token["special"]]:
        # tokenizers finds these in text even when special tokens are text.
        raise _NotUsableError(f"the tokenizer has added tokens that are not special, such as {matched[0]!r}")
    text = json.dumps({**settings, "added_tokens": [], "post_processor": None})
    try:
        return gigatoken.Tokenizer.from_json(text), gigatoken.JsonlFileSource
    except (RuntimeError, ValueError) as error:
        raise _NotUsableError(f"gigatoken does not take the tokenizer ({error})") from error


def _token_bytes(tokenizer: Tokenizer) -> numpy.ndarray:
    """Bytes of text that each token stands for, int64 [ids]: at byte level a character of a token is a byte."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    lengths = numpy.zeros(max(vocabulary.values(), default=0) + 1, dtype=numpy.int64)
    lengths[list(vocabulary.values())] = [len(token) for token in vocabulary]
    return lengths


def _documents_to_check(chunk: bytes, firsts: int) -> tuple[list[int], list[str], int]:
    """(numbers, texts) of a chunk's first documents and of some spread over it, without the long ones; its lines."""
    places = ((len(chunk) - 1) * part // (CHECKED_DOCUMENTS - 1) for part in range(CHECKED_DOCUMENTS))
    starts = {chunk.rfind(b"\n", 0, place) + 1 for place in places}
    start = 0
    for _ in range(firsts):
        starts.add(start)
        if not (start := chunk.find(b"\n", start) + 1) or start == len(chunk):
            break
    kept = {start for start in starts if chunk.find(b"\n", start, start + LONGEST_CHECKED_LINE_BYTES) > 0}
    return _documents_at(chunk, kept)


def _documents_at(chunk: bytes, starts: set[int]) -> tuple[list[int], list[str], int]:
    """(numbers, texts) of the documents whose lines start there, and the chunk's number of lines."""
    numbers, texts = [], []
    number = before = 0
    for start in sorted(starts):
        number += chunk.count(b"\n", before, start)
        before = start
        end = chunk.find(b"\n", start)
        numbers.append(number)
        texts.append(json.loads(chunk[start : end if end > 0 else len(chunk)])["text"])
    return numbers, texts, number + chunk.count(b"\n", before) + (not chunk.endswith(b"\n"))


def _young_code_points() -> numpy.ndarray:
    """bool [0x110000]: from U+0800 on those without a meaning to this Python (3.11 knows Unicode 14); below, none were
    added since. Blocks of symbols are left out: a symbol is no letter in any table."""
    is_young = numpy.ones(0x110000, dtype=bool)
    is_young[:0x34000] = [unicodedata.category(chr(code)) == "Cn" for code in range(0x34000)]
    is_young[:0x800] = is_young[0x2000:0x2C00] = is_young[0x1F000:0x1FB00] = is_young[0xE0000:] = False
    return is_young


def _young_beginnings(is_young: numpy.ndarray) -> numpy.ndarray:
    """bool [0x10000]: two bytes, the first one high, that begin a young code point in UTF-8."""
    begins = numpy.zeros(1 << 16, dtype=bool)
    of_three, of_four = numpy.split(
        numpy.flatnonzero(is_young), numpy.searchsorted(numpy.flatnonzero(is_young), [1 << 16])
    )
    begins[(0xE0 | of_three >> 12) << 8 | 0x80 | (of_three >> 6 & 0x3F)] = True
    begins[(0xF0 | of_four >> 18) << 8 | 0x80 | (of_four >> 12 & 0x3F)] = True
    return begins


def _young_places(chunk: bytes, is_young: numpy.ndarray, begins_young: numpy.ndarray) -> numpy.ndarray:
    """Where young code points start in UTF-8 bytes: they take three or four."""
    text = numpy.frombuffer(chunk, dtype=numpy.uint8)
    places = numpy.flatnonzero(text >= 0xE0)
    # The first two bytes stand for 64 code points, or for 4,096: mostly none of them is young.
    first = text[places]
    may_be = begins_young[first.astype(numpy.uint16) << 8 | text[places + 1]]
    places, first = places[may_be], first[may_be]
    codes = (first & 0x0F).astype(numpy.int32) << 12
    codes |= (text[places + 1] & 0x3F).astype(numpy.int32) << 6
    codes |= text[places + 2] & 0x3F
    of_four = numpy.flatnonzero(first >= 0xF0)
    codes[of_four] = codes[of_four] << 6 | (text[places[of_four] + 3] & 0x3F)
    return places[is_young[codes]]


def _encode_plainly(tokenizer: Tokenizer, shard: Path) -> Iterator[EncodedDocuments]:
    for chunk in _read_chunks(shard, PLAIN_CHUNK_BYTES):
        texts = [json.loads(line)["text"] for line in chunk.removesuffix(b"\n").split(b"\n")]
        encodings = encode_as_text(tokenizer, texts)
        yield encoded_documents([encoding.ids for encoding in encodings], sum(len(text.encode()) for text in texts))


def _read_chunks(shard: Path, size: int) -> Iterator[bytes]:
    """The lines of a file, about `size` bytes at a time, never a part of a line."""
    with shard.open("rb") as stream:
        while chunk := stream.read(size):
            yield chunk + stream.readline() if not chunk.endswith(b"\n") else chunk
