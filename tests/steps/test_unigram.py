"""Unigram tokenizers: byte-level, exact, the same each time, usable by all that reads a tokenizer folder; suffixes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
import regex
from tokenizers import Regex, Tokenizer, pre_tokenizers
from transformers import AutoTokenizer

from steps.contract import ConfigError, StepError
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.vocabulary import BaseRows, replace_vocabulary
from steps.modeling.vocabulary_plan import plan_vocabulary
from steps.text.bbpe import APOSTROPHE_PATTERN, LLAMA_3_PATTERN, SPECIAL_TOKENS, encode_as_text, shrink, train_bbpe
from steps.text.byte_characters import byte_of_character
from steps.text.chat_template import BOS_TOKEN, END_OF_TURN_TOKEN
from steps.text.pretokens import count_pretokens
from steps.text.suffixes import AZERBAIJANI_SUFFIXES, TURKISH_SUFFIXES, split_counts, suffix_pattern
from steps.text.token_bytes import TokenBytes, token_bytes_of
from steps.text.unigram import TrainedUnigram, count_seeds, train_unigram
from steps.train_tokenizer import write_tokenizer_folder

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
TEXTS = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
HARD = [
    "İstanbul, Iğdır; ılıq — “iş” KİTABLARIMIZDAN evlərinizdəkilər",
    "  iki boşluq\n\n\tsətir \r\n\u00a0\u2003\u0085\x1c ",
    "日本語 🙂 ქართული ខ្មែរ नमस्ते",
    "12345 3,14",
    "\x00\x01\x02\ufffe",
    "Bakı'nın Bakı’da it's",
    "e\u0301şikdən i\u0307şdən",
    "",
]
SIZES = (1_024, 2_048)
SUFFIXED = suffix_pattern(AZERBAIJANI_SUFFIXES)


@pytest.fixture(scope="module")
def plain() -> TrainedUnigram:
    return train_unigram(count_pretokens(TEXTS, LLAMA_3_PATTERN), SIZES)


@pytest.fixture(scope="module")
def suffixed() -> TrainedUnigram:
    counts = split_counts(count_pretokens(TEXTS, APOSTROPHE_PATTERN), SUFFIXED)
    return train_unigram(counts, SIZES, SUFFIXED)


def random_texts(count: int) -> list[str]:
    generator = random.Random(0)
    ranges = [(0x00, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x2000, 0x206F), (0xE000, 0x10FFFF)]
    return [
        "".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(generator.randint(1, 20)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["plain", "suffixed"])
def test_every_text_decodes_exactly_and_begins_with_the_new_bos(kind: str, request) -> None:
    for size, tokenizer in request.getfixturevalue(kind).tokenizers.items():
        assert tokenizer.get_vocab_size() == size
        assert tokenizer.token_to_id(BOS_TOKEN) == size - 256
        assert [tokenizer.id_to_token(index) for index in range(256)] == list(byte_of_character())
        texts = [*TEXTS, *HARD, *random_texts(2_000)]
        for text, encoding in zip(texts, encode_as_text(tokenizer, texts), strict=True):
            assert tokenizer.decode(encoding.ids, skip_special_tokens=False) == text
        assert tokenizer.encode("a").ids == [size - 256, *tokenizer.encode("a", add_special_tokens=False).ids]


def test_takes_about_as_many_tokens_as_bbpe_of_the_same_size(plain: TrainedUnigram) -> None:
    bbpe = train_bbpe(TEXTS, 2_048, 2)
    for size, tokenizer in plain.tokenizers.items():
        ours, theirs = (
            sum(len(encoding.ids) for encoding in encode_as_text(made, TEXTS))
            for made in (tokenizer, shrink(bbpe, size))
        )
        print(f"{size} tokens, on the text trained on: unigram {ours / theirs:.3f} of BBPE's tokens")
        assert ours < 1.1 * theirs


def test_training_again_in_another_process_gives_the_same_file(plain: TrainedUnigram, tmp_path) -> None:
    program = (
        "import json, pathlib, sys; from steps.text.unigram import train_unigram\n"
        "from steps.text.pretokens import count_pretokens; from steps.text.bbpe import LLAMA_3_PATTERN\n"
        f"lines = pathlib.Path({str(SAMPLE)!r}).read_text('utf-8').splitlines()\n"
        # Another order of the texts, so another order of the counts.
        "counts = count_pretokens([json.loads(line)['text'] for line in reversed(lines)], LLAMA_3_PATTERN)\n"
        f"print(json.dumps([t.to_str() for t in train_unigram(counts, {SIZES}).tokenizers.values()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={
            "PYTHONHASHSEED": "7",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SAMPLE.parents[2]),
            "TMPDIR": str(tmp_path),
        },
    )
    # Nothing is said and no file is left.
    assert (done.stderr, list(tmp_path.iterdir())) == ("", [])
    assert json.loads(done.stdout) == [tokenizer.to_str() for tokenizer in plain.tokenizers.values()]


def test_too_little_text_gives_what_it_has() -> None:
    trained = train_unigram(count_pretokens(TEXTS[:3], LLAMA_3_PATTERN), [576, 1_024, 32_768])
    print(f"three documents give {trained.learnable} tokens")
    assert 1_024 < trained.learnable < 4_096
    sizes = {asked: tokenizer.get_vocab_size() for asked, tokenizer in trained.tokenizers.items()}
    assert sizes == {576: 576, 1_024: 1_024, 32_768: trained.learnable // 64 * 64}
    assert train_unigram({}, [576]).learnable == 512
    nothing = train_unigram({"a": 3}, [576]).tokenizers[576]
    assert (nothing.get_vocab_size(), nothing.decode(nothing.encode("ə ev").ids[1:])) == (512, "ə ev")
    with pytest.raises(StepError, match="512 tokens: 256 bytes and 256 special ones"):
        train_unigram({"a": 3}, [448])


@pytest.mark.parametrize("kind", ["plain", "suffixed"])
def test_the_folder_loads_in_transformers_and_holds_a_chat(kind: str, request, tmp_path: Path) -> None:
    tokenizer = request.getfixturevalue(kind).tokenizers[1_024]
    write_tokenizer_folder(tokenizer, tmp_path, 512)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert (loaded.is_fast, len(loaded), loaded.model_max_length) == (True, 1_024, 512)
    for text in [*TEXTS[:5], *HARD]:
        assert loaded(text)["input_ids"] == tokenizer.encode(text).ids
        assert loaded.decode(loaded(text, add_special_tokens=False)["input_ids"]) == text
    spelt = f"sonra {END_OF_TURN_TOKEN} yazılır"
    as_text = encode_as_text(tokenizer, [spelt])[0].ids
    end_of_turn = tokenizer.token_to_id(END_OF_TURN_TOKEN)
    assert end_of_turn not in as_text
    assert end_of_turn in tokenizer.encode(spelt).ids
    assert tokenizer.decode(as_text, skip_special_tokens=False) == spelt
    chat = loaded.apply_chat_template([{"role": "user", "content": "Salam"}], tokenize=True)["input_ids"]
    assert (chat[0], chat.count(loaded.bos_token_id), chat.count(end_of_turn)) == (loaded.bos_token_id, 1, 1)
    assert tokenizer.decode(chat, skip_special_tokens=False).startswith(BOS_TOKEN)
    assert loaded.convert_tokens_to_ids(SPECIAL_TOKENS) == list(range(768, 1_024))
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).to_str() == tokenizer.to_str()


def test_a_model_takes_the_vocabulary_and_is_scored_by_bytes(
    suffixed: TrainedUnigram, make_tiny_tokenizer, make_tiny_llama, tmp_path: Path
) -> None:
    write_tokenizer_folder(suffixed.tokenizers[1_024], tmp_path, 512)
    new, base = AutoTokenizer.from_pretrained(tmp_path), make_tiny_tokenizer()
    assert type(token_bytes_of(new)) is TokenBytes
    plan = plan_vocabulary(base, new, base_rows=320)
    assert (plan.rows, plan.tokens) == (1_024, 1_024)
    # All bytes are the base's; each other piece falls into base tokens.
    assert [base.convert_ids_to_tokens(plan.copied[index]) for index in range(256)] == list(byte_of_character())
    table = token_bytes_of(base)
    for index, pieces in plan.composed.items():
        assert index in plan.special or b"".join(table[piece] for piece in pieces) == token_bytes_of(new)[index]
    # And the other way round: a model that has such a tokenizer can be adapted in its turn.
    back = plan_vocabulary(new, base, base_rows=1_024)
    assert len(back.copied) + len(back.composed) == 320
    assert all(pieces for index, pieces in back.composed.items() if index not in back.special)
    model = make_tiny_llama(320)
    replace_vocabulary(model, BaseRows.of(model), plan, new.pad_token_id, initialiser="copy+subtoken_mean")
    documents = [text[:400] for text in TEXTS[:2]] + HARD[:3]
    scores = score_documents(model, new, documents, context_bytes=256, batch_tokens=512)
    assert scores.bytes.tolist() == [len(text.encode()) for text in documents]
    assert 0 < scores.bits_per_byte < 20


def test_long_pretokens_take_linear_time(plain: TrainedUnigram, suffixed: TrainedUnigram) -> None:
    for trained in (plain, suffixed):
        tokenizer = trained.tokenizers[2_048]
        seconds = []
        for letters in (50_000, 400_000):
            text = "kitablar" * (letters // 8)
            started = time.perf_counter()
            ids = encode_as_text(tokenizer, [text])[0].ids
            seconds.append(time.perf_counter() - started)
            assert tokenizer.decode(ids) == text
        print(f"50,000 letters without a space: {seconds[0]:.3f} s; 400,000: {seconds[1]:.3f} s")
        # Eight times the letters; were it quadratic, 64 times the seconds.
        assert seconds[1] < 30 * max(seconds[0], 0.01)


def pieces(text: str, pattern: str = SUFFIXED) -> list[str]:
    return regex.findall(pattern, text)


def test_words_fall_into_stem_and_suffixes() -> None:
    assert pieces("kitablarımızdan") == ["kitab", "lar", "ımız", "dan"]
    assert pieces("KİTABLARIMIZDAN") == ["KİTAB", "LAR", "IMIZ", "DAN"]
    assert pieces(" İşçilərinizdən") == [" İşçi", "lər", "iniz", "dən"]
    # Without Turkic letters too.
    assert pieces("SEHIRLERIMIZ", suffix_pattern(["lər", "ler", "imiz"])) == ["SEHIR", "LER", "IMIZ"]
    # No stem of three letters: whole. Nor is a word cut that ends in anything else.
    assert pieces(" da dan evdə lar") == [" da", " dan", " evdə", " lar"]
    assert pieces("kitablarq, qırx") == ["kitablarq", ",", " qırx"]
    assert pieces(" evlerimizden", suffix_pattern(TURKISH_SUFFIXES)) == [" evler", "imiz", "den"]


@pytest.mark.parametrize("suffixes", [AZERBAIJANI_SUFFIXES, TURKISH_SUFFIXES, ["ssa", "ssä", "sta", "ni", "ß", "ς"]])
def test_both_engines_find_the_same_pieces_and_no_character_is_lost(suffixes: list[str]) -> None:
    pattern = suffix_pattern(suffixes)
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    words = sorted({word for text in TEXTS for word in text.split()})
    texts = [*TEXTS, *HARD, *random_texts(1_000), " ".join(words).upper(), " ".join(words).lower(), *words[:2_000]]
    for text in texts:
        # What Unicode made a letter lately is none yet to the older engine.
        text = "".join(character for character in text if unicodedata.category(character) != "Cn")
        found = pieces(text, pattern)
        assert "".join(found) == text
        assert found == [piece for piece, _ in split.pre_tokenize_str(text)]


def test_splitting_counted_words_equals_counting_suffixes() -> None:
    texts = [*TEXTS, *HARD]
    assert split_counts(count_pretokens(texts, APOSTROPHE_PATTERN), SUFFIXED) == count_pretokens(texts, SUFFIXED)


@pytest.mark.parametrize(("suffixes", "value"), [([], "at least one"), (["-da"], "'-da'"), (["lar", ""], "''")])
def test_suffixes_that_are_none_are_refused(suffixes: list[str], value: str) -> None:
    with pytest.raises(ConfigError, match=value):
        suffix_pattern(suffixes)


def test_each_suffix_stands_once_in_the_lists() -> None:
    for suffixes in (AZERBAIJANI_SUFFIXES, TURKISH_SUFFIXES):
        assert len(suffixes) == len(set(suffixes)) > 150


def test_a_byte_that_is_too_rare_for_sentencepiece_is_a_piece_all_the_same():
    """Of counts as gigabytes have them its coverage of characters, a float32, is 1 before the rarest."""
    counts = {"salam": 10**9, " dünya": 10**9, " necəsən": 10**8}
    trained = train_unigram(counts, [576])
    tokenizer = trained.tokenizers[576]
    assert tokenizer.get_vocab_size() <= 576
    for text in ("salam dünya", "²ĵ \x00\x7f ünya", "".join(map(chr, range(0x20, 0x250)))):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_seeds_are_the_parts_that_cover_most_and_no_more_than_asked_for():
    spelled = {"salamlar": 3, "salam": 5, "sa": 1, "kitab": 1}
    covered = Counter()
    for pretoken, count in spelled.items():
        for begin in range(len(pretoken)):
            for end in range(begin + 2, len(pretoken) + 1):
                covered[pretoken[begin:end]] += count * (end - begin)
    # Parts that occur once teach nothing: of kitab there is one.
    often = {part: bytes_ for part, bytes_ in covered.items() if part not in "kitab"}
    expected = sorted(often.items(), key=lambda pair: (-pair[1], pair[0]))
    assert list(count_seeds(spelled, 1_000).items()) == expected
    assert list(count_seeds(spelled, 4).items()) == expected[:4]
    assert expected[0] == ("salam", 40)
