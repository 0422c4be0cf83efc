"""Files of conversations, compressed or not, and what a bad line says (test_conversation_forms.py: the forms)."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from steps.contract import StepError
from steps.text.conversations import OTHER_FORM, check_unusable, read_conversations

PAIR = [{"role": "user", "content": "Salam"}, {"role": "assistant", "content": "Buyurun"}]
FORMS = {
    "messages": {"messages": PAIR},
    "instruction/response": {"text": "Salam\nBuyurun", "id": 1, "instruction": "Salam", "response": "Buyurun"},
    "prompt/completion": {"prompt": "Salam", "completion": "Buyurun"},
}


def chat(*roles: str) -> bytes:
    return json.dumps({"messages": [{"role": role, "content": "Salam"} for role in roles]}).encode()


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
    ("line", "reason", "detail"),
    [
        (b'{"question": "a"}', "unknown form", "fields question, none of the forms messages, sharegpt (conversation"),
        (b'{"messages": [{"role": "bot", "content": "a"}]}', "unknown role", "messages[0] has role 'bot', not system,"),
        (b'{"messages": [{"role": "user"}]}', "content that is no text", "messages[0].content is no text"),
        (b'{"messages": "a"}', "no list messages", "no list messages"),
        (b'{"conversations": {}}', "no list conversations", "no list conversations"),
        (b'{"conversations": [{"from": "bing", "value": "a"}]}', "unknown role", "conversations[0] has from 'bing', "),
        (b'{"conversations": [{"from": ["gpt"]}]}', "unknown role", "conversations[0] has from ['gpt'], not system,"),
        (b'{"conversations": [{"from": "gpt"}]}', "content that is no text", "conversations[0].value is no text"),
        (b'{"conversations": [{"from": "gpt", "value": "a"}]}', "roles out of order", "roles out of order: assistant"),
        (b'{"instruction": "a", "context": 1, "response": "b"}', "content that is no text", "context is no text"),
        (b'{"instruction": " ", "context": "a", "response": "b"}', "empty turn", "empty turn"),
        (b'{"instruction": "a", "context": "", "response": ""}', "empty turn", "empty turn"),
        (b'{"instruction": "a", "response": "b", "system": 1}', "content that is no text", "system is no text"),
        (b'{"prompt": [], "completion": "a"}', "no list prompt", "no list prompt"),
        (b'{"prompt": "a", "completion": [{"role": "user", "content": "a"}]}', "no answer", "no answer: user user"),
        (b'{"prompt": "a", "completion": 3}', "content that is no text", "completion is no text"),
        (b"[1]", "no JSON object", "a JSON list"),
        (b"null", "no JSON object", "null"),
        (b"{", "not JSON", "not JSON"),
        (b"[" * 100_000, "not JSON", "not JSON (a list, or part of one: one object a line"),
        (b'[{"prompt": "a", "completion": "b"},', "not JSON", "not JSON (a list, or part of one: one object a line"),
        (b'{"prompt": "\xff"}', "invalid UTF-8", "invalid UTF-8"),
        (b'{"prompt": "a", "completion": "\\ud83d"}', "invalid Unicode", "half a surrogate pair in completion"),
        (b'{"prompt": "a", "completion": " "}', "empty turn", "empty turn"),
        (chat("user"), "no answer", "no answer: user"),
        (chat("system"), "no answer", "no answer: system"),
        (chat("assistant", "user"), "roles out of order", "roles out of order: assistant user"),
        (chat("user", "user", "assistant"), "roles out of order", "roles out of order: user user assistant"),
        (chat("user", "system", "assistant"), "roles out of order", "roles out of order: user system assistant"),
        (chat("user", "assistant", "user"), "roles out of order", "roles out of order: user assistant user"),
        (chat("system", "system", "user", "assistant"), "roles out of order", "roles out of order: system system user"),
    ],
)
def test_a_bad_line_is_counted_and_the_first_is_named(tmp_path, line, reason, detail):
    """Beyond the stated share it stops the step with this place and fault."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + line + b"\n" + line)
    found = read_conversations(path)
    assert (found.conversations, found.lines) == ([], 2)
    assert found.unusable.keys() == {reason}
    assert found.unusable[reason].count == 2
    assert found.unusable[reason].first.startswith(f"a.jsonl line 2: {detail}")
    with pytest.raises(
        StepError, match=r"conversations: 2 of 2 cannot be used \(2 .*\), first a.jsonl line 2: .*; limit a"
    ):
        check_unusable(found.unusable, found.lines, 0.1)


def test_a_bad_line_among_good_ones_is_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"{\n" + b"".join(chat("system", "user", "assistant") + b"\n" for _ in range(9)) + b'{"prompt": "a"}'
    )
    found = read_conversations(path)
    assert len(found.conversations) == 9
    assert found.places[0] == "a.jsonl line 2"
    assert {reason: noted.count for reason, noted in found.unusable.items()} == {"not JSON": 1, OTHER_FORM: 1}
    assert found.unusable[OTHER_FORM].first == "a.jsonl line 11: fields prompt, while the file's form is messages"
    check_unusable(found.unusable, found.lines, 0.2)
    with pytest.raises(
        StepError, match=r"2 of 11 cannot .* \(1 another form .*, 1 not JSON\).*; limit a share of 0.1\. "
    ):
        check_unusable(found.unusable, found.lines, 0.1)


def test_nothing_at_all_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n \n")
    with pytest.raises(StepError, match="no conversations in it; limit at least 1"):
        read_conversations(tmp_path / "a.jsonl")


def test_a_cut_file_and_a_wrong_kind_are_named(tmp_path):
    whole = gzip.compress(json.dumps(FORMS["messages"]).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(whole[:-12])
    with pytest.raises(StepError, match=r"a.jsonl.gz: cannot be read \(EOFError"):
        read_conversations(tmp_path / "a.jsonl.gz")
    (tmp_path / "a.csv").write_text("a,b")
    with pytest.raises(StepError, match="unknown kind of file"):
        read_conversations(tmp_path / "a.csv")
