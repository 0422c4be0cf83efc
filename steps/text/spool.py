"""Documents on disk between reading and writing, given back in the order of their digests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from steps.text.appending import AppendedFile
from steps.text.corpus import text_sha256

BUCKETS = 256
DIGEST_CHARACTERS = 64
# No normalised text holds it.
_END = "\0"


class DocumentSpool:
    """Documents in files by the first byte of their digests, so that memory holds one file's text at a time.

    folder: is made, and is the caller's to remove.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._paths = [folder / f"{bucket:02x}" for bucket in range(BUCKETS)]
        self._files = [AppendedFile(path) for path in self._paths]

    def add(self, text: str) -> None:
        """text: normalised, so without NUL."""
        digest = text_sha256(text)
        self._files[int(digest[:2], 16)].write(digest + text + _END)

    def close(self) -> None:
        """To be called when the last document is added."""
        for file in self._files:
            file.flush()
        self._files = []

    def buckets(self) -> Iterator[tuple[list[tuple[str, str]], int]]:
        """For each file (its distinct documents as (digest, text) in the order of digests, how many copies it had)."""
        for path in self._paths:
            documents = path.read_bytes().decode().split(_END)[:-1]
            distinct = sorted(set(documents))
            copies = len(documents) - len(distinct)
            del documents
            yield [(document[:DIGEST_CHARACTERS], document[DIGEST_CHARACTERS:]) for document in distinct], copies
