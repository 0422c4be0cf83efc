"""Reading conversations for fine-tuning: .jsonl, plain, .gz or .zst, one file or a folder; one conversation a line.

Three forms, one a file, told by the file's first line; fields beside them are passed over:

    {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
    {"instruction": "...", "response": "..."}
    {"prompt": "...", "completion": "..."}
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract import StepError
from steps.text.reading import READ_ERRORS, is_valid_unicode, open_bytes, text_files

Message = dict[str, str]
ROLES = ("system", "user", "assistant")
MESSAGES_FORM = "messages"
PAIR_FORMS = {"instruction/response": ("instruction", "response"), "prompt/completion": ("prompt", "completion")}
FORMS_TEXT = f"{MESSAGES_FORM}, {', '.join(PAIR_FORMS)}"


@dataclass(frozen=True)
class Conversations:
    """`form`: the form found, several joined by commas where files differ; `conversations`: messages of each."""

    form: str
    conversations: list[list[Message]]


def read_conversations(path: Path) -> Conversations:
    """Every conversation of a file or folder, its text in NFC, in the order of file names and lines.

    Raises StepError that names file and line for what is not a conversation in its file's form.
    """
    forms: list[str] = []
    conversations: list[list[Message]] = []
    for file in text_files(path, (".jsonl",)):
        form = None
        try:
            for number, value in _read_lines(file):
                where = f"{file.name} line {number}"
                if form is None:
                    form = detect_form(value, where)
                conversations.append(_read_conversation(value, form, where))
        except READ_ERRORS as error:
            fault = f"cannot be read ({type(error).__name__}: {error})"
            raise StepError(file.name, fault, remedy="Give a whole, undamaged file.") from error
        if form is not None and form not in forms:
            forms.append(form)
    if not conversations:
        raise StepError(str(path), "no conversations in it", limit="at least 1", remedy="Put conversations there.")
    return Conversations(", ".join(forms), conversations)


def detect_form(value: dict[str, Any], where: str) -> str:
    """The form of a file's first line. Raises StepError where it has none."""
    if MESSAGES_FORM in value:
        return MESSAGES_FORM
    for form, fields in PAIR_FORMS.items():
        if all(field in value for field in fields):
            return form
    fields_text = ", ".join(value) or "none"
    raise StepError(where, f"fields {fields_text}", limit=FORMS_TEXT, remedy="Write conversations in one of the forms.")


def _read_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line that is not empty."""
    with open_bytes(file) as stream:
        for number, line in enumerate(stream, 1):
            where = f"{file.name} line {number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                value = json.loads(text) if text.strip() else None
            except UnicodeDecodeError as error:
                raise StepError(where, "invalid UTF-8", remedy="Save the file as UTF-8.") from error
            except ValueError as error:
                raise StepError(where, "not JSON", remedy="Write one JSON object a line.") from error
            if value is None:
                if text.strip():
                    raise StepError(where, "null", remedy="Write one JSON object a line.")
                continue
            if not isinstance(value, dict):
                raise StepError(where, f"a JSON {type(value).__name__}", remedy="Write one JSON object a line.")
            yield number, value


def _read_conversation(value: dict[str, Any], form: str, where: str) -> list[Message]:
    if form in PAIR_FORMS:
        asked, answered = PAIR_FORMS[form]
        pairs = [("user", value.get(asked), asked), ("assistant", value.get(answered), answered)]
        return [_message(role, content, field, where) for role, content, field in pairs]
    messages = value.get(MESSAGES_FORM)
    if not isinstance(messages, list) or not messages:
        raise StepError(where, "no list messages", remedy="One file holds one form of conversations.")
    read = []
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            raise StepError(
                f"{where}, message {index}", f"role {role!r}", limit=", ".join(ROLES), remedy="Change the role."
            )
        read.append(_message(role, message.get("content"), f"messages[{index}].content", where))
    return read


def _message(role: str, content: Any, field: str, where: str) -> Message:
    if not isinstance(content, str):
        raise StepError(where, f"no text field {field}", remedy="One file holds one form of conversations.")
    if not is_valid_unicode(content):
        raise StepError(where, f"invalid Unicode in {field}", remedy="Write whole characters, no half surrogate pairs.")
    return {"role": role, "content": unicodedata.normalize("NFC", content)}
