"""The sample's conversations, each time spoilt in one plausible way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "conversations.jsonl"
Pair = tuple[str, str]

ENGLISH = [
    "How do I change my plan from the phone when I am travelling and have no card with me?",
    "Why was the money taken twice, and when will the second payment come back to my account?",
    "Which of your offices is open on Saturday morning and where can I park my car near it?",
    "What should I do when the whole house has no network while the neighbours watch films happily?",
]


def sample_pairs() -> list[Pair]:
    """The first question and answer of the sample's conversations, as many as the spoiling below is made for."""
    read = [json.loads(line)["messages"] for line in SAMPLE.read_text("utf-8").splitlines()[:104]]
    spoken = [[message for message in messages if message["role"] != "system"] for messages in read]
    return [(messages[0]["content"], messages[1]["content"]) for messages in spoken]


def write_pairs(path: Path, pairs: list[Pair]) -> Path:
    lines = [json.dumps({"prompt": asked, "completion": said}, ensure_ascii=False) for asked, said in pairs]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def cut_short(text: str) -> str:
    """The first 22 words, without the mark at the end: what a limit of tokens leaves."""
    return " ".join(text.split()[:22]).rstrip(".,;:!?)»”") if len(text.split()) > 22 else text


def misread(text: str) -> str:
    """UTF-8 taken for Windows-1252, as an import with a wrong setting gives it."""
    return text.encode().decode("cp1252", "replace")


def in_english(pairs: list[Pair]) -> list[Pair]:
    return [
        (f"{ENGLISH[number % 4]} ({number})", f"{ENGLISH[(number + 1) % 4][:-1]}: this is answer number {number}.")
        for number in range(len(pairs))
    ]


SPOILT: dict[str, Callable[[list[Pair]], list[Pair]]] = {
    "repeated-conversations": lambda pairs: [*pairs, *pairs[:4] * 5],
    "repeated-answers": lambda pairs: [
        (asked, pairs[number % 8][1] if number % 2 else said) for number, (asked, said) in enumerate(pairs)
    ],
    "one-answer-dominates": lambda pairs: [
        (asked, "Zəhmət olmasa, dəstək xidmətinə müraciət edin." if number % 2 else said)
        for number, (asked, said) in enumerate(pairs)
    ],
    "swapped-columns": lambda pairs: [(said, asked) for asked, said in pairs],
    "conversations-in-another-language": in_english,
    "heldout-questions-in-training": lambda pairs: [
        *pairs, *((asked.upper().replace("?", " ?"), f"{said} Sağ olun.") for asked, said in pairs)
    ],
    "truncated-answers": lambda pairs: [(asked, cut_short(said)) for asked, said in pairs],
    "answers-begin-with-question": lambda pairs: [(asked, f"{asked} {said}") for asked, said in pairs],
    "html-in-conversations": lambda pairs: [
        (asked, f"<p>{said}</p>" if number % 10 == 0 else said) for number, (asked, said) in enumerate(pairs)
    ],
    "mojibake-in-conversations": lambda pairs: [
        (asked, misread(said) if number % 20 == 0 else said) for number, (asked, said) in enumerate(pairs)
    ],
    "template-in-text": lambda pairs: [
        (asked, f"### Response:\n{said}" if number % 10 == 0 else said) for number, (asked, said) in enumerate(pairs)
    ],
    "conversations-too-long": lambda pairs: [
        (asked, f"{said} " * 50 if number % 14 == 0 else said) for number, (asked, said) in enumerate(pairs)
    ],
    "personal-data-in-conversations": lambda pairs: [
        *pairs[1:], ("Sizə necə yazım?", "Bizə destek@example.com ünvanına yazın və ya +994 50 123 45 67 zəng edin.")
    ],
}  # fmt: skip
