"""The chat on a terminal or a pipe: messages and commands in, replies and notes out."""

from __future__ import annotations

import sys

from pipeline.chat.line_input import LineInput
from pipeline.chat.painters import coloured, painter_for
from pipeline.chat.session import Chat, Reply
from pipeline.streams import tell

NOTE_COLOUR = "2"
HELP = """\
/help          these lines
/reset         forget the turns so far; the system prompt stays
/system TEXT   set the system prompt; without TEXT: none
/exit          leave, as ctrl-D does
A line that ends in \\ goes on in the next one; one that begins with a space is sent as it is, be it /help.
ctrl-C ends a reply, which the model then remembers as far as it came; at an empty prompt it leaves."""


def note(line: str) -> None:
    """A line beside the conversation: on standard error, as standard output has the replies alone."""
    tell(coloured(line, NOTE_COLOUR, sys.stderr))


class Dialogue:
    """Goes on until /exit or the end of input."""

    def __init__(self, chat: Chat, lines: LineInput) -> None:
        self._chat, self._lines = chat, lines
        self._has_failed = False

    def run(self) -> int:
        """Returns the exit code: 1 where the input was no terminal and a question had no reply, else 0."""
        while (message := self._lines.read()) is not None:
            if message.startswith("/"):
                if not self._command(message):
                    break
            elif message.strip():
                self._ask(message)
        else:
            if self._lines.is_terminal:
                # After ctrl-D the shell's prompt begins a line of its own.
                print()
        return int(self._has_failed and not self._lines.is_terminal)

    def _command(self, message: str) -> bool:
        """Does what a line that begins with / asks for; False to leave."""
        name, _, text = message.partition(" ")
        match name.strip():
            case "/exit":
                return False
            case "/help":
                note(HELP)
            case "/reset":
                self._chat.reset()
                note("the turns so far are forgotten")
            case "/system":
                self._chat.system = text.strip()
                note("system prompt set; /reset forgets the turns" if text.strip() else "no system prompt")
            case unknown:
                note(f"no command {unknown}, nothing was sent; /help lists them, a space before / sends the line")
        return True

    def _ask(self, message: str) -> None:
        replies = self._chat.ask(message, painter_for(sys.stdout, self._chat.names))
        for name, reply in zip(self._chat.names, replies, strict=True):
            about = f"{name}: " if len(replies) > 1 else ""
            if reply.error is not None:
                self._has_failed = True
                tell(f"error: {about}{reply.error}")
            for line in reply_notes(reply):
                note(f"({about}{line})")


def reply_notes(reply: Reply) -> list[str]:
    """What a person should know of a reply beside its words."""
    ended, notes = reply.ended, []
    if ended is not None and ended.left_out_messages:
        turns = ended.left_out_messages // 2
        what = "the oldest turn is" if turns == 1 else f"the {turns} oldest turns are"
        notes.append(f"{what} left out from here on: {ended.context_tokens:,} tokens is all that the model reads")
    if reply.stopped == "max_new_tokens":
        count = "" if ended is None or ended.tokens is None else f" of {ended.tokens:,} tokens"
        notes.append(f"cut off at the end{count}; --max-new-tokens and the model's context set it")
    if reply.stopped == "interrupted":
        notes.append("stopped")
    return notes
