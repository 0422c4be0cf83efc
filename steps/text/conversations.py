"""Reading conversations for fine-tuning: .jsonl, plain, .gz or .zst, one file or a folder; one conversation a line.

One form a file, told by the first line that has one: messages, instruction/response, prompt/completion, dolly, alpaca
or sharegpt (steps/text/conversation_forms.py shows each).

A system message may come first; then user and assistant take turns, and the assistant has the last word. A line that
is no such conversation is counted and passed over; too many of them stop the step (see check_unusable).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps.contract import StepError
from steps.text.conversation_forms import FORMS_TEXT, Form, LineError, Message, form_of, read_messages
from steps.text.opening import read_lines, refusing_unreadable
from steps.text.reading import text_files

NO_ANSWER = "no answer"
EMPTY_TURN = "empty turn"
OUT_OF_ORDER = "roles out of order"
# One to train on, one to hold out.
LEAST_QUESTIONS = 2
OTHER_FORM = "another form than the file's first line"


@dataclass
class Unusable:
    """Lines that are passed over for one reason: how many, and where and what the first is."""

    count: int = 0
    first: str = ""


@dataclass(frozen=True)
class Conversations:
    """`form`: the form found, several joined by commas where files differ; `conversations`: messages of each;
    `places`: file and line of each; `unusable`: lines passed over, by reason."""

    form: str
    conversations: list[list[Message]]
    places: list[str] = field(default_factory=list)
    unusable: dict[str, Unusable] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """Lines that hold or should hold a conversation."""
        return len(self.conversations) + sum(unusable.count for unusable in self.unusable.values())


def read_conversations(path: Path) -> Conversations:
    """The conversations of a file or folder, their text in NFC, in the order of file names and lines.

    Raises StepError where a file cannot be read or nothing at all is there.
    """
    forms: list[str] = []
    found = Conversations("", [])
    for file in text_files(path, (".jsonl",)):
        form: Form | None = None
        name = file.name if file == path else file.relative_to(path).as_posix()
        with refusing_unreadable(file):
            for number, line in read_lines(file):
                if not line.strip():
                    continue
                where = f"{name} line {number}"
                try:
                    value = _read_object(line)
                    form = form or form_of(value)
                    messages = _read_conversation(value, form)
                except LineError as fault:
                    note_unusable(found.unusable, fault.reason, f"{where}: {fault.detail}")
                else:
                    found.conversations.append(messages)
                    found.places.append(where)
        if form is not None and form.name not in forms:
            forms.append(form.name)
    if not found.lines:
        raise StepError(str(path), "no conversations in it", limit="at least 1", remedy="Put conversations there.")
    return Conversations(", ".join(forms), found.conversations, found.places, found.unusable)


def note_unusable(unusable: dict[str, Unusable], reason: str, first: str) -> None:
    """Counts one more conversation that is passed over."""
    noted = unusable.setdefault(reason, Unusable(first=first))
    noted.count += 1


def check_unusable(unusable: dict[str, Unusable], lines: int, max_share: float) -> None:
    """Raises StepError where more than max_share of the lines are passed over; it names the first of the commonest."""
    count = sum(noted.count for noted in unusable.values())
    if count <= max_share * lines:
        return
    reasons = sorted(unusable, key=lambda reason: (-unusable[reason].count, reason))
    counted = ", ".join(f"{unusable[reason].count} {reason}" for reason in reasons)
    raise StepError(
        "conversations",
        f"{count} of {lines} cannot be used ({counted}), first {unusable[reasons[0]].first}",
        limit=f"a share of {max_share:g}",
        remedy="Mend the conversations or raise fine_tune.max_dropped_share.",
    )


def question_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """What stands before the first answer, a system message included: conversations that share it are one question."""
    roles = [message["role"] for message in messages]
    return tuple(message["content"].strip() for message in messages[: roles.index("assistant")])


def check_questions(questions: int, conversations: int) -> None:
    """Raises StepError for fewer different questions than training and held-out conversations need."""
    if questions < LEAST_QUESTIONS:
        value = f"{questions} different question in {conversations}"
        limit = f"at least {LEAST_QUESTIONS}, one of them to hold out"
        raise StepError("conversations", value, limit=limit, remedy="Give more conversations.")


def conversation_fault(messages: Sequence[Message]) -> LineError | None:
    """What is wrong with the turns of a conversation: [system] user assistant [user assistant]..., none empty."""
    roles = [message["role"] for message in messages]
    if "assistant" not in roles:
        return LineError(NO_ANSWER, f"{NO_ANSWER}: {' '.join(roles)}")
    turns = roles[1:] if roles[0] == "system" else roles
    expected = ["user", "assistant"] * ((len(turns) + 1) // 2)
    if turns != expected:
        return LineError(OUT_OF_ORDER, f"{OUT_OF_ORDER}: {' '.join(roles)}")
    if any(not message["content"].strip() for message in messages):
        return LineError(EMPTY_TURN)
    return None


def _read_object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise LineError("invalid UTF-8") from error
    except (ValueError, RecursionError) as error:
        detail = "a list, or part of one: one object a line, no brackets around them" if line.startswith(b"[") else ""
        raise LineError("not JSON", detail and f"not JSON ({detail})") from error
    if not isinstance(value, dict):
        raise LineError("no JSON object", "null" if value is None else f"a JSON {type(value).__name__}")
    return value


def _read_conversation(value: dict[str, Any], form: Form | None) -> list[Message]:
    fields_text = f"fields {', '.join(value) or 'none'}"
    if form is None:
        raise LineError("unknown form", f"{fields_text}, none of the forms {FORMS_TEXT}")
    if form_of(value) is not form:
        raise LineError(OTHER_FORM, f"{fields_text}, while the file's form is {form.name}")
    messages = read_messages(value, form)
    if fault := conversation_fault(messages):
        raise fault
    return messages
