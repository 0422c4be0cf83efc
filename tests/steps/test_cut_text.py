"""A text as tokens for the eye, by tokenizers whose merges are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from workplace import ROOT

from steps.cut_text import cut


def byte_level(*merges: tuple[str, str]) -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate([*letters, *("".join(merge) for merge in merges)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


def test_tokens_spell_the_bytes_of_the_text() -> None:
    tokenizer = byte_level(("a", "b"), ("Ġ", "ab"))
    assert cut(tokenizer, "ab abə<|end|>") == [b"ab", b" ab", b"\xc9", b"\x99", b"<|end|>"]


def test_pieces_of_sentencepiece_and_its_bytes() -> None:
    vocabulary = {"<unk>": 0, "▁ki": 1, "tab": 2, "<0xC9>": 3, "<0x99>": 4, "▁": 5}
    model = models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert cut(tokenizer, "ə") == [b" ", b"\xc9", b"\x99"]


def test_the_command(tmp_path: Path) -> None:
    for name, merges in (("a", []), ("b", [("a", "b")])):
        byte_level(*merges).save(str(tmp_path / name))
    command = [sys.executable, "-m", "steps.cut_text", str(tmp_path / "a"), str(tmp_path / "b")]
    ended = subprocess.run(command, input="abə\n".encode(), cwd=ROOT, capture_output=True, check=True)
    first, second = json.loads(ended.stdout)["cuts"]
    assert [token["text"] for token in first] == ["a", "b", "\\xC9", "\\x99", "\n"]
    assert second[0] == {"text": "ab", "bytes": 2}
    (tmp_path / "b").write_text("{}")
    ended = subprocess.run(command, input=b"", cwd=ROOT, capture_output=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: " + str(tmp_path / "b").encode())
