"""What a model server streams, whatever pieces it arrives in: OpenAI's chat completions as server-sent events, as vLLM
and DJL LMI send them, or LMI's own JSON lines.

    data: {"choices": [{"delta": {"content": "Sa"}, "finish_reason": null}]}
    data: [DONE]

    {"token": {"id": 5, "text": "Sa"}}
    {"token": {"id": 9, "text": "lam"}, "generated_text": "Salam", "details": {"finish_reason": "eos_token"}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DATA, DONE = b"data:", b"[DONE]"
# By the servers' names; all others mean that the model ended its turn.
CUT_OFF = frozenset({"length", "max_tokens"})


@dataclass(frozen=True)
class ServerPart:
    """What one line told. finish: why the reply ended, where it has; `done` where no reason was given."""

    text: str = ""
    finish: str | None = None
    prompt_tokens: int | None = None
    tokens: int | None = None
    # That the line stood for exactly one token.
    is_token: bool = False
    error: str | None = None


class ServerLines:
    """Puts bytes together to lines and reads those: a line, or a letter in it, may arrive in several pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> Iterator[ServerPart]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield from read_line(line)

    def finish(self) -> Iterator[ServerPart]:
        """The last line, which need not have an end."""
        rest, self._rest = self._rest, b""
        yield from read_line(rest)


def read_line(line: bytes) -> Iterator[ServerPart]:
    """The parts of one line; none for those that only keep a connection open, or name an event."""
    line = line.strip()
    content = line.removeprefix(DATA).strip() if line.startswith(DATA) else line
    if content == DONE:
        yield ServerPart(finish="done")
    elif line.startswith(DATA) or content.startswith(b"{"):
        try:
            value = json.loads(content)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            yield ServerPart(error=f"a line that is no JSON object: {content[:80].decode('utf-8', 'replace')}")
        else:
            yield read_object(value)


def read_object(value: dict[str, Any]) -> ServerPart:
    if value.get("error") is not None or value.get("object") == "error":
        error = value.get("error") or value.get("message")
        return ServerPart(error=str(error.get("message", error)) if isinstance(error, dict) else str(error))
    if isinstance(token := value.get("token"), dict):
        details = value.get("details") or {}
        finish = details.get("finish_reason") or ("done" if value.get("generated_text") is not None else None)
        text = "" if token.get("special") else token.get("text") or ""
        return ServerPart(text=text, finish=finish, is_token=True)
    usage = value.get("usage") or {}
    choice: dict[str, Any] = next(iter(value.get("choices") or ()), {})
    said = choice.get("delta") or choice.get("message") or {}
    return ServerPart(
        text=said.get("content") or "",
        finish=choice.get("finish_reason"),
        prompt_tokens=usage.get("prompt_tokens"),
        tokens=usage.get("completion_tokens"),
    )
