"""How replies appear: as they come, two of them side by side where the terminal is wide enough."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TextIO

from pipeline.chat.columns import padded, visible, wrapped
from pipeline.chat.session import Painter
from pipeline.progress import wants_colours

REPLY_PREFIX = "model> "
PREFIX_COLOUR, NAME_COLOUR = "1;36", "1"
SEPARATOR = " | "
# Below it two columns would be too narrow to read.
WIDE_COLUMNS = 80


def painter_for(stream: TextIO, names: Sequence[str]) -> Painter:
    """One speaker's reply as it comes, behind a prefix on a terminal; those of several with their names."""
    if len(names) == 1:
        return OneReply(stream)
    columns = terminal_columns(stream)
    return SideBySide(stream, names, columns) if columns >= WIDE_COLUMNS else OneBelowTheOther(stream, names)


def terminal_columns(stream: TextIO) -> int:
    """0 for what is no terminal."""
    if not stream.isatty():
        return 0
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 0


def coloured(text: str, colour: str, stream: TextIO) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if wants_colours(stream) else text


class Silent:
    """Shows nothing, for callers that print in their own form."""

    def piece(self, speaker: int, text: str) -> None: ...

    def end(self, speaker: int, *, failed: bool) -> None: ...


class _Writing:
    """Each piece is written at once. Without a terminal the text is what the model said, to the byte."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()

    def _write(self, text: str) -> None:
        self._stream.write(visible(text) if self._is_terminal else text)
        self._stream.flush()

    def _write_coloured(self, text: str, colour: str) -> None:
        self._stream.write(coloured(visible(text), colour, self._stream))
        self._stream.flush()


class OneReply(_Writing):
    """Implements Painter for one speaker."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._has_begun = self._is_terminal
        if self._is_terminal:
            self._write_coloured(REPLY_PREFIX, PREFIX_COLOUR)

    def piece(self, speaker: int, text: str) -> None:
        self._has_begun = True
        self._write(text)

    def end(self, speaker: int, *, failed: bool) -> None:
        """An empty reply is an empty line; where there is none, nothing is written."""
        if self._has_begun or not failed:
            self._write("\n")


class OneBelowTheOther(_Writing):
    """Implements Painter: the reply of the first speaker as it comes, then that of the next, each below its name."""

    def __init__(self, stream: TextIO, names: Sequence[str]) -> None:
        super().__init__(stream)
        self._names = names
        self._waiting, self._ended = ["" for _ in names], [False for _ in names]
        self._shown = -1
        self._show_next()

    def _show_next(self) -> None:
        self._shown += 1
        if self._shown < len(self._names):
            self._write_coloured(f"{self._names[self._shown]}:", NAME_COLOUR)
            self._write("\n" + self._waiting[self._shown])
            if self._ended[self._shown]:
                self._write("\n\n")
                self._show_next()

    def piece(self, speaker: int, text: str) -> None:
        if speaker == self._shown:
            self._write(text)
        else:
            self._waiting[speaker] += text

    def end(self, speaker: int, *, failed: bool) -> None:
        self._ended[speaker] = True
        if speaker == self._shown:
            self._write("\n\n")
            self._show_next()


class SideBySide(_Writing):
    """Implements Painter: a column for each speaker. A row is written when no reply can change it any more."""

    def __init__(self, stream: TextIO, names: Sequence[str], columns: int) -> None:
        super().__init__(stream)
        self._width = (columns - len(SEPARATOR) * (len(names) - 1)) // len(names)
        self._texts, self._ended = ["" for _ in names], [False for _ in names]
        self._written = 0
        head = SEPARATOR.join(padded(visible(name), self._width) for name in names)
        self._write_coloured(head.rstrip(), NAME_COLOUR)
        self._write("\n")

    def piece(self, speaker: int, text: str) -> None:
        self._texts[speaker] += visible(text)
        self._show_rows()

    def end(self, speaker: int, *, failed: bool) -> None:
        self._ended[speaker] = True
        self._show_rows()

    def _show_rows(self) -> None:
        rows = [wrapped(text, self._width) for text in self._texts]
        sure = [len(found) if ended else len(found) - 1 for found, ended in zip(rows, self._ended, strict=True)]
        # A reply that has ended holds nobody up.
        until = max(sure) if all(self._ended) else min(
            known for known, ended in zip(sure, self._ended, strict=True) if not ended
        )  # fmt: skip
        for number in range(self._written, until):
            cells = [padded(found[number] if number < len(found) else "", self._width) for found in rows]
            self._write(SEPARATOR.join(cells).rstrip() + "\n")
        self._written = max(self._written, until)
