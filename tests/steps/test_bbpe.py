"""BBPE: Llama 3.2's configuration, exact round trips, the smaller vocabulary inside the larger one."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from steps.contract import StepError
from steps.text.bbpe import (
    APOSTROPHE_PATTERN,
    LLAMA_3_PATTERN,
    SPECIAL_TOKENS,
    learnt_tokens,
    llama_3_pre_tokenizer,
    pattern_of,
    shrink,
    tokenizer_digest,
    train_bbpe,
)
from steps.text.chat_template import BOS_TOKEN, END_OF_TURN_TOKEN, EOS_TOKEN, PAD_TOKEN
from steps.train_tokenizer import write_tokenizer_folder

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
TEXTS = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
HARD = [
    "İstanbul, Iğdır; ılıq — “iş”",
    "  iki boşluq\n\n\tsətir ",
    "日本語 🙂 ქართული ខ្មែរ",
    "12345 3,14",
    "\x01\x02",
    "Bakı'nın",
]


def test_special_tokens_of_llama_3() -> None:
    assert len(SPECIAL_TOKENS) == len(set(SPECIAL_TOKENS)) == 256
    # Places in Llama 3.2's vocabulary, where the special tokens begin at 128,000.
    places = {BOS_TOKEN: 0, EOS_TOKEN: 1, PAD_TOKEN: 4, "<|start_header_id|>": 6, "<|end_header_id|>": 7,
              "<|eom_id|>": 8, END_OF_TURN_TOKEN: 9, "<|reserved_special_token_247|>": 255}  # fmt: skip
    assert {token: SPECIAL_TOKENS.index(token) for token in places} == places


@pytest.mark.parametrize("pattern", [LLAMA_3_PATTERN, APOSTROPHE_PATTERN], ids=["llama-3", "apostrophe"])
@pytest.mark.parametrize("size", [512, 1024, 2048])
def test_shrinking_equals_training_at_that_size(size: int, pattern: str) -> None:
    shrunk = shrink(train_bbpe(TEXTS, 4096, 2, pattern), size)
    trained = train_bbpe(TEXTS, size, 2, pattern)
    assert shrunk.to_str() == trained.to_str()
    assert pattern_of(shrunk) == pattern
    assert shrunk.get_vocab_size() == size


def test_every_text_decodes_exactly_and_begins_with_the_new_bos() -> None:
    tokenizer = train_bbpe(TEXTS, 2048, 2)
    for text in [*TEXTS, *HARD]:
        ids = tokenizer.encode(text).ids
        assert ids[0] == tokenizer.token_to_id(BOS_TOKEN) == 2048 - 256
        assert ids.count(ids[0]) == 1
        assert tokenizer.decode(ids[1:], skip_special_tokens=False) == text


def test_too_little_text_is_refused() -> None:
    # Nothing occurs twice: bytes and special tokens.
    trained = train_bbpe(["qısa mətn"], 4096, 2)
    assert learnt_tokens(trained) == 512
    with pytest.raises(StepError, match="4096; limit 512 tokens that the training text gives"):
        shrink(trained, 4096)


@pytest.mark.parametrize("size", [0, 256, 511])
def test_a_vocabulary_below_bytes_and_special_tokens_is_refused(size: int) -> None:
    expected = (
        f"train_tokenizer.vocabulary_sizes: {size}; limit 512 tokens: 256 bytes and 256 special ones. Ask for more."
    )
    for refused in (lambda: train_bbpe(TEXTS, size, 2), lambda: shrink(train_bbpe(TEXTS, 512, 2), size)):
        with pytest.raises(StepError) as caught:
            refused()
        assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "llama_3", "apostrophe"),
    [
        ("Bakı'da", ["Bakı", "'d", "a"], ["Bakı", "'da"]),
        ("Bakı'sı", ["Bakı", "'s", "ı"], ["Bakı", "'sı"]),
        ("Bakı'nın", ["Bakı", "'nın"], ["Bakı", "'nın"]),
        ("Bakı’lı Ankara’dan", ["Bakı", "’lı", " Ankara", "’dan"], ["Bakı", "’lı", " Ankara", "’dan"]),
        ("it's I'LL don't", ["it", "'s", " I", "'LL", " don", "'t"], ["it", "'s", " I", "'LL", " don", "'t"]),
    ],
)
def test_suffixes_behind_an_apostrophe(text: str, llama_3: list[str], apostrophe: list[str]) -> None:
    for pattern, expected in ((LLAMA_3_PATTERN, llama_3), (APOSTROPHE_PATTERN, apostrophe)):
        found = llama_3_pre_tokenizer(pattern).pre_tokenize_str(text)
        assert [text[begin:end] for _, (begin, end) in found] == expected


def test_the_folder_loads_in_transformers(tmp_path: Path) -> None:
    tokenizer = train_bbpe(TEXTS, 1024, 2)
    write_tokenizer_folder(tokenizer, tmp_path, 512)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.is_fast
    assert loaded.model_max_length == 512
    for text in [*TEXTS[:5], *HARD]:
        assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
    assert loaded.pad_token_id not in (loaded.eos_token_id, loaded.convert_tokens_to_ids(END_OF_TURN_TOKEN))
    loaded.save_pretrained(tmp_path / "again")
    assert tokenizer_digest(tmp_path / "again") == tokenizer_digest(tmp_path)
