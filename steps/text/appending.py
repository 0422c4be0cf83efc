"""Many text files written side by side without holding one open: a process may often open only 256 (macOS), and other
files are open too."""

from __future__ import annotations

from pathlib import Path

# 256 files of this much are 16 MB; a file is opened once for it.
HELD_CHARACTERS = 1 << 16


class AppendedFile:
    """A UTF-8 file that is open only while what was held back is appended; it exists from the start, empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: list[str] = []
        self._held_characters = 0
        path.write_bytes(b"")

    def write(self, text: str) -> None:
        """Appends text, now or later; line ends stay as they are."""
        self._held.append(text)
        self._held_characters += len(text)
        if self._held_characters >= HELD_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Appends what is held back to the file. To be called at the end."""
        if self._held:
            with self._path.open("a", encoding="utf-8", newline="") as stream:
                stream.write("".join(self._held))
            self._held, self._held_characters = [], 0
