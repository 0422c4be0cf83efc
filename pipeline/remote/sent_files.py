"""Files as they are sent to S3: by their own sha256, and by the checksum that S3 forms of what it has received.

S3 forms the checksum of a file that comes in one piece over its bytes, of one that comes in parts over the parts'
checksums; it compares each piece with what the sender said, and tells the whole in HeadObject.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract import StepError, size_text, table_digest

# A file of this size or larger goes in parts. S3 takes 10,000 of them, so 625 GiB a file.
PART_BYTES = 64 * 2**20
MAX_PARTS = 10_000
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class SentFile:
    """A file and the name that it gets below the prefix. checksum: S3's, as base64."""

    name: str
    path: Path
    size_bytes: int
    sha256: str
    checksum: str

    def is_stored(self, head: Mapping[str, Any]) -> bool:
        """Whether the answer of HeadObject is of this content. One without a checksum tells nothing."""
        # S3 appends the number of parts.
        told = str(head.get("ChecksumSHA256", "")).partition("-")[0]
        return head["ContentLength"] == self.size_bytes and told == self.checksum


def sent_file(name: str, path: Path, tell: Callable[[int], None], part_bytes: int = PART_BYTES) -> SentFile:
    """Reads a file for its checksums. tell: is given the number of bytes read since.

    Raises StepError for a file that S3 does not take in one object.
    """
    if (size := path.stat().st_size) > (limit := MAX_PARTS * part_bytes):
        raise StepError(str(path), size_text(size), limit=size_text(limit), remedy="Split it into several files.")
    whole, part, parts = hashlib.sha256(), hashlib.sha256(), b""
    size_bytes = part_size = 0
    with path.open("rb") as stream:
        while piece := stream.read(min(READ_BYTES, part_bytes - part_size)):
            whole.update(piece)
            part.update(piece)
            size_bytes, part_size = size_bytes + len(piece), part_size + len(piece)
            tell(len(piece))
            if part_size == part_bytes:
                parts, part, part_size = parts + part.digest(), hashlib.sha256(), 0
    digest = whole.digest()
    if size_bytes >= part_bytes:
        digest = hashlib.sha256(parts + (part.digest() if part_size else b"")).digest()
    return SentFile(name, path, size_bytes, whole.hexdigest(), base64.b64encode(digest).decode())


def content_digest(files: list[SentFile]) -> str:
    """sha256 over the sorted names and contents: what names the prefix."""
    return table_digest({file.name: file.sha256 for file in files})
