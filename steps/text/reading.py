"""Reading text files as a user has them: .jsonl, .txt, .parquet, each plain, .gz or .zst, one file or a folder.

In .jsonl a line is a document, in .parquet a row; in .txt documents are separated by blank lines.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
import zstandard

from steps.contract import StepError

KINDS = (".jsonl", ".txt", ".parquet")
COMPRESSIONS = (".gz", ".zst")
READ_ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError, pyarrow.ArrowException)


@dataclass(frozen=True)
class Record:
    """One document as read, or why it is none: exactly one of `text` and `fault` is set."""

    source: str
    number: int
    text: str | None = None
    fault: str | None = None


def file_kind(path: Path) -> tuple[str, str]:
    """(kind, compression) by a file's name, such as ('.jsonl', '.gz'); kind is '' for a file that is not read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes and suffixes[-1] in KINDS else ""
    return kind, compression


def text_files(path: Path, kinds: tuple[str, ...] = KINDS) -> list[Path]:
    """The readable files of a folder, sorted, or the one file. Raises StepError where there is none."""
    limit = ", ".join(kinds) + ", each also .gz or .zst"
    if path.is_file():
        if file_kind(path)[0] not in kinds:
            raise StepError(str(path), "unknown kind of file", limit=limit, remedy="Convert it or rename it.")
        return [path]
    if not path.is_dir():
        raise StepError(str(path), "does not exist", remedy="Name a file or a folder.")
    files = [entry for entry in path.rglob("*") if entry.is_file() and file_kind(entry)[0] in kinds]
    if not files:
        raise StepError(str(path), "no text files in it", limit=limit, remedy="Put the text there.")
    return sorted(files, key=lambda entry: entry.relative_to(path).as_posix())


def read_records(path: Path, text_field: str) -> Iterator[Record]:
    """Every document of a file or folder, faulty ones included. Raises StepError for a file that cannot be read."""
    for file in text_files(path):
        kind, _ = file_kind(file)
        try:
            if kind == ".parquet":
                yield from _parquet_records(file, text_field)
            elif kind == ".jsonl":
                yield from _jsonl_records(file, text_field)
            else:
                yield from _txt_records(file)
        except READ_ERRORS as error:
            value = f"cannot be read ({type(error).__name__}: {error})"
            raise StepError(file.name, value, remedy="Give a whole, undamaged file.") from error


def open_bytes(file: Path) -> io.BufferedIOBase:
    """The file's content, decompressed by its name."""
    _, compression = file_kind(file)
    if compression == ".gz":
        return gzip.open(file, "rb")
    if compression == ".zst":
        return io.BufferedReader(_WholeZstd(file))
    return file.open("rb")


class _WholeZstd(io.RawIOBase):
    """A zstd file of one or more frames; unlike zstandard's own reader it notices a file that is cut short."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb")
        self._decompressor = zstandard.ZstdDecompressor().decompressobj()
        self._decompressed = b""
        self._at_frame_start = True

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer) -> int:
        while not self._decompressed:
            if self._decompressor.eof:
                remaining = self._decompressor.unused_data
                self._decompressor = zstandard.ZstdDecompressor().decompressobj()
                self._at_frame_start = not remaining
            else:
                remaining = b""
            chunk = remaining or self._file.read(1 << 16)
            if not chunk:
                if not self._at_frame_start:
                    raise EOFError("the last zstd frame is cut short")
                return 0
            self._at_frame_start = False
            self._decompressed = self._decompressor.decompress(chunk)
        count = min(len(buffer), len(self._decompressed))
        buffer[:count] = self._decompressed[:count]
        self._decompressed = self._decompressed[count:]
        return count


def _decode(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_valid_unicode(text: str) -> bool:
    """False for a text with half of a surrogate pair, which JSON can spell (\\ud83d) and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _jsonl_records(file: Path, text_field: str) -> Iterator[Record]:
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            text, fault = _text_of_json(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, text_field)
            if text is not None or fault is not None:
                yield Record(file.name, number, text, fault)


def _text_of_json(line: bytes, text_field: str) -> tuple[str | None, str | None]:
    """(text, None), (None, fault), or (None, None) for an empty line."""
    decoded = _decode(line)
    if decoded is None:
        return None, "invalid UTF-8"
    if not decoded.strip():
        return None, None
    try:
        value = json.loads(decoded)
    except ValueError:
        return None, "not JSON"
    if not isinstance(value, dict) or not isinstance(value.get(text_field), str):
        return None, f'no text field "{text_field}"'
    if not is_valid_unicode(value[text_field]):
        return None, "invalid Unicode"
    return value[text_field], None


def _txt_records(file: Path) -> Iterator[Record]:
    paragraph: list[str] = []
    start = 1
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            decoded = _decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
            if decoded is None:
                yield Record(file.name, number, fault="invalid UTF-8")
            elif decoded.strip():
                start = start if paragraph else number
                paragraph.append(decoded)
            elif paragraph:
                yield Record(file.name, start, "".join(paragraph))
                paragraph = []
    if paragraph:
        yield Record(file.name, start, "".join(paragraph))


def _parquet_records(file: Path, text_field: str) -> Iterator[Record]:
    with tempfile.TemporaryFile() as plain:
        # Parquet is read from its end, so a compressed one is unpacked to a file without a name first.
        with open_bytes(file) as stream:
            shutil.copyfileobj(stream, plain)
        plain.seek(0)
        table = pyarrow.parquet.ParquetFile(plain)
        if text_field not in table.schema_arrow.names:
            raise StepError(
                file.name,
                f"columns {', '.join(table.schema_arrow.names)}",
                limit=f"one named {text_field}",
                remedy="Set prepare_corpus.text_field.",
            )
        number = 0
        for batch in table.iter_batches(batch_size=1_000, columns=[text_field]):
            for value in batch.column(0):
                number += 1
                try:
                    text = value.as_py()
                except UnicodeDecodeError:
                    yield Record(file.name, number, fault="invalid UTF-8")
                    continue
                if isinstance(text, str):
                    yield Record(file.name, number, text)
                else:
                    yield Record(file.name, number, fault=f'no text field "{text_field}"')
