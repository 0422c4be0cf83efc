"""Reading text files as a user has them: .jsonl, .txt, .parquet, each plain, .gz or .zst, one file or a folder.

In .jsonl a line is a document, in .parquet a row; in .txt documents are separated by blank lines.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow
import pyarrow.parquet

from steps.contract import StepError, all_files, place_error
from steps.text.opening import KINDS, MAX_LINE_BYTES, file_kind, open_bytes, read_lines, refusing_unreadable

UNPACKED_AT_ONCE_BYTES = 1 << 20
ROWS_AT_ONCE_BYTES = 1 << 24
# JSON of another form than one object a line.
JSON_LIST, JSON_OVER_LINES = "a JSON list", "JSON over several lines"
# Behind a carriage return that is no part of the end of a line.
_AFTER_RETURN = re.compile(r"(?<=\r)(?!\r*\n)(?!\Z)")


@dataclass(frozen=True)
class Record:
    """One document as read, or why it is none: exactly one of `text` and `fault` is set.

    source: the file, as it is named below the input. number: its first line or row there, from 1. lines: how many it
    takes, of which a share may be faulty.
    text_like_field: where the text field is missing, the field beside it that looks like the text.
    """

    source: str
    number: int
    text: str | None = None
    fault: str | None = None
    text_like_field: str | None = None
    lines: int = 1


def text_files(path: Path, kinds: tuple[str, ...] = KINDS) -> list[Path]:
    """The readable files of a folder, sorted, or the one file. Raises StepError where there is none, and for a link
    that leads nowhere or back.

    What a folder holds for other programs (see is_hidden) is passed over.
    """
    limit = ", ".join(kinds) + ", each also .gz or .zst"
    if path.is_file():
        if file_kind(path)[0] not in kinds:
            raise StepError(str(path), "unknown kind of file", limit=limit, remedy="Convert it or rename it.")
        return [path]
    if not path.is_dir():
        raise StepError(str(path), "does not exist", remedy="Name a file or a folder.")
    entries = [path / name for name in all_files(path) if not is_hidden(name)]
    files = [entry for entry in entries if file_kind(entry)[0] in kinds]
    if not files:
        found = f" among {len(entries):,}, such as {entries[0].name}" if entries else ""
        raise StepError(str(path), f"no text files in it{found}", limit=limit, remedy="Put the text there.")
    return files


def is_hidden(name: str) -> bool:
    """True where a part of a relative path begins with a dot (.git, .DS_Store, ._text.jsonl) or is __MACOSX."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def read_records(path: Path, text_field: str) -> Iterator[Record]:
    """Every document of a file or folder, faulty ones included. Raises StepError for a file that cannot be read."""
    for file in text_files(path):
        kind, _ = file_kind(file)
        name = file.name if file == path else file.relative_to(path).as_posix()
        with refusing_unreadable(file):
            if kind == ".parquet":
                yield from _parquet_records(file, name, text_field)
            elif kind == ".jsonl":
                yield from _jsonl_records(file, name, text_field)
            else:
                yield from _txt_records(file, name)


def is_valid_unicode(text: str) -> bool:
    """False for a text with half of a surrogate pair, which JSON can spell (\\ud83d) and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decode(line: bytes) -> tuple[str, None] | tuple[None, str]:
    """(text, None) or (None, fault)."""
    if b"\0" in line:
        return None, "NUL bytes"
    try:
        return line.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, "invalid UTF-8"


def _jsonl_records(file: Path, name: str, text_field: str) -> Iterator[Record]:
    for number, line in read_lines(file):
        # Nothing but the record is held while it is used: a line may have 100 MB.
        record = _record_of_line(line, name, number, text_field)
        if record is not None:
            yield record


def _record_of_line(line: bytes, name: str, number: int, text_field: str) -> Record | None:
    decoded, fault = _decode(line)
    if decoded is None:
        return Record(name, number, fault=fault)
    return _record_of_json(decoded, name, number, text_field) if decoded.strip() else None


def _record_of_json(line: str, name: str, number: int, text_field: str) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        opens_only = re.fullmatch(r"\s*(\[\s*)?[\[{]\s*", line)
        return Record(name, number, fault=JSON_OVER_LINES if opens_only else "not JSON")
    if isinstance(value, list):
        return Record(name, number, fault=JSON_LIST)
    if not isinstance(value, dict) or not isinstance(value.get(text_field), str):
        return Record(name, number, fault=f'no text field "{text_field}"', text_like_field=_text_like_field(value))
    if not is_valid_unicode(value[text_field]):
        return Record(name, number, fault="invalid Unicode")
    return Record(name, number, value[text_field])


def _text_like_field(value: Any) -> str | None:
    """The field of an object with the most words in it, if they are several."""
    texts = {name: field for name, field in value.items() if isinstance(field, str)} if isinstance(value, dict) else {}
    words = {name: len(text.split()) for name, text in texts.items()}
    wordiest = max(words, key=lambda name: words[name], default=None)
    return wordiest if wordiest is not None and words[wordiest] >= 3 else None


def _txt_records(file: Path, name: str) -> Iterator[Record]:
    paragraph = _Paragraph()
    start = 0
    for number, line in read_lines(file):
        decoded, fault = _decode(line)
        if decoded is None:
            yield Record(name, number, fault=fault)
            continue
        for text in _lines_of(decoded):
            if text.strip():
                if not paragraph.lines:
                    start = number
                paragraph.add(text)
                if paragraph.characters > MAX_LINE_BYTES:
                    value = f"no blank line in {MAX_LINE_BYTES // 2**20} million characters"
                    remedy = "In .txt blank lines separate documents: put them between documents, or write .jsonl."
                    raise StepError(f"{file} line {start}", value, remedy=remedy)
            elif paragraph.lines:
                yield Record(name, start, paragraph.text(), lines=paragraph.lines)
                paragraph = _Paragraph()
    if paragraph.lines:
        yield Record(name, start, paragraph.text(), lines=paragraph.lines)


class _Paragraph:
    """Lines put together by the thousand: a short one takes thirty times its characters."""

    def __init__(self) -> None:
        self.lines = self.characters = 0
        self._joined: list[str] = []
        self._last: list[str] = []

    def add(self, line: str) -> None:
        self.lines += 1
        self.characters += len(line)
        self._last.append(line)
        if len(self._last) == 1_000:
            self._joined.append("".join(self._last))
            self._last = []

    def text(self) -> str:
        return "".join([*self._joined, *self._last])


def _lines_of(line: str) -> Iterator[str]:
    """The line, or those in it that end in a carriage return alone, as old Macs wrote all of a file."""
    start = 0
    if "\r" in line.rstrip("\r\n"):
        for after in _AFTER_RETURN.finditer(line):
            yield line[start : after.start()]
            start = after.start()
    yield line[start:]


@contextmanager
def _open_parquet(file: Path) -> Iterator[IO[bytes]]:
    """The plain file. Parquet is read from its end, so a compressed one is unpacked to a file without a name."""
    if not file_kind(file)[1]:
        with file.open("rb") as plain:
            yield plain
        return
    with tempfile.TemporaryFile() as unpacked:
        _unpack(file, unpacked)
        unpacked.seek(0)
        yield unpacked


def _unpack(file: Path, unpacked: IO[bytes]) -> None:
    with open_bytes(file) as stream:
        while piece := stream.read(UNPACKED_AT_ONCE_BYTES):
            try:
                unpacked.write(piece)
                unpacked.flush()
            except OSError as error:
                # It is the temporary folder that is full, neither the file's disk nor the output's.
                raise place_error(error, place=Path(tempfile.gettempdir())) from error


def _parquet_records(file: Path, name: str, text_field: str) -> Iterator[Record]:
    with _open_parquet(file) as plain:
        table = pyarrow.parquet.ParquetFile(plain, buffer_size=UNPACKED_AT_ONCE_BYTES)
        _check_text_column(file, table.schema_arrow, text_field)
        number = 0
        for batch in table.iter_batches(batch_size=_rows_at_once(table), columns=[text_field]):
            for value in batch.column(0):
                number += 1
                try:
                    text = value.as_py()
                except UnicodeDecodeError:
                    yield Record(name, number, fault="invalid UTF-8")
                    continue
                if isinstance(text, str):
                    yield Record(name, number, text)
                else:
                    yield Record(name, number, fault=f'no text field "{text_field}"')


def _rows_at_once(table: pyarrow.parquet.ParquetFile) -> int:
    """So many rows that they have about 16 MB, by their mean size, which the other columns make too large."""
    groups = [table.metadata.row_group(group) for group in range(table.metadata.num_row_groups)]
    mean_bytes = sum(group.total_byte_size for group in groups) / max(table.metadata.num_rows, 1)
    return max(1, min(1_000, int(ROWS_AT_ONCE_BYTES / max(mean_bytes, 1))))


def _check_text_column(file: Path, schema: pyarrow.Schema, text_field: str) -> None:
    """Raises StepError where a parquet file has no column of that name, or one that holds no text."""
    if text_field in schema.names and _holds_text(schema.field(text_field).type):
        return
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema) or "none"
    others = [field.name for field in schema if _holds_text(field.type)]
    remedy = f"Set prepare_corpus.text_field, perhaps to {others[0]}." if others else "Give a file with a text column."
    raise StepError(str(file), f"columns {columns}", limit=f"a text column named {text_field}", remedy=remedy)


def _holds_text(kind: pyarrow.DataType) -> bool:
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or pyarrow.types.is_string_view(kind)
