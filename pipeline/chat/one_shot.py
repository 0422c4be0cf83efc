"""`langadapt chat --prompt`: one question, its reply on standard output and nothing else there."""

from __future__ import annotations

import sys
from typing import Any

from pipeline.chat.dialogue import note, reply_notes
from pipeline.chat.painters import Silent, painter_for
from pipeline.chat.session import Chat, Reply
from pipeline.command_options import for_a_reader, print_json
from steps.contract import EXIT_DONE, EXIT_INTERRUPTED, ConfigError

FROM_INPUT = "-"


def prompt_text(given: str) -> str:
    """The question: what --prompt has, or with `-` what stands on standard input. Raises ConfigError for an empty one
    and for bytes that are no UTF-8."""
    text = given
    if given == FROM_INPUT:
        try:
            text = "" if sys.stdin is None else sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise ConfigError("--prompt -", "not UTF-8", remedy="Convert the text to UTF-8.") from error
    if not text.strip():
        raise ConfigError("--prompt", "empty", remedy="Give a question.")
    return text.rstrip("\n")


def answer_once(chat: Chat, prompt: str, *, as_json: bool) -> int:
    """Asks, prints, and returns the exit code: 130 where ctrl-C ended the reply. Raises the error of a reply."""
    painter = Silent() if as_json else painter_for(sys.stdout, chat.names)
    replies = chat.ask(prompt, painter)
    for reply in replies:
        if reply.error is not None:
            raise reply.error
    if as_json:
        with for_a_reader():
            print_json(as_object(prompt, chat.names, replies))
    elif sys.stdout.isatty():
        for reply in replies:
            for line in reply_notes(reply):
                note(f"({line})")
    return EXIT_INTERRUPTED if any(reply.stopped == "interrupted" for reply in replies) else EXIT_DONE


def as_object(prompt: str, names: list[str], replies: list[Reply]) -> dict[str, Any]:
    """The reply with what is known of it; that of the model beside it under `base`."""
    first, *others = [
        {
            "model": name, "reply": reply.text, "stopped": reply.stopped,
            "prompt_tokens": reply.ended and reply.ended.prompt_tokens, "tokens": reply.ended and reply.ended.tokens,
            "seconds": reply.ended and reply.ended.seconds,
        }
        for name, reply in zip(names, replies, strict=True)
    ]  # fmt: skip
    return {"prompt": prompt, **first, **({"base": others[0]} if others else {})}
