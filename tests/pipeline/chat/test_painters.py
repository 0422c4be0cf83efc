"""How replies appear: one, two columns, one below the other; what leaves a pipe is what the model said."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import select
import struct
import termios

import pytest
from terminal import Screen

from pipeline.chat.columns import wrapped
from pipeline.chat.painters import OneBelowTheOther, OneReply, SideBySide, painter_for

NAMES = ["runs/laptop", "base"]


class OnScreen:
    """A pseudo-terminal to paint on, and what stands on its screen."""

    def __init__(self, columns: int) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.stream, self.screen = os.fdopen(slave, "w", encoding="utf-8"), Screen(columns, 30)

    def lines(self) -> list[str]:
        self.stream.flush()
        new = b""
        while select.select([self.master], [], [], 0.05)[0]:
            new += os.read(self.master, 65_536)
        self.screen.feed(new.decode())
        return self.screen.lines

    def close(self) -> None:
        self.stream.close()
        os.close(self.master)


@pytest.fixture(params=[79, 80])
def on_screen(request, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    opened = OnScreen(request.param)
    yield opened
    opened.close()


def test_replies_stand_side_by_side_where_there_is_room(on_screen):
    painter = painter_for(on_screen.stream, NAMES)
    painter.piece(1, "A base model's words go on and on, past the end of its column.\nAnd")
    painter.piece(0, "Salam")
    painter.piece(0, "! Buyurun, eşidirəm sizi, necə kömək edim sizə bu gün?")
    painter.end(0, failed=False)
    before = [line for line in on_screen.lines() if line]
    painter.piece(1, " on.")
    painter.end(1, failed=False)
    lines = [line for line in on_screen.lines() if line]
    if isinstance(painter, SideBySide):
        assert on_screen.screen.columns == 80
        assert before == lines[:3]
        assert lines == [
            "runs/laptop                            | base",
            "Salam! Buyurun, eşidirəm sizi, necə    | A base model's words go on and on,",
            "kömək edim sizə bu gün?                | past the end of its column.",
            "                                       | And on.",
        ]
    else:
        assert (on_screen.screen.columns, type(painter)) == (79, OneBelowTheOther)
        assert lines == [
            "runs/laptop:",
            "Salam! Buyurun, eşidirəm sizi, necə kömək edim sizə bu gün?",
            "base:",
            "A base model's words go on and on, past the end of its column.",
            "And on.",
        ]


def test_a_terminal_is_not_steered_by_what_a_model_says(on_screen):
    painter = painter_for(on_screen.stream, ["base"])
    painter.piece(0, "\x1b[2Ja\x07\r👩‍👧\n")
    painter.end(0, failed=True)
    assert on_screen.lines()[0] == "model> \ufffd[2Ja\ufffd\ufffd👩‍👧"


def test_a_pipe_gets_the_replies_to_the_byte():
    pipe = io.StringIO()
    painter = painter_for(pipe, ["base"])
    painter.piece(0, "\x1b[1m a\t")
    painter.end(0, failed=False)
    assert (type(painter), pipe.getvalue()) == (OneReply, "\x1b[1m a\t\n")
    assert type(painter_for(pipe, NAMES)) is OneBelowTheOther


def test_rows_never_change_when_more_text_comes():
    text = "Bakı 👩‍👧‍👦 日本語の文字は二桁です and averyverylongword-without-any-space\n\n  son."
    final = wrapped(text, 12)
    assert "".join(final).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    for end in range(len(text)):
        rows = wrapped(text[:end], 12)
        assert rows[:-1] == final[: len(rows) - 1]
