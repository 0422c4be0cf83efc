"""The forms that a line of conversations may have, and how each is read into messages.

    messages              {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    instruction/response  {"instruction": "...", "response": "..."}
    prompt/completion     {"prompt": "...", "completion": "..."}; each may be a list as that of `messages`
    dolly                 {"instruction": "...", "context": "...", "response": "..."}
    alpaca                {"instruction": "...", "input": "...", "output": "..."}
    sharegpt              {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}

`context` and `input` may be empty or null; where they are not, the user's turn is the instruction, a blank line and
then they. In `sharegpt`, `user` and `assistant` are taken for `human` and `gpt`, and `system` is itself. A field
`system` beside those of any form is the system message, one that is empty or null is none. Other fields are passed
over.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steps.text.reading import is_valid_unicode

Message = dict[str, str]
ROLES = ("system", "user", "assistant")
SYSTEM_FIELD = "system"


class LineError(Exception):
    """Why a line is no conversation. reason: the same for all lines of its kind; detail: this line's own."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail or reason
        super().__init__(self.detail)


@dataclass(frozen=True)
class TurnsForm:
    """All turns in one list. role, content: their names in a turn; roles: what each name of a role stands for."""

    name: str
    turns: str
    role: str
    content: str
    roles: Mapping[str, str]

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.turns,)

    def read(self, value: Mapping[str, Any]) -> list[Message]:
        return self.read_turns(value[self.turns], self.turns)

    def read_turns(self, turns: Any, name: str) -> list[Message]:
        """The messages of the list in the field `name`. Raises LineError for what is no such list."""
        if not isinstance(turns, list) or not turns:
            raise LineError(f"no list {name}")
        read = []
        for index, turn in enumerate(turns):
            found = turn.get(self.role) if isinstance(turn, dict) else None
            role = self.roles.get(found) if isinstance(found, str) else None
            if role is None:
                detail = f"{name}[{index}] has {self.role} {found!r}, not {', '.join(self.roles)}"
                raise LineError("unknown role", detail)
            read.append(message_of(role, turn.get(self.content), f"{name}[{index}].{self.content}"))
        return read


MESSAGES = TurnsForm("messages", "messages", "role", "content", {role: role for role in ROLES})
SHAREGPT_ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


@dataclass(frozen=True)
class PairForm:
    """One question and one answer. context: the field of what the question is about, if there is one in this form;
    may_be_turns: question and answer may be lists of messages, which follow each other."""

    name: str
    question: str
    answer: str
    context: str = ""
    may_be_turns: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.question, self.context, self.answer)))

    def read(self, value: Mapping[str, Any]) -> list[Message]:
        asked = self._read_side("user", value, self.question)
        if self.context and value[self.context] is not None:
            about = message_of("user", value[self.context], self.context)["content"].strip("\r\n")
            # What is asked about is no question by itself.
            if about.strip() and asked[0]["content"].strip():
                asked = [message_of("user", f"{asked[0]['content'].rstrip()}\n\n{about}", self.question)]
        return [*asked, *self._read_side("assistant", value, self.answer)]

    def _read_side(self, role: str, value: Mapping[str, Any], name: str) -> list[Message]:
        if self.may_be_turns and isinstance(value[name], list):
            return MESSAGES.read_turns(value[name], name)
        return [message_of(role, value[name], name)]


Form = TurnsForm | PairForm
# The first whose fields a line has is its form: one whose fields are among another's comes after it.
FORMS: tuple[Form, ...] = (
    MESSAGES,
    TurnsForm("sharegpt", "conversations", "from", "value", SHAREGPT_ROLES),
    PairForm("dolly", "instruction", "response", context="context"),
    PairForm("alpaca", "instruction", "output", context="input"),
    PairForm("instruction/response", "instruction", "response"),
    PairForm("prompt/completion", "prompt", "completion", may_be_turns=True),
)
FORMS_TEXT = ", ".join(
    form.name if form.name == "/".join(form.fields) else f"{form.name} ({', '.join(form.fields)})" for form in FORMS
)


def form_of(value: Mapping[str, Any]) -> Form | None:
    """The form that a line's fields belong to, None where it is none of them."""
    return next((form for form in FORMS if all(name in value for name in form.fields)), None)


def read_messages(value: Mapping[str, Any], form: Form) -> list[Message]:
    """The messages of a line, with the one of its field `system` first. Raises LineError for what is no text."""
    messages = form.read(value)
    system = value.get(SYSTEM_FIELD)
    if system is None or (isinstance(system, str) and not system.strip()):
        return messages
    return [message_of("system", system, SYSTEM_FIELD), *messages]


def message_of(role: str, content: Any, field_name: str) -> Message:
    """A message in NFC. Raises LineError, which names the field, for what is no text."""
    if not isinstance(content, str):
        raise LineError("content that is no text", f"{field_name} is no text")
    if not is_valid_unicode(content):
        raise LineError("invalid Unicode", f"half a surrogate pair in {field_name}")
    return {"role": role, "content": unicodedata.normalize("NFC", content)}
