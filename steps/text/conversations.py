"""Reading conversations for fine-tuning: .jsonl, plain, .gz or .zst, one file or a folder; one conversation a line.

Three forms, one a file, told by the file's first line that has one; fields beside them are passed over:

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"instruction": "...", "response": "..."}
    {"prompt": "...", "completion": "..."}

A system message may come first; then user and assistant take turns, and the assistant has the last word. A line that
is no such conversation is counted and passed over; too many of them stop the step (see check_unusable).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps.contract import StepError
from steps.text.opening import read_lines, refusing_unreadable
from steps.text.reading import is_valid_unicode, text_files

Message = dict[str, str]
ROLES = ("system", "user", "assistant")
MESSAGES_FORM = "messages"
PAIR_FORMS = {"instruction/response": ("instruction", "response"), "prompt/completion": ("prompt", "completion")}
FORMS_TEXT = f"{MESSAGES_FORM}, {', '.join(PAIR_FORMS)}"
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


class LineError(Exception):
    """Why a line is no conversation. reason: the same for all lines of its kind; detail: this line's own."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail or reason
        super().__init__(self.detail)


def read_conversations(path: Path) -> Conversations:
    """The conversations of a file or folder, their text in NFC, in the order of file names and lines.

    Raises StepError where a file cannot be read or nothing at all is there.
    """
    forms: list[str] = []
    found = Conversations("", [])
    for file in text_files(path, (".jsonl",)):
        form = None
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
        if form is not None and form not in forms:
            forms.append(form)
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


def check_questions(questions: int) -> None:
    """Raises StepError for fewer different questions than training and held-out conversations need."""
    if questions < LEAST_QUESTIONS:
        limit = f"at least {LEAST_QUESTIONS} questions"
        raise StepError("conversations", questions, limit=limit, remedy="Give more conversations.")


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


def form_of(value: dict[str, Any]) -> str | None:
    """The form that a line's fields belong to, None where it is none of them."""
    if MESSAGES_FORM in value:
        return MESSAGES_FORM
    return next((form for form, names in PAIR_FORMS.items() if all(name in value for name in names)), None)


def _read_object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise LineError("invalid UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise LineError("not JSON") from error
    if not isinstance(value, dict):
        raise LineError("no JSON object", "null" if value is None else f"a JSON {type(value).__name__}")
    return value


def _read_conversation(value: dict[str, Any], form: str | None) -> list[Message]:
    fields_text = f"fields {', '.join(value) or 'none'}"
    if form is None:
        raise LineError("unknown form", f"{fields_text}, none of the forms {FORMS_TEXT}")
    if form_of(value) != form:
        raise LineError(OTHER_FORM, f"{fields_text}, while the file's form is {form}")
    if form in PAIR_FORMS:
        asked, answered = PAIR_FORMS[form]
        read = [_message("user", value[asked], asked), _message("assistant", value[answered], answered)]
    else:
        messages = value[MESSAGES_FORM]
        if not isinstance(messages, list) or not messages:
            raise LineError("no list messages")
        read = []
        for index, message in enumerate(messages):
            role = message.get("role") if isinstance(message, dict) else None
            if role not in ROLES:
                raise LineError("unknown role", f"messages[{index}] has role {role!r}, not {', '.join(ROLES)}")
            read.append(_message(role, message.get("content"), f"messages[{index}].content"))
    if fault := conversation_fault(read):
        raise fault
    return read


def _message(role: str, content: Any, field_name: str) -> Message:
    if not isinstance(content, str):
        raise LineError("content that is no text", f"{field_name} is no text")
    if not is_valid_unicode(content):
        raise LineError("invalid Unicode", f"half a surrogate pair in {field_name}")
    return {"role": role, "content": unicodedata.normalize("NFC", content)}
