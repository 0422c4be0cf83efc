"""What `inspect-mask` shows of conversations: each token, its bounds, whether it is trained, and why one is dropped."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from steps.contract import ConfigError, StepError
from steps.inspect_mask import inspect_mask, parse, tokenizer_folder
from steps.text.assistant_mask import ExampleBuilder
from steps.text.mask_view import Piece, ViewedToken, marked, painted, text_of_bytes, visible, wrapped

TALK = [
    {"prompt": "Salam ⟦x⟧ <|eot_id|>", "completion": "Bakı\n\n- şəhər 😀"},
    {"prompt": "Sual", "completion": "söz " * 100},
    {"prompt": "E-poçt?", "completion": "destek@example.com"},
    {"prompt": "Sual", "completion": ""},
]
SGR = re.compile(r"\x1b\[([0-9;]*)m")


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in TALK), "utf-8")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer) -> Path:
    """As TrainTokenizer leaves it."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save_pretrained(folder / "tokenizer")
    return folder


@pytest.fixture
def show(talk: Path, model: Path, capsys: pytest.CaptureFixture[str]):
    def run(*words: str) -> str:
        inspect_mask(parse([f"--conversations={talk}", f"--model={model}", "--max_tokens=128", *words]))
        return capsys.readouterr().out

    return run


def test_json_has_the_tokens_and_labels_of_fine_tuning(show, tiny_tokenizer):
    shown = json.loads(show("--json", "--all"))
    assert [example["dropped"] for example in shown["examples"]] == [None, "end of turn beyond max_tokens", None]
    for number in (0, 2):
        messages = [{"role": "user", "content": TALK[number]["prompt"]},
                    {"role": "assistant", "content": TALK[number]["completion"]}]  # fmt: skip
        built = ExampleBuilder(tiny_tokenizer, 128).build(messages, "here")
        tokens = shown["examples"][number]["tokens"]
        assert [token["id"] for token in tokens] == built.input_ids
        assert [token["id"] if token["trained"] else -100 for token in tokens] == built.labels
    first = shown["examples"][0]
    assert first["trained_count"] == sum(token["trained"] for token in first["tokens"]) > 0
    assert first["trained_share"] == first["trained_count"] / first["token_count"]
    # Two end a turn, and the one that the user typed is text.
    ends = [token["control"] for token in first["tokens"] if token["text"] == "<|eot_id|>"]
    assert ends == [True, True]
    summary = shown["summary"]
    assert (summary["lines"], summary["usable"]) == (4, 2)
    assert summary["dropped"] == {
        "empty turn": {"count": 1, "first": "talk.jsonl line 4: empty turn"},
        "end of turn beyond max_tokens": {"count": 1, "first": "talk.jsonl line 2: end of turn beyond max_tokens"},
    }


def test_without_colours_the_trained_tokens_stand_in_brackets(show):
    text = show()
    assert "\x1b" not in text
    assert "example 1 of 3: talk.jsonl line 1: user assistant" in text
    block = text.split("trained (")[1].split("\n", 1)[1].split("\n\nall ")[0]
    (stretch,) = re.findall("⟦(.*?)⟧", block, re.DOTALL)
    assert stretch.replace("│", "") == "Bakı⏎\n⏎\n- şəhər \\xF0\\x9F\\x98\\x80<|eot_id|>"
    # What the user typed is no bracket and no control token.
    assert "⟦x" not in block
    assert "<│|│" in block
    assert "all 4 lines, form prompt/completion: 2 usable, 2 dropped; " in text
    assert "dropped: 1 empty turn, first talk.jsonl line 4: empty turn" in text


def test_a_dropped_example_says_why_and_a_count_shows_several(show):
    text = show("--example=2", "--count=5")
    assert "dropped: end of turn beyond max_tokens (128)\n" in text
    assert re.findall(r"example (\d) of 3", text) == ["2", "3"]


def test_personal_data_is_shown_as_the_run_has_it(show):
    assert "destek" in show("--example=3").replace("│", "")
    assert "[EMAIL]" in show("--example=3", "--mask_personal_data").replace("│", "")


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("colours", [True, False])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(show, columns, colours):
    wide = show("--all", *["--colours"] * colours)
    narrow = show("--all", f"--columns={columns}", *["--colours"] * colours)
    plain = SGR.sub("", narrow)
    assert max(map(cell_len, plain.split("\n"))) <= columns
    assert re.sub(r"\s", "", plain) == re.sub(r"\s", "", SGR.sub("", wide))


def test_in_colours_each_token_has_its_own_shade(show, tiny_tokenizer):
    text = show("--colours")
    block = text.split("example 1")[1].split("\n\nall ")[0]
    shades = [int(found.split(";")[-1]) for found in SGR.findall(block) if ";" in found]
    built = ExampleBuilder(tiny_tokenizer, 128).build(
        [{"role": "user", "content": TALK[0]["prompt"]}, {"role": "assistant", "content": TALK[0]["completion"]}], ""
    )
    # A token with a line break inside is painted in two parts; there is none in this conversation.
    assert [shade in (114, 71) for shade in shades] == [label != -100 for label in built.labels]
    assert all(one != other for one, other in itertools.pairwise(shades))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\n\nx\n", "⏎⏎\nx⏎\n"),
        ("a\tb\x1b[0m\r", "a\\x09b\\x1B[0m\\x0D"),
        ("\u200f\u200d\ufeff\u2028", "\\u200F\\u200D\\uFEFF\\u2028"),
        ("\u0307i", "◌\u0307i"),
        ("⏎\U000e0001", "\\u23CE\\U000E0001"),
        ("İ 漢😀", "İ 漢😀"),
    ],
)
def test_what_cannot_be_seen_has_a_code(text, shown):
    assert visible(text) == shown


def test_half_characters_are_bytes():
    assert text_of_bytes("ə".encode()[:1] + b"a") == "\\xC9a"
    assert text_of_bytes(b"\xff\x99") == "\\xFF\\x99"
    assert text_of_bytes("ə".encode()) == "ə"


def test_brackets_and_bars_by_hand():
    trained = {"a": False, "b\n": True, "c": True, "<e>": True, "d": False, "f": True}
    tokens = [ViewedToken(0, text, is_trained, text == "<e>") for text, is_trained in trained.items()]
    assert "".join(piece.text for piece in marked(tokens, "<e>")) == "a⟦b⏎│\nc│<e>⟧\nd⟦f⟧"
    assert "".join(piece.text for piece in painted(tokens, "<e>")) == "ab⏎\nc<e>\ndf"


def test_wrapping_by_hand():
    pieces = [Piece("abc"), Piece("de"), Piece("漢漢漢", "1"), Piece("\n"), Piece("f\ng")]
    assert wrapped(pieces, None) == ["abcde\x1b[1m漢漢漢\x1b[0m", "f", "g"]
    assert wrapped(pieces, 4) == ["abc", "de\x1b[1m漢\x1b[0m", "\x1b[1m漢漢\x1b[0m", "f", "g"]
    assert wrapped([Piece("abcdefghi")], 4) == ["abcd", "efgh", "i"]


def test_what_cannot_be_shown_is_named(show, talk, tmp_path):
    with pytest.raises(ConfigError, match="--example: 4; limit 3 conversations"):
        show("--example=4")
    with pytest.raises(StepError, match=r"no tokenizer\.json\. Name a folder with a tokenizer"):
        tokenizer_folder(tmp_path)
    with pytest.raises(StepError, match="no such folder"):
        tokenizer_folder(tmp_path / "none")
    talk.write_text('{"prompt": "a", "completion": ""}\n{"prompt": "b"}\n')
    with pytest.raises(StepError, match=r"no conversation in 2 lines \(1 empty turn\), first talk.jsonl line 1: empty"):
        show()
