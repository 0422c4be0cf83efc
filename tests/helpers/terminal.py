"""A terminal of this machine for tests: programs run in it, and what stands on its screen can be read."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """What a terminal shows of the text that it gets: a line longer than the screen goes on in the next row."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        # All rows since the beginning, those that have scrolled off the top as well.
        self.lines, self.row, self.column, self.top = [""], 0, 0, 0

    def feed(self, text: str) -> None:
        place = 0
        while place < len(text):
            if match := _CONTROL.match(text, place):
                self._control(match[1], match[2])
                place = match.end()
                continue
            letter, place = text[place], place + 1
            assert letter != "\x1b", f"an unknown sequence: {text[place - 1 : place + 10]!r}"
            if letter == "\r":
                self.column = 0
            elif letter == "\n":
                self._down()
            elif letter != "\a":
                if self.column == self.columns:
                    self._down()
                    self.column = 0
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + letter + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")
        self.top = max(self.top, self.row - self.rows + 1)

    def _control(self, arguments: str, kind: str) -> None:
        number = int(arguments) if arguments.isdigit() else 1
        if kind == "A":
            # The cursor stops at the top of the screen; what has scrolled off it is out of reach.
            self.row = max(self.top, self.row - number)
        elif kind == "J":
            self.lines[self.row :] = [self.lines[self.row][: self.column]]
        elif kind == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        else:
            assert kind in "mhl", f"a control sequence that this screen does not know: {arguments}{kind}"

    def resize(self, columns: int, rows: int) -> None:
        """As most terminals do it: rows that are longer than the new width are wrapped anew."""
        wrapped = []
        for number, line in enumerate(self.lines):
            pieces = [line[start : start + columns] for start in range(0, max(len(line), 1), columns)]
            wrapped += pieces
            if number == self.row:
                self.row, self.column = len(wrapped) - 1, len(pieces[-1])
        self.lines, self.columns, self.rows = wrapped, columns, rows
        self.top = max(0, self.row - rows + 1)

    @property
    def visible(self) -> list[str]:
        return self.lines[self.top :]


class Terminal:
    """A program with a pseudo-terminal as standard error, and as standard output where `output` says so.

    typed: as standard input as well, and as the terminal that controls it: ctrl-C typed there is a signal.
    """

    def __init__(
        self, command: list[str], columns: int, rows: int, *, output: bool = False, typed: bool = False,
        **environment: str,
    ) -> None:  # fmt: skip
        self.master, slave = pty.openpty()
        self.screen, self.received = Screen(columns, rows), ""
        self._decoder, self._begun = codecs.getincrementaldecoder("utf-8")(), ""
        self._set_size(columns, rows)
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        own = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=slave if typed else subprocess.PIPE, stdout=slave if output or typed else subprocess.PIPE,
            stderr=slave, cwd=ROOT, env=kept | own | environment, text=True, start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0)) if typed else None,
        )  # fmt: skip
        os.close(slave)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.take()
        self._set_size(columns, rows)
        self.screen.resize(columns, rows)

    def type(self, text: str) -> None:
        """What a person's keys give; \\x03 is ctrl-C, \\x04 ctrl-D."""
        os.write(self.master, text.encode())

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """The next line on a standard output that is a pipe."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def take(self, seconds: float = 0.0) -> str:
        """Reads what has come, and what comes until nothing more does for so many seconds."""
        text = ""
        while part := self._part(seconds):
            text += part
        return text

    def _part(self, seconds: float) -> str:
        """What one read gives, shown on the screen; empty where nothing comes for so many seconds."""
        if not select.select([self.master], [], [], seconds)[0]:
            return ""
        try:
            new = os.read(self.master, 65_536)
        except OSError:
            # The program has ended, and nobody else has the terminal.
            return ""
        text = self._decoder.decode(new)
        self.received += text
        # A sequence may be cut in two by the end of a read.
        whole, begun, rest = (self._begun + text).rpartition("\x1b")
        is_whole = not begun or _CONTROL.match(begun + rest) is not None
        self._begun = "" if is_whole else begun + rest
        self.screen.feed(whole + begun + rest if is_whole else whole)
        return text

    def wait_for(self, words: str, seconds: float = 20.0) -> None:
        """Reads until the screen shows the words."""
        deadline = time.monotonic() + seconds
        while not any(words in line for line in self.screen.lines):
            assert time.monotonic() < deadline, f"{words!r} did not come:\n" + "\n".join(self.screen.lines)
            self._part(0.05)

    def wait_for_prompt(self, prompt: str, seconds: float = 20.0) -> None:
        """Reads until the screen ends with this line."""
        deadline = time.monotonic() + seconds
        while self.screen.lines[-1].rstrip() != prompt:
            assert time.monotonic() < deadline, f"{prompt!r} did not come:\n" + "\n".join(self.screen.lines)
            self._part(0.05)

    def end(self, seconds: float = 30.0) -> tuple[int, str]:
        """Waits for the program's end; its exit code and what it printed on a standard output that is a pipe."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        output, deadline = "", time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self.take(0.05)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdout is not None:
            output = self.process.stdout.read()
            self.process.stdout.close()
        code = self.process.wait()
        self.take(0.05)
        os.close(self.master)
        return code, output


def python(code: str) -> list[str]:
    """A command that runs a few lines of Python."""
    return [sys.executable, "-c", code]
