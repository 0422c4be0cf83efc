"""Opening a text file by its name, decompressed, line by line; what it is instead is told by its first bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import zstandard

from steps.contract import StepError, mendable_error

KINDS = (".jsonl", ".txt", ".parquet")
COMPRESSIONS = (".gz", ".zst")
# What a file starts with that is no text, whatever its name says.
OTHER_STARTS = {
    b"\xff\xfe": ("UTF-16 text", "Save it as UTF-8."),
    b"\xfe\xff": ("UTF-16 text", "Save it as UTF-8."),
    b"\x00\x00\xfe\xff": ("UTF-32 text", "Save it as UTF-8."),
    b"\x1f\x8b": ("gzip data", "Let its name end in .gz, once for each time it was compressed."),
    b"\x28\xb5\x2f\xfd": ("zstd data", "Let its name end in .zst, once for each time it was compressed."),
    b"PAR1": ("parquet data", "Let its name end in .parquet."),
    b"PK\x03\x04": ("a zip archive or an office document", "Give the text that is in it."),
    b"%PDF": ("a PDF", "Give the text that is in it."),
    b"BZh": ("bzip2 data", "Decompress it, or compress it as .gz or .zst."),
    b"\xfd7zXZ": ("xz data", "Decompress it, or compress it as .gz or .zst."),
}
# A line is held in memory whole, and as JSON twice more, at four bytes a character where one is an emoji: 1.3 GB.
MAX_LINE_BYTES = 128 * 2**20
# Four bytes of zstd can stand for 128 KiB: what is decompressed at once is 32 MiB at most.
ZSTD_READ_BYTES = 1 << 10
# What the libraries raise for bytes that are not what they should be; the system's own errors are among them.
_READ_ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError, pyarrow.ArrowException)


def file_kind(path: Path) -> tuple[str, str]:
    """(kind, compression) by a file's name, such as ('.jsonl', '.gz'); kind is '' for a file that is not read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = suffixes[-1] if suffixes and suffixes[-1] in KINDS else ""
    return kind, compression


def open_bytes(file: Path) -> io.BufferedIOBase:
    """The file's content, decompressed by its name."""
    _, compression = file_kind(file)
    if compression == ".gz":
        return gzip.open(file, "rb")
    if compression == ".zst":
        return io.BufferedReader(_WholeZstd(file), 1 << 17)
    return file.open("rb")


@contextmanager
def refusing_unreadable(file: Path) -> Iterator[None]:
    """Raises StepError, which names the file, where its content is damaged or the system does not give it.

    MemoryError goes on: it is no fault of the file.
    """
    try:
        yield
    except _READ_ERRORS as error:
        if isinstance(error, MemoryError):
            raise
        if fault := mendable_error(error, file):
            raise fault from error
        is_of_system = isinstance(error, OSError) and error.errno is not None
        remedy = "Look at the place where it lies." if is_of_system else "Give a whole, undamaged file."
        raise StepError(str(file), f"cannot be read ({type(error).__name__}: {error})", remedy=remedy) from error


def read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Number, from 1, and bytes of each line of a text file; a UTF-8 byte order mark is left out.

    Raises StepError for a file that starts as something else than UTF-8 text, and for a line over MAX_LINE_BYTES.
    """
    number = 0
    with open_bytes(file) as stream:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                refuse_other_starts(file, line)
                line = line.removeprefix(b"\xef\xbb\xbf")
            if len(line) > MAX_LINE_BYTES:
                limit = f"{MAX_LINE_BYTES // 2**20} MiB"
                remedy = "Write one document a line (.jsonl), or paragraphs between blank lines (.txt)."
                raise StepError(f"{file} line {number}", f"a line longer than {limit}", limit=limit, remedy=remedy)
            yield number, line


def refuse_other_starts(file: Path, start: bytes) -> None:
    """Raises StepError where a file's first bytes say that it is no UTF-8 text."""
    # UTF-32 little-endian starts as UTF-16 does.
    if start.startswith(b"\xff\xfe\x00\x00"):
        raise StepError(str(file), "holds UTF-32 text", limit="UTF-8", remedy="Save it as UTF-8.")
    for magic, (what, remedy) in OTHER_STARTS.items():
        if start.startswith(magic):
            raise StepError(str(file), f"holds {what}", limit="UTF-8 text", remedy=remedy)


class _WholeZstd(io.RawIOBase):
    """A zstd file of one or more frames; unlike zstandard's own reader it notices a file that is cut short."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("rb")
        self._decompressor = zstandard.ZstdDecompressor().decompressobj()
        self._decompressed = memoryview(b"")
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
            chunk = remaining or self._file.read(ZSTD_READ_BYTES)
            if not chunk:
                if not self._at_frame_start:
                    raise EOFError("the last zstd frame is cut short")
                return 0
            self._at_frame_start = False
            self._decompressed = memoryview(self._decompressor.decompress(chunk))
        count = min(len(buffer), len(self._decompressed))
        buffer[:count] = self._decompressed[:count]
        self._decompressed = self._decompressed[count:]
        return count
