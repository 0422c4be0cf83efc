"""The training of byte-level BPE: which merges a text gives, in their order.

rustbpe trains where it is installed. It is BPE to the letter, several times faster than tokenizers' BpeTrainer, but
gives tokens alone: no merges, no counts. Both are worked out here from the tokens. Among pairs that occur equally often
rustbpe takes the one of lower ids, so that its tokens differ from BpeTrainer's in a few ties.

Texts are read as a stream; memory grows with the distinct pre-tokens. Measured on a corpus whose forms grow by Heaps'
law: 0.7 GB at the peak for 200 MB of text (0.44 million distinct words), 2.3 GB for 2 GB (2 million).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise

import regex
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from steps.contract import StepError, warn
from steps.text.byte_characters import byte_of_character, spell
from steps.text.pretokens import count_pretokens

# What a training reads, once or twice: a list or alike, or a function that begins the texts anew.
Texts = Iterable[str] | Callable[[], Iterable[str]]
Merges = list[tuple[str, str]]
# Both trainers count pairs in 32-bit integers, and rustbpe's wrap around in silence (huggingface/tokenizers#2058). No
# pair occurs more often than the text has bytes.
MOST_TRAINING_BYTES = 2**31 - 1
# Longer texts are handed on in pieces: rustbpe holds TEXTS_AT_ONCE of them, some 80 MB.
PIECE_CHARACTERS = 8_192
TEXTS_AT_ONCE = 8_192
# Characters at the beginning of the texts that are kept in memory, some 30 MB.
KEPT_CHARACTERS = 16_000_000
# More characters than this without an end of a pre-token teach no token, but each merge in them costs their whole
# length, and rustbpe's pattern overflows its stack in millions of spaces.
RUN_CHARACTERS = 256
# Places where a pre-token of Llama 3's pattern, or of that for apostrophes, ends whatever stands around them: behind
# a letter, before a space, and behind the last of some newlines.
_BOUNDARY = re.compile(r"(?<=[^\W\d_])(?=\W)|(?<=\S)(?= )|(?<=\n)(?=\S)")


def train_merges(texts: Texts, vocabulary_size: int, min_frequency: int, pattern: str) -> tuple[dict[str, int], Merges]:
    """(id by spelling, merges in their order) of at most `vocabulary_size` byte-level tokens, special ones not counted.

    The 256 bytes come first, in Llama 3's order, then the merges. A pair is merged if it occurs `min_frequency` times
    or more, counted as BPE counts: in the text as the merges before it left it. Raises StepError for more text than the
    trainers can count, or text that is not Unicode.
    """
    if iter_of(texts) is texts:
        raise TypeError("the texts can be read only once; give a function that begins them anew")
    try:
        import rustbpe
    except ImportError as error:
        warn("slow-tokenizer-training", f"tokenizers' BpeTrainer trains instead of rustbpe, which is missing ({error})")
        return _train_by_tokenizers(texts, vocabulary_size, min_frequency, pattern)
    trainer, read = rustbpe.Tokenizer(), Reading(texts)
    trainer.train_from_iterator(iter(read), vocabulary_size, TEXTS_AT_ONCE, pattern)
    tokens = [bytes(token) for token, _ in sorted(trainer.get_mergeable_ranks(), key=lambda pair: pair[1])]
    learnt = LearntTokens(tokens)
    kept = tokens[: count_frequent(learnt, read, min_frequency, pattern)]
    spelled = {token: spell(token) for token in kept}
    pairs = [learnt.pairs[token] for token in kept[256:]]
    merges = [(spelled[first], spelled[second]) for first, second in pairs]
    return vocabulary_of(spelled[token] for token in kept[256:]), merges


def _train_by_tokenizers(
    texts: Texts, vocabulary_size: int, min_frequency: int, pattern: str
) -> tuple[dict[str, int], Merges]:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level_splits(pattern)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(in_pieces(texts), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [(first, second) for first, second in model["merges"]]


def byte_level_splits(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Split by a pattern, then bytes. As a plain string Split would look for the pattern literally."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def iter_of(texts: Texts) -> Iterator[str]:
    """The texts from the first on."""
    return iter(texts() if callable(texts) else texts)


def in_pieces(texts: Texts, most_bytes: int = MOST_TRAINING_BYTES) -> Iterator[str]:
    """The texts, long ones in pieces. Raises StepError, see train_merges."""
    total = 0
    for text in iter_of(texts):
        try:
            total += len(text.encode())
        except UnicodeEncodeError as error:
            value = f"half of a surrogate pair at character {error.start:,} of a document"
            raise StepError("training text", value, remedy="Prepare the corpus again, or drop the document.") from error
        if total > most_bytes:
            value, limit = f"more than {most_bytes:,} bytes", "what a trainer counts in 32 bits"
            remedy = "Lower train_tokenizer.max_training_bytes."
            raise StepError("training text", value, limit=limit, remedy=remedy)
        if len(text) <= RUN_CHARACTERS:
            # Most texts of some corpora: a generator for each would cost as much as reading it.
            if text:
                yield text
        else:
            yield from pieces_of(text)


def pieces_of(text: str) -> Iterator[str]:
    """A text in pieces of about PIECE_CHARACTERS, cut where a pre-token ends; only a run of more than RUN_CHARACTERS
    in which none surely does is cut inside."""
    start = place = 0
    while len(text) - place > RUN_CHARACTERS:
        end = place + RUN_CHARACTERS
        boundary = _last_boundary(text, place, end)
        place = boundary or end
        if boundary is None or place - start >= PIECE_CHARACTERS:
            yield text[start:place]
            start = place
    if start < len(text):
        yield text[start:]


def _last_boundary(text: str, start: int, end: int) -> int | None:
    """The last place behind `start` and before `end` where a pre-token ends."""
    space = text.rfind(" ", start + 1, end)
    if space > 0 and not text[space - 1].isspace():
        return space
    places = [found.start() for found in _BOUNDARY.finditer(text, start + 1, end)]
    return places[-1] if places else None


def vocabulary_of(merged: Iterable[str]) -> dict[str, int]:
    """Id by spelling: the 256 bytes in the order of their characters, then the spellings of what was merged."""
    return {spelling: number for number, spelling in enumerate([*byte_of_character(), *merged])}


class LearntTokens:
    """Tokens that BPE learnt, in their order, and what each was merged of.

    In such tokens two neighbours whose bytes are a token are always its pair: no merge inside a token depends on what
    stands around it, so it is made in one way.
    """

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self.ranks = {token: rank for rank, token in enumerate(tokens)}
        assert len(self.ranks) == len(tokens)
        assert all(len(token) == 1 for token in tokens[:256])
        self.pairs: dict[bytes, tuple[bytes, bytes]] = {}
        for token in tokens[256:]:
            self.pairs[token] = self._pair_of(token)

    def _pair_of(self, token: bytes) -> tuple[bytes, bytes]:
        """The two tokens, of lower rank than its own, that the merges before it make of a token's bytes."""
        rank, known = self.ranks[token], self.ranks.get
        splits = [
            (token[:place], token[place:])
            for place in range(1, len(token))
            if known(token[place:], rank) < rank and known(token[:place], rank) < rank
        ]
        if len(splits) == 1:
            return splits[0]
        # Of several one is the pair; the longest first part is it most often.
        for first, second in reversed(splits):
            if self._stay_apart(first, second, rank):
                return first, second
        raise AssertionError(f"{token!r} is made of none of {splits}")

    def _stay_apart(self, first: bytes, second: bytes, rank: int) -> bool:
        """Whether no merge below a rank joins bytes of two neighbouring tokens.

        The merges that made the two are undone, the latest first; what then stands at the border must not be merged
        before the one undone. Of equal merges the left one comes first.
        """
        ranks, pairs = self.ranks, self.pairs
        while ranks.get(first + second, rank) >= rank:
            of_first, of_second = ranks[first], ranks[second]
            if max(of_first, of_second) < 256:
                return True
            if of_first > of_second:
                rank, first = of_first, pairs[first][1]
            else:
                rank, second = of_second + 1, pairs[second][0]
        return False

    def segment(self, word: bytes, below: int) -> list[bytes]:
        """The tokens of a pre-token by the merges whose rank lies below a limit, lowest rank first, leftmost first."""
        ranks = self.ranks
        parts = [word[place : place + 1] for place in range(len(word))]
        joined = [ranks.get(first + second, below) for first, second in pairwise(parts)]
        while joined and (lowest := min(joined)) < below:
            place = joined.index(lowest)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
            del joined[place]
            if place:
                joined[place - 1] = ranks.get(parts[place - 1] + parts[place], below)
            if place < len(joined):
                joined[place] = ranks.get(parts[place] + parts[place + 1], below)
        return parts

    def occurrences(self, token: bytes, word: bytes) -> int:
        """Times that a token's pair stands side by side in a pre-token when its merge comes."""
        if token not in word:
            return 0
        return sum(pair == self.pairs[token] for pair in pairwise(self.segment(word, self.ranks[token])))


class Reading:
    """The pieces of the texts. It keeps the first of them, so that little is read twice."""

    def __init__(self, texts: Texts, kept_characters: int = KEPT_CHARACTERS) -> None:
        self._texts = texts
        self._kept_characters = kept_characters
        self.kept: list[str] = []
        self.kept_all = True

    def __iter__(self) -> Iterator[str]:
        characters = 0
        self.kept, self.kept_all = [], True
        for piece in in_pieces(self._texts):
            characters += len(piece)
            if characters <= self._kept_characters:
                self.kept.append(piece)
            else:
                self.kept_all = False
            yield piece

    def again(self) -> Iterable[str]:
        """All pieces once more."""
        return self.kept if self.kept_all else in_pieces(self._texts)


def count_frequent(learnt: LearntTokens, read: Reading, min_frequency: int, pattern: str) -> int:
    """How many of the tokens, bytes included, remain where a pair must occur `min_frequency` times to be merged.

    The counts of the merges never rise, since what a merge makes is no more frequent than what it merged. So if the
    last merge is frequent enough then all are; that is mostly so and seen in few texts.
    """
    tokens = learnt.tokens
    if len(tokens) == 256 or min_frequency <= 1 or _is_frequent(learnt, tokens[-1], read.kept, min_frequency, pattern):
        return len(tokens)
    if not read.kept_all and _is_frequent(learnt, tokens[-1], read.again(), min_frequency, pattern):
        return len(tokens)
    words = _Words(count_pretokens(read.again(), pattern))
    first, beyond = 256, len(tokens) - 1
    while first < beyond:
        middle = (first + beyond) // 2
        if words.have(learnt, tokens[middle], min_frequency):
            first = middle + 1
        else:
            beyond = middle
    return first


def _is_frequent(learnt: LearntTokens, token: bytes, pieces: Iterable[str], times: int, pattern: str) -> bool:
    """Whether the pair of a token occurs that often; reads no further than needed."""
    find_all, count, known = regex.compile(pattern).findall, 0, dict[str, int]()
    for piece in pieces:
        if token not in piece.encode():
            continue
        for pretoken in find_all(piece):
            if pretoken not in known:
                known[pretoken] = learnt.occurrences(token, pretoken.encode())
            count += known[pretoken]
        if count >= times:
            return True
    return False


class _Words:
    """Distinct pre-tokens, in one string of bytes to look for a token in."""

    # No UTF-8 has this byte.
    SEPARATOR = b"\xff"

    def __init__(self, counted: Counter[str]) -> None:
        self._words = [word.encode() for word in counted]
        self._counts = list(counted.values())
        self._starts = [0, *accumulate(len(word) + 1 for word in self._words)]
        self._text = self.SEPARATOR.join(self._words)

    def have(self, learnt: LearntTokens, token: bytes, times: int) -> bool:
        """Whether a token's pair occurs that often."""
        count, place = 0, self._text.find(token)
        while place >= 0 and count < times:
            index = bisect_right(self._starts, place) - 1
            count += self._counts[index] * learnt.occurrences(token, self._words[index])
            place = self._text.find(token, self._starts[index + 1])
        return count >= times
