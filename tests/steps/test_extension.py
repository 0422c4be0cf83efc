"""A base tokenizer extended, or with its tokens of other scripts replaced; its own text keeps its ids."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from steps.contract import StepError
from steps.text.bbpe import encode_as_text, train_bbpe
from steps.text.chat_template import BOS_TOKEN, CHAT_TOKENS, END_OF_TURN_TOKEN
from steps.text.extension import Base, count_base_pretokens, extend, own_letters, replace, replaceable
from steps.text.merges import learn_merges
from steps.train_tokenizer import write_tokenizer_folder

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
NEW = [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()]
ENGLISH = [
    "The committee met on Tuesday, and the minister said that the new law would be read again.",
    "It's a poland-sized problem: def read(path): return open(path).read()",
    "Diplomats said that they had found enough of the old letters in the library.",
]
RUSSIAN = ["Министр сказал, что новый закон будет прочитан ещё раз во вторник, и комитет согласился с этим."] * 3


@pytest.fixture(scope="module")
def base() -> Tokenizer:
    return train_bbpe([*ENGLISH * 3, *RUSSIAN], 1_088, 2)


@pytest.fixture(scope="module")
def counts(base: Tokenizer) -> Counter[str]:
    return count_base_pretokens(base, NEW)


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in encode_as_text(tokenizer, texts)]


def decodes_exactly(tokenizer: Tokenizer) -> bool:
    texts = [*NEW, *ENGLISH, *RUSSIAN, "İıə 日本語 🙂 \x00\x01", "  \n\n a <|eot_id|>"]
    return tokenizer.decode_batch(ids(tokenizer, texts), skip_special_tokens=False) == texts


def test_extended_keeps_every_id_of_the_base(base: Tokenizer, counts: Counter[str]) -> None:
    extended = extend(Base(base), counts, [], 512, 2)
    before, after = base.get_vocab(), extended.get_vocab()
    assert {token: after[token] for token in before} == before
    assert sorted(index for token, index in after.items() if token not in before) == [
        *range(len(before), len(before) + 512)
    ]
    assert len(extended.get_added_tokens_decoder()) == len(base.get_added_tokens_decoder())
    assert decodes_exactly(extended)
    tokens = [sum(map(len, ids(one, NEW))) for one in (base, extended)]
    assert tokens[1] < 0.6 * tokens[0]


def test_english_and_protected_text_keep_their_ids(base: Tokenizer, counts: Counter[str]) -> None:
    protected = ["Gözəl şəhər haqqında bir cümlə", *ENGLISH]
    assert ids(extend(Base(base), counts, [], 512, 2), ENGLISH) == ids(base, ENGLISH)
    kept = sorted(count_base_pretokens(base, protected))
    assert ids(extend(Base(base), counts, kept, 512, 2), protected) == ids(base, protected)
    # Without protection the sentence of the new language is not the base's.
    assert ids(extend(Base(base), counts, [], 512, 2), protected[:1]) != ids(base, protected[:1])


def test_replaced_keeps_the_size_and_gives_up_other_scripts(base: Tokenizer, counts: Counter[str]) -> None:
    replaced = replace(Base(base), counts, [], 2)
    before, after = base.get_vocab(), replaced.get_vocab()
    assert len(before) == len(after)
    assert sorted(before.values()) == sorted(after.values())
    gone = before.keys() - after.keys()
    assert len(gone) > 50
    assert gone <= set(replaceable(Base(base), counts, []))
    assert all(before[token] == after[token] for token in before.keys() - gone)
    assert ids(replaced, ENGLISH) == ids(base, ENGLISH)
    assert decodes_exactly(replaced)
    tokens = [sum(map(len, ids(one, NEW))) for one in (base, replaced)]
    assert tokens[1] < 0.8 * tokens[0]


def test_a_script_that_is_the_language_s_own_stays(base: Tokenizer) -> None:
    assert replaceable(Base(base), count_base_pretokens(base, RUSSIAN), []) == []
    protected = count_base_pretokens(base, RUSSIAN[:1])
    assert replaceable(Base(base), count_base_pretokens(base, NEW), protected) == []
    letters = own_letters(count_base_pretokens(base, NEW))
    assert {"ə", "ı", "ğ", "A"} <= letters
    assert "ж" not in letters


def test_twice_the_same(base: Tokenizer, counts: Counter[str]) -> None:
    shuffled = list(counts.items())
    random.Random(1).shuffle(shuffled)
    assert extend(Base(base), counts, [], 256, 2).to_str() == extend(Base(base), dict(shuffled), [], 256, 2).to_str()


def test_a_text_of_few_words_gives_few_tokens(base: Tokenizer) -> None:
    few = extend(Base(base), count_base_pretokens(base, ["şəhər şəhər şəhər"]), [], 512, 2)
    assert 0 < few.get_vocab_size() - base.get_vocab_size() < 12


def test_a_base_without_the_chat_s_tokens_gets_them(tmp_path: Path, counts: Counter[str]) -> None:
    """As GPT-2 and Qwen are: other special tokens, pre-tokenisation by ByteLevel's own pattern."""
    alphabet = {token: number for number, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab={**alphabet, "Ġt": 256, "he": 257}, merges=[("Ġ", "t"), ("h", "e")]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens(["<|endoftext|>"])
    extended = extend(Base(plain), count_base_pretokens(plain, NEW), [], 256, 2)
    assert extended.token_to_id("<|endoftext|>") == 258
    assert [extended.token_to_id(token) for token in CHAT_TOKENS] == [*range(259 + 256, 259 + 256 + len(CHAT_TOKENS))]
    assert extended.encode("a").ids == [extended.token_to_id(BOS_TOKEN), alphabet["a"]]
    assert decodes_exactly(extended)
    write_tokenizer_folder(extended, tmp_path, 256)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded(NEW[0])["input_ids"] == extended.encode(NEW[0]).ids
    chat = loaded.apply_chat_template([{"role": "user", "content": "Salam"}], tokenize=True, return_dict=False)
    assert chat[-1] == extended.token_to_id(END_OF_TURN_TOKEN)


@pytest.mark.parametrize("model", [models.Unigram([("a", -1.0)], 0, False), models.BPE({"a": 0}, [])])
def test_a_base_that_is_not_byte_level_is_refused(model: models.Model) -> None:
    with pytest.raises(StepError, match="byte-level BPE for the candidates extended and replaced"):
        Base(Tokenizer(model))


def learn_by_counting(words: Counter[tuple[str, ...]], count: int) -> list[tuple[str, str]]:
    """The definition: count all pairs, merge the most frequent one everywhere, begin again."""
    merges: list[tuple[str, str]] = []
    current = {word: list(word) for word in words}
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in current.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += words[word]
        best = min((pair for pair in pairs if pairs[pair] >= 2), key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None:
            break
        merges.append(best)
        for pieces in current.values():
            place = 0
            while place < len(pieces) - 1:
                if (pieces[place], pieces[place + 1]) == best:
                    pieces[place : place + 2] = ["".join(best)]
                place += 1
    return merges


@pytest.mark.parametrize("seed", range(20))
def test_merges_are_those_of_the_definition(seed: int) -> None:
    generator = random.Random(seed)
    words: Counter[tuple[str, ...]] = Counter()
    for _ in range(60):
        words[tuple(generator.choices("abc", k=generator.randint(1, 9)))] += generator.randint(1, 5)
    found = learn_merges(words, 40, 2, known=lambda _: False, allowed=lambda _: True)
    assert found == learn_by_counting(words, len(found))
    assert len(found) >= 20
