"""Conversations in their three forms, compressed or not, and what a bad line says."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from steps.contract import StepError
from steps.text.conversations import read_conversations

PAIR = [{"role": "user", "content": "Salam"}, {"role": "assistant", "content": "Buyurun"}]
FORMS = {
    "messages": {"messages": PAIR},
    "instruction/response": {"text": "Salam\nBuyurun", "id": 1, "instruction": "Salam", "response": "Buyurun"},
    "prompt/completion": {"prompt": "Salam", "completion": "Buyurun"},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_messages(tmp_path, form):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(FORMS[form]) + "\n\n" + json.dumps(FORMS[form]) + "\n")
    found = read_conversations(path)
    assert found.form == form
    assert found.conversations == [PAIR, PAIR]


def test_a_folder_of_compressed_files_is_read_in_the_order_of_names(tmp_path):
    lines = {
        name: (json.dumps({"prompt": name, "completion": "şəhər"}, ensure_ascii=False) + "\n").encode()
        for name in "abc"
    }
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines["b"]))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(lines["a"]))
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + lines["c"])
    (tmp_path / "README.md").write_text("not a conversation")
    (tmp_path / "d.jsonl").write_text(json.dumps(FORMS["messages"]))
    found = read_conversations(tmp_path)
    assert [messages[0]["content"] for messages in found.conversations] == ["a", "b", "c", "Salam"]
    assert found.form == "prompt/completion, messages"
    assert found.conversations[0][1]["content"] == "şəhər"


def test_text_is_brought_to_nfc(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"prompt": "s\u0327", "completion": "I\u0307"}))
    assert [message["content"] for message in read_conversations(path).conversations[0]] == ["ş", "İ"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"question": "a"}\n', r"a.jsonl line 1: fields question; limit messages, instruction/response, prompt/comp"),
        (b'{"prompt": "a", "completion": "b"}\n{"messages": []}\n', "a.jsonl line 2: no text field prompt"),
        (b'{"messages": [{"role": "bot", "content": "a"}]}\n', "a.jsonl line 1, message 0: role 'bot'; limit system"),
        (b'{"messages": [{"role": "user"}]}\n', r"a.jsonl line 1: no text field messages\[0\].content"),
        (b'{"messages": "a"}\n', "a.jsonl line 1: no list messages"),
        (b'{"prompt": "a", "completion": 3}\n', "a.jsonl line 1: no text field completion"),
        (b"[1]\n", "a.jsonl line 1: a JSON list"),
        (b"null\n", "a.jsonl line 1: null"),
        (b"{\n", "a.jsonl line 1: not JSON"),
        (b'{"prompt": "\xff"}\n', "a.jsonl line 1: invalid UTF-8"),
        (b'{"prompt": "a", "completion": "\\ud83d"}\n', "a.jsonl line 1: invalid Unicode in completion"),
        (b'{"\\ud83d": "a"}\n', r"a.jsonl line 1: fields \\ud83d; limit messages"),
        (b"\n \n", "no conversations in it"),
    ],
)
def test_a_bad_line_is_named(tmp_path, content, line):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(StepError, match=line):
        read_conversations(path)


def test_a_cut_file_and_a_wrong_kind_are_named(tmp_path):
    whole = gzip.compress(json.dumps(FORMS["messages"]).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(StepError, match=r"a.jsonl.gz: cannot be read \(EOFError"):
        read_conversations(tmp_path / "a.jsonl.gz")
    (tmp_path / "a.csv").write_text("a,b")
    with pytest.raises(StepError, match="unknown kind of file"):
        read_conversations(tmp_path / "a.csv")
