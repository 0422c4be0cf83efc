"""A base tokenizer that learns a language: `extended` by new tokens, or with tokens of other scripts `replaced`.

The base's own merges come first and stay as they are; new merges follow, learnt on words as the base splits them. So
that English and code, which the base knows best, keep the ids that it knows them by, a merge is passed over

- where the token that it makes is ASCII and stands inside one of the base's own: it may be part of a word that the base
  knows, as Dipl of Diplomats is; of the language's ASCII words this takes some gain away (3% of tokens a word);
- where it applies to a text that is protected, such as the source corpus: that keeps its very ids, whatever it holds.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import regex
from tokenizers import AddedToken, Tokenizer, models

from steps.contract.model_folder import check_byte_level_bpe
from steps.text.bbpe import begin_with_bos
from steps.text.byte_characters import bytes_of, spell
from steps.text.chat_template import CHAT_TOKENS
from steps.text.merges import Pair, learn_merges
from steps.text.pretokens import count_pretokens

LETTER = regex.compile(r"[\p{L}\p{M}]")
FOREIGN_LETTER = regex.compile(r"[^\P{L}\p{Latin}]")
SPACE_CHARACTER = spell(b" ")
# Merges are learnt from the most frequent pre-tokens, so that memory stays in bounds.
MOST_PRETOKENS = 300_000
# A letter is the corpus' own from this share of all its letters on; rarer ones are names and slips.
OWN_LETTER_SHARE = 1e-4


class Base:
    """The base tokenizer taken apart: model, vocabulary (ids by spelling), merges, added tokens (ids by name).

    Raises StepError where it is not byte-level BPE.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.parts: dict[str, Any] = json.loads(tokenizer.to_str())
        model = self.parts["model"]
        check_byte_level_bpe(self.parts)
        self.model = tokenizer.model
        self.vocabulary: dict[str, int] = dict(model["vocab"])
        self.merges: list[Pair] = [(first, second) for first, second in model["merges"]]
        self.added = {token["content"]: token["id"] for token in self.parts["added_tokens"]}
        self.size = max([*self.vocabulary.values(), *self.added.values()]) + 1

    @cached_property
    def _ascii_tokens(self) -> str:
        bare = (token.replace(SPACE_CHARACTER, "") for token in self.vocabulary)
        return "\n".join(sorted({token.lower() for token in bare if token.isascii()}))

    def may_spell(self, spelling: str) -> bool:
        """Whether a token, white space and case left out, is ASCII and stands inside one of the base's own."""
        bare = spelling.replace(SPACE_CHARACTER, "").lower()
        return bare.isascii() and bare in self._ascii_tokens

    def rebuilt(self, vocabulary: Mapping[str, int], merges: Iterable[Pair]) -> Tokenizer:
        """The base's tokenizer around another vocabulary, with the chat's tokens and BOS before each text.

        Special tokens stand in the vocabulary, too: beside added tokens that it lacks, the library would number anew.
        """
        whole = {**vocabulary, **self.added}
        # The library finds a place for each id below the number of tokens.
        ordered = dict(sorted(whole.items(), key=lambda entry: entry[1]))
        parts = {**self.parts, "truncation": None, "padding": None, "post_processor": None}
        parts["model"] = {**parts["model"], "vocab": ordered, "merges": [list(pair) for pair in merges]}
        tokenizer = Tokenizer.from_str(json.dumps(parts, ensure_ascii=False))
        missing = [token for token in CHAT_TOKENS if tokenizer.token_to_id(token) is None]
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in missing])
        begin_with_bos(tokenizer)
        return tokenizer


def extend(
    base: Base, counts: Mapping[str, int], protected: Iterable[str], new_tokens: int, min_frequency: int
) -> Tokenizer:
    """The base with at most `new_tokens` tokens behind its own, whose ids stay.

    counts: occurrences of the new language's pre-tokens; protected: pre-tokens whose ids stay the base's; both spelt in
    the characters of bytes. Where the text gives fewer tokens, there are fewer.
    """
    merges = new_merges(base, base.model, counts, protected, new_tokens, min_frequency)
    spellings = [spelling for pair in merges if (spelling := "".join(pair)) not in base.vocabulary]
    numbered = {spelling: base.size + place for place, spelling in enumerate(dict.fromkeys(spellings))}
    return base.rebuilt({**base.vocabulary, **numbered}, [*base.merges, *merges])


def replace(base: Base, counts: Mapping[str, int], protected: Iterable[str], min_frequency: int) -> Tokenizer:
    """The base with its tokens of other scripts replaced by new ones, which have their ids.

    Of the tokens that may go (see `replaceable`) as many go as new ones come, the last made first, since others may be
    made of the earlier ones.
    """
    protected = list(protected)
    free = replaceable(base, counts, protected)
    reduced = _without(base, set(free))
    merges = new_merges(base, reduced, counts, protected, len(free), min_frequency)
    spellings = dict.fromkeys(spelling for pair in merges if (spelling := "".join(pair)) not in base.vocabulary)
    gone = set(free[len(free) - len(spellings) :])
    kept = {spelling: index for spelling, index in base.vocabulary.items() if spelling not in gone}
    ids = sorted(base.vocabulary[spelling] for spelling in gone)
    remaining = _merges_of(kept, base.merges)
    return base.rebuilt({**kept, **dict(zip(spellings, ids, strict=True))}, [*remaining, *merges])


def new_merges(
    base: Base,
    model: models.Model,
    counts: Mapping[str, int],
    protected: Iterable[str],
    new_tokens: int,
    min_frequency: int,
) -> list[Pair]:
    """Merges that go on where the model's own end on the counted pre-tokens, and leave the protected ones alone."""
    kept_apart: set[Pair] = set()
    kept_whole: set[str] = set()
    for pretoken in protected:
        kept_apart.update(itertools.pairwise(token.value for token in model.tokenize(pretoken)))
        # A pre-token that is one token is taken as it is, whatever its merges (`ignore_merges`).
        kept_whole.add(pretoken)

    def allowed(pair: Pair) -> bool:
        spelling = "".join(pair)
        return pair not in kept_apart and spelling not in kept_whole and not base.may_spell(spelling)

    words = token_words(model, counts)
    return learn_merges(words, new_tokens, min_frequency, base.vocabulary.__contains__, allowed)


def token_words(model: models.Model, counts: Mapping[str, int]) -> Counter[tuple[str, ...]]:
    """Occurrences by the spellings of the tokens that a pre-token falls into; those of one token are left out, and
    those beyond the MOST_PRETOKENS most frequent."""
    words: Counter[tuple[str, ...]] = Counter()
    by_frequency = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for pretoken, count in by_frequency[:MOST_PRETOKENS]:
        pieces = tuple(token.value for token in model.tokenize(pretoken))
        if len(pieces) > 1:
            words[pieces] += count
    return words


def replaceable(base: Base, counts: Mapping[str, int], protected: Iterable[str]) -> list[str]:
    """The base's tokens, in the order of their ids, that hold a letter of a script other than Latin which the new
    language's text does not use, and that no protected text needs."""
    own = own_letters(counts)
    needed = {token.value for pretoken in protected for token in base.model.tokenize(pretoken)}
    made_of = {"".join(pair): pair for pair in reversed(base.merges)}
    waiting = list(needed)
    while waiting:
        for part in made_of.get(waiting.pop(), ()):
            if part not in needed:
                needed.add(part)
                waiting.append(part)
    by_id = sorted(base.vocabulary.items(), key=lambda entry: entry[1])
    return [token for token, _ in by_id if token not in needed and token not in base.added and _is_foreign(token, own)]


def own_letters(counts: Mapping[str, int]) -> set[str]:
    """The letters that make up at least OWN_LETTER_SHARE of all letters of the counted pre-tokens each."""
    letters: Counter[str] = Counter()
    for pretoken, count in counts.items():
        for letter in LETTER.findall(bytes_of(pretoken).decode("utf-8", errors="ignore")):
            letters[letter] += count
    least = OWN_LETTER_SHARE * letters.total()
    return {letter for letter, count in letters.items() if count >= least}


def _is_foreign(spelling: str, own: set[str]) -> bool:
    letters = FOREIGN_LETTER.findall(bytes_of(spelling).decode("utf-8", errors="ignore"))
    return bool(letters) and not own.issuperset(letters)


def _merges_of(vocabulary: Mapping[str, int], merges: Iterable[Pair]) -> list[Pair]:
    """The merges whose parts and result are in the vocabulary."""
    return [(a, b) for a, b in merges if a in vocabulary and b in vocabulary and a + b in vocabulary]


def _without(base: Base, gone: set[str]) -> models.Model:
    """The base's model without some tokens, to split pre-tokens with; their ids are left empty."""
    kept = {spelling: index for spelling, index in base.vocabulary.items() if spelling not in gone}
    return models.BPE(
        vocab=kept, merges=_merges_of(kept, base.merges), ignore_merges=bool(base.parts["model"].get("ignore_merges"))
    )


def count_base_pretokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Occurrences by pre-token as the base splits text, spelt in the characters of bytes."""
    parts = json.loads(tokenizer.to_str())["pre_tokenizer"] or {}
    steps = parts.get("pretokenizers", [parts])
    pattern = steps[0].get("pattern", {}).get("Regex") if len(steps) == 2 and tokenizer.normalizer is None else None
    if pattern and steps[1].get("use_regex") is False and not steps[1].get("add_prefix_space"):
        return Counter({spell(text.encode()): times for text, times in count_pretokens(texts, pattern).items()})
    # Another way of splitting is left to the library, which takes ten times as long.
    found: Counter[str] = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        found.update(piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    return found
