"""Our configuration is Llama 3.2's: around its real vocabulary it gives tiktoken's ids.

The vocabulary and what Meta declares come from the package llama-models, a development extra.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from llama_3 import declared_by_meta, llama_3_ranks, llama_3_tokenizer, write_llama_3_folder
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from steps.text.bbpe import LLAMA_3_PATTERN, SPECIAL_TOKENS, encode_as_text, load_fast_tokenizer
from steps.text.byte_characters import byte_of_character
from steps.text.chat_template import BOS_TOKEN, END_OF_TURN_TOKEN, EOS_TOKEN, PAD_TOKEN
from steps.vocabulary_size import VOCABULARY_MULTIPLE

REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", Path(__file__).parents[2].parent / "shared" / "data"))
TOKENS = 128_000
HARD = [
    "it's I'LL don't Bakı'da Bakı’lı", "  iki\n\n\n\tsətir \r\n ", "日本語🙂ქართული ខ្មែរ हिन्दी", "1234567 3,14",
    "\x00\x01 ſ'S", "<|eot_id|> is text", "a" * 500, " " * 100 + "\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return llama_3_tokenizer()


@pytest.fixture(scope="module")
def lines() -> list[str]:
    path = REAL_TEXT / "parallel_7_languages.jsonl"
    if not path.is_file():
        print(f"not measured: Llama 3's ids on seven languages: no file {path}")
        return []
    with path.open(encoding="utf-8") as stream:
        return [json.loads(line)["text"] for line in stream]


def test_pattern_bytes_and_special_tokens_are_those_that_meta_declares() -> None:
    pattern, declared = declared_by_meta()
    assert pattern == LLAMA_3_PATTERN
    in_order = sorted(llama_3_ranks(), key=llama_3_ranks().__getitem__)
    assert in_order[:256] == [bytes([byte]) for byte in byte_of_character().values()]
    assert len(in_order) == TOKENS
    # Every token with a part to play has Meta's name and place. Hugging Face's folders of Llama 3.2, which users give
    # as the base model, spell two others as reserved, since the text models never use them; ours follow the folders,
    # so that AdaptVocabulary finds each of the 256 by its name. The reserved ones behind are numbered on.
    spelt_otherwise = {
        5: ("<|reserved_special_token_2|>", "<|step_id|>"),
        11: ("<|reserved_special_token_3|>", "<|image|>"),
    }
    assert {place: (SPECIAL_TOKENS[place], declared[place]) for place in spelt_otherwise} == spelt_otherwise
    same = [place for place in range(12) if place not in spelt_otherwise]
    assert [SPECIAL_TOKENS[place] for place in same] == [declared[place] for place in same]
    assert declared[12:] == [f"<|reserved_special_token_{number}|>" for number in range(2, 246)]
    assert SPECIAL_TOKENS[12:] == [f"<|reserved_special_token_{number}|>" for number in range(4, 248)]
    assert len(declared) == len(SPECIAL_TOKENS) == 256


def test_ids_are_those_of_tiktoken(tokenizer: Tokenizer, lines: list[str]) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="no package tiktoken")
    pattern, declared = declared_by_meta()
    special = {name: TOKENS + place for place, name in enumerate(declared)}
    theirs = tiktoken.Encoding("llama-3", pat_str=pattern, mergeable_ranks=llama_3_ranks(), special_tokens=special)
    texts = [*lines, *HARD]
    encoded = [encoding.ids for encoding in encode_as_text(tokenizer, texts)]
    assert encoded == [theirs.encode_ordinary(text) for text in texts]
    assert tokenizer.decode_batch(encoded, skip_special_tokens=False) == texts
    # A special token is one where the text comes from a template.
    chat = "<|start_header_id|>user<|end_header_id|>\n\nSalam<|eot_id|>"
    assert tokenizer.encode(chat, add_special_tokens=False).ids == theirs.encode(chat, allowed_special="all")
    print(f"tiktoken's ids on {len(texts):,} texts")


def test_special_ids_and_the_one_bos(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == TOKENS + 256 == 128_256
    assert tokenizer.get_vocab_size() % VOCABULARY_MULTIPLE == 0
    ids = {BOS_TOKEN: 128_000, EOS_TOKEN: 128_001, PAD_TOKEN: 128_004, "<|start_header_id|>": 128_006,
           "<|end_header_id|>": 128_007, "<|eom_id|>": 128_008, END_OF_TURN_TOKEN: 128_009, "<|python_tag|>": 128_010,
           "<|reserved_special_token_247|>": 128_255}  # fmt: skip
    assert {token: tokenizer.token_to_id(token) for token in ids} == ids
    assert len({PAD_TOKEN, EOS_TOKEN, END_OF_TURN_TOKEN}) == 3
    assert tokenizer.encode("Salam").ids == [128_000, *tokenizer.encode("Salam", add_special_tokens=False).ids]
    pair = tokenizer.encode("Salam", "dünya").ids
    assert pair == tokenizer.encode("Salam").ids + tokenizer.encode("dünya").ids


def test_the_written_folder_is_the_same_tokenizer(tokenizer: Tokenizer, lines: list[str], tmp_path: Path) -> None:
    write_llama_3_folder(tmp_path / "written")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "written")
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id) == (128_000, 128_001, 128_004)
    assert len(loaded) == 128_256
    texts = [*lines[::50], *HARD[:5]]
    assert loaded(texts)["input_ids"] == [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert load_fast_tokenizer(tmp_path / "written").get_vocab() == loaded.get_vocab() == tokenizer.get_vocab()
