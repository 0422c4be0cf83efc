"""The sample's text: enough of it, varied, nothing repeated."""

import collections
import json
import zlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "steps" / "sample_data"
CORPUS = [json.loads(line) for line in (FOLDER / "corpus.jsonl").read_text("utf-8").splitlines()]
CONVERSATIONS = [
    json.loads(line)["messages"] for line in (FOLDER / "conversations.jsonl").read_text("utf-8").splitlines()
]
FIRST_60_KB = "\n".join(document["text"] for document in CORPUS).encode()[:60_000]


def test_size_and_topics() -> None:
    assert len(CORPUS) >= 40
    assert sum(len(document["text"].encode()) for document in CORPUS) >= 60_000
    topics = {document["topic"] for document in CORPUS}
    assert topics == {"telecom", "city", "science", "history", "cooking", "law", "story"}


def test_the_prose_is_varied() -> None:
    assert len(zlib.compress(FIRST_60_KB, 9)) / len(FIRST_60_KB) >= 0.33
    words = FIRST_60_KB.decode(errors="ignore").split()
    runs = [tuple(words[place : place + 6]) for place in range(len(words) - 5)]
    repeated = sum(count for count in collections.Counter(runs).values() if count > 1)
    assert repeated / len(runs) <= 0.01


def test_conversations() -> None:
    assert len(CONVERSATIONS) >= 80
    assert all([message["role"] for message in messages] == ["user", "assistant"] for messages in CONVERSATIONS)
    answers = [messages[1]["content"].strip() for messages in CONVERSATIONS]
    assert len(set(answers)) == len(answers)


def test_latin_script_only() -> None:
    everything = json.dumps([CORPUS, CONVERSATIONS], ensure_ascii=False)
    assert not [character for character in everything if "\u0400" <= character <= "\u04ff"]
