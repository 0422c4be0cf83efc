"""Questions whose answers a model is to find the most probable: .jsonl, plain, .gz or .zst, one file or a folder.

Every file is a task, by its name; two forms, one a file, told by the file's first line that has one:

    {"question": "...", "choices": ["...", "..."], "answer": 1}      answer: the index from 0, or the choice itself
    {"context": "...", "word": "..."}                                the word that comes next

"context" may stand for "question" and the other way round; fields beside them are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract import StepError
from steps.text.corpus import text_sha256
from steps.text.opening import read_lines, refusing_unreadable
from steps.text.reading import is_valid_unicode, text_files

CHOICE = "choice"
NEXT_WORD = "next_word"
FORMS = "question, choices and answer, or context and word"


@dataclass(frozen=True)
class AccuracyItem:
    """One question: what stands before, what may follow, which of it is right. A next word has one choice."""

    context: str
    choices: tuple[str, ...]
    answer: int

    @property
    def text(self) -> str:
        """The question with its right answer, as it might stand in a corpus."""
        return f"{self.context.rstrip()} {self.choices[self.answer]}"


@dataclass(frozen=True)
class AccuracyTask:
    """The items of one file. kind: `choice` or `next_word`."""

    name: str
    kind: str
    items: tuple[AccuracyItem, ...]

    @property
    def chance(self) -> float:
        """The accuracy of a guess: the mean of 1 / choices, and 0 for a word out of all words."""
        if self.kind == NEXT_WORD:
            return 0.0
        return sum(1 / len(item.choices) for item in self.items) / len(self.items)


def read_accuracy_tasks(path: Path, max_items: int) -> list[AccuracyTask]:
    """The tasks of a file or folder by name, at most max_items of each, the first by their text's sha256.

    Raises StepError, which names file and line, for a line that is no item, an answer outside its choices included:
    leaving lines out would let the accuracy stand for other questions than the file's.
    """
    tasks: dict[str, AccuracyTask] = {}
    for file in text_files(path, (".jsonl",)):
        name = re.sub(r"\.jsonl(\.gz|\.zst)?$", "", file.name, flags=re.IGNORECASE)
        if name in tasks:
            raise StepError(str(file), f"a second file of the name {name}", remedy="Rename one of them.")
        with refusing_unreadable(file):
            items = list(_read_items(file))
        if not items:
            raise StepError(str(file), "no items in it", limit="at least 1", remedy="Put items there or take it away.")
        kind = NEXT_WORD if len(items[0].choices) == 1 else CHOICE
        first = sorted(items, key=lambda item: text_sha256(item.text))[:max_items]
        tasks[name] = AccuracyTask(name, kind, tuple(first))
    return [tasks[name] for name in sorted(tasks)]


def _read_items(file: Path) -> Iterator[AccuracyItem]:
    kind = None
    for number, line in read_lines(file):
        if not line.strip():
            continue
        where = f"{file.name} line {number}"
        value = _read_object(line, where)
        found = NEXT_WORD if "word" in value and "choices" not in value else CHOICE
        kind = kind or found
        if found != kind:
            raise _fault(where, f"an item of the form {found} in a file of the form {kind}")
        context = value.get("context", value.get("question"))
        if not isinstance(context, str) or not context.strip():
            raise _fault(where, 'no text in "question" or "context"')
        yield _next_word(value, context, where) if kind == NEXT_WORD else _choice(value, context, where)


def _read_object(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8")
        value = json.loads(text)
    except ValueError as error:
        raise _fault(where, "not JSON in UTF-8") from error
    if not isinstance(value, dict):
        raise _fault(where, "no JSON object")
    if not is_valid_unicode(json.dumps(value, ensure_ascii=False)):
        raise _fault(where, "invalid Unicode")
    return value


def _next_word(value: Mapping[str, Any], context: str, where: str) -> AccuracyItem:
    word = value["word"]
    if not isinstance(word, str) or not word.strip():
        raise _fault(where, 'no text in "word"')
    return AccuracyItem(context.rstrip(), (word.strip(),), 0)


def _choice(value: Mapping[str, Any], context: str, where: str) -> AccuracyItem:
    choices = value.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise _fault(where, '"choices" is no list of texts')
    stripped = tuple(choice.strip() for choice in choices)
    if len(set(stripped)) < max(2, len(stripped)):
        raise _fault(where, f"{len(set(stripped))} different choices of {len(stripped)}", "at least 2, all different")
    answer = value.get("answer")
    if isinstance(answer, str) and answer.strip() in stripped:
        return AccuracyItem(context.rstrip(), stripped, stripped.index(answer.strip()))
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(stripped):
        return AccuracyItem(context.rstrip(), stripped, answer)
    limit = f"an index from 0 to {len(stripped) - 1}, or one of the choices"
    raise _fault(where, f"answer {answer!r} is outside its choices", limit)


def _fault(where: str, value: str, limit: str = FORMS) -> StepError:
    return StepError(where, value, limit=limit, remedy="Mend the line.")
