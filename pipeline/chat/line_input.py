"""What a person types in a chat, a message at a time; from a pipe a message a line."""

from __future__ import annotations

import importlib
import io
import sys
from types import ModuleType

from pipeline.chat.noticed_signals import noticed_signals

PROMPT, CONTINUED_PROMPT = "you> ", "...> "
CONTINUATION = "\\"


class LineInput:
    """Reads messages. A line that ends in a backslash goes on in the next one.

    On a terminal with a prompt, and with Python's readline, where it is there, to edit and to go back to earlier lines.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._readline: ModuleType | None = None
        if isinstance(sys.stdin, io.TextIOWrapper):
            # What is no UTF-8 is shown as such, and does not end the chat.
            sys.stdin.reconfigure(errors="replace")
        if self.is_terminal and sys.stdout.isatty():
            try:
                # Its import alone makes `input` use it.
                self._readline = importlib.import_module("readline")
            except ImportError:
                self._readline = None

    def read(self) -> str | None:
        """The next message; None where the input has ended.

        ctrl-C discards what was typed. Raises KeyboardInterrupt where nothing was.
        """
        lines: list[str] = []
        while True:
            try:
                line = self._line(CONTINUED_PROMPT if lines else PROMPT)
            except EOFError:
                return "\n".join(lines) if lines else None
            except KeyboardInterrupt:
                if not lines and not self._typed():
                    raise
                lines = []
                print()
                continue
            if not line.endswith(CONTINUATION):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix(CONTINUATION))

    def _line(self, prompt: str) -> str:
        if sys.stdin is None:
            raise EOFError
        if not self.is_terminal:
            return input()
        if sys.stdout.isatty():
            with noticed_signals():
                return input(prompt)
        # Standard output is kept for the replies.
        print(prompt, end="", file=sys.stderr, flush=True)
        return input()

    def _typed(self) -> str:
        """What stood in the line that ctrl-C ended."""
        return "" if self._readline is None else self._readline.get_line_buffer()
