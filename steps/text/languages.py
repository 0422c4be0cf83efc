"""Which documents are in another script or language than the rest, or lack letters that the rest has.

Nothing is known of any language: the documents of a sample are held against each other, by their letters and pairs of
neighbouring letters. The distance of two texts is the Jensen-Shannon divergence of their letter pairs, in bits (0 to 1;
Lin 1991, Divergence measures based on the Shannon entropy).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

# A finding needs only so many documents: their share is then known to about two hundredths.
SAMPLE_DOCUMENTS = 1_000
SAMPLE_CHARACTERS = 800
# Fewer letters do not show a language.
MIN_LETTERS = 30
MIN_DOCUMENTS = 20
MIN_MINORITY = 3
# Two halves of texts in one language, parted as far as they let themselves be: 0.02 to 0.07 in seven languages and five
# genres. Azerbaijani and Turkish, as near as languages come: 0.16; Azerbaijani and English: 0.4.
OTHER_LANGUAGE_DISTANCE = 0.1
# The distance without diacritics over that with them: 0.01 to 0.17 where diacritics are all that is missing, 0.30 and
# more where the language is another.
ASCIIFIED_RATIO = 0.23
PAIRS = 400
# More letters than an alphabet or syllabary has, as in Chinese: pairs of them tell of subjects, not of languages.
MAX_LETTERS = 400
ROUNDS = 3
# A letter's absence from a document says something where as many are expected in it.
EXPECTED_LETTERS = 8
_WITHOUT_MARK = {"ə": "e", "ı": "i", "ø": "o", "ł": "l", "đ": "d", "ß": "s", "æ": "e", "œ": "e", "þ": "t", "ð": "d"}


@dataclass(frozen=True)
class LanguageFinding:
    """`documents` of `examined` differ from the rest; `detail` says in what, or quotes one of them."""

    documents: int
    examined: int
    detail: str


class _Letters(dict[int, str]):
    """Character to lower-case letter, for str.translate; all else becomes a space."""

    def __init__(self, *, without_marks: bool) -> None:
        self._without_marks = without_marks

    def __missing__(self, code: int) -> str:
        character = chr(code)
        letter = " "
        if unicodedata.category(character)[0] in "LM":
            letter = character.casefold()[0]
            if self._without_marks:
                base = unicodedata.normalize("NFD", letter)[0]
                letter = base if base.isascii() else _WITHOUT_MARK.get(letter, letter)
        self[code] = letter
        return letter


_WITH_MARKS = _Letters(without_marks=False)
_WITHOUT_MARKS = _Letters(without_marks=True)


class _Scripts(dict[str, str]):
    def __missing__(self, character: str) -> str:
        script = unicodedata.name(character, " ").split()[0] if character.isalpha() else ""
        self[character] = script
        return script


_SCRIPTS = _Scripts()


def main_script(text: str) -> str:
    """The script, such as LATIN, of most of the text's letters; empty where it has hardly any."""
    counts: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if script := _SCRIPTS[character]:
            counts[script] += count
    return max(sorted(counts), key=lambda name: counts[name]) if counts.total() >= MIN_LETTERS // 2 else ""


def find_other_scripts(texts: Sequence[str]) -> tuple[LanguageFinding, list[str]]:
    """Documents mostly in another script than most documents are; and the texts of the main script."""
    scripts = [main_script(text) for text in texts]
    counts = Counter(script for script in scripts if script)
    if not counts:
        return LanguageFinding(0, 0, ""), list(texts)
    main = max(sorted(counts), key=lambda name: counts[name])
    others = sorted((script for script in counts if script != main), key=lambda name: (-counts[name], name))
    detail = f"{', '.join(others[:3])} instead of {main}"
    same = [text for text, script in zip(texts, scripts, strict=True) if script in ("", main)]
    return LanguageFinding(counts.total() - counts[main], counts.total(), detail), same


def find_other_languages(texts: Sequence[str]) -> tuple[LanguageFinding, list[str]]:
    """Documents in another language than most documents are, of texts in one script; and the texts without them.

    `examined` is 0 where the texts are too few or too short, or their script has too many letters.
    """
    kept = [text for text in texts if len(_words(text, _WITH_MARKS)) >= MIN_LETTERS]
    if len(kept) < MIN_DOCUMENTS or len(set().union(*kept)) > MAX_LETTERS:
        return LanguageFinding(0, 0, ""), list(texts)
    examined, rest, others = len(kept), kept, list[str]()
    # Each round parts one more language from the rest.
    for _ in range(ROUNDS):
        minority = _part(_pair_counts(rest, _WITH_MARKS))
        if minority is None or len(rest) < MIN_DOCUMENTS:
            break
        apart = [text for text, is_apart in zip(rest, minority, strict=True) if is_apart]
        same = [text for text, is_apart in zip(rest, minority, strict=True) if not is_apart]
        distance = profile_distance(apart, same)
        if len(apart) < MIN_MINORITY or distance < OTHER_LANGUAGE_DISTANCE:
            break
        if profile_distance(apart, same, with_marks=False) >= ASCIIFIED_RATIO * distance:
            others += apart
        rest = same
    taken = set(others)
    example = " ".join(others[0].split())[:60] if others else ""
    return LanguageFinding(len(others), examined, example), [text for text in texts if text not in taken]


def profile_distance(first: Sequence[str], second: Sequence[str], *, with_marks: bool = True) -> float:
    """Jensen-Shannon divergence, in bits, of the letter pairs of two sets of texts; `with_marks`: with diacritics."""
    counts = _pair_counts([*first, *second], _WITH_MARKS if with_marks else _WITHOUT_MARKS)
    one, other = counts[: len(first)].sum(axis=0), counts[len(first) :].sum(axis=0)
    if not one.sum() or not other.sum():
        return 1.0
    one, other = one / one.sum(), other / other.sum()
    middle = (one + other) / 2
    bits = [(p[p > 0] * numpy.log2(p[p > 0] / middle[p > 0])).sum() for p in (one, other)]
    return float(sum(bits) / 2)


def find_missing_letters(texts: Sequence[str]) -> LanguageFinding:
    """Documents with none of a letter beyond ASCII that the others have, where about 8 of it are expected: text typed
    without its diacritics. `detail` is the letter that most documents lack."""
    counts = [Counter(text.translate(_WITH_MARKS).replace(" ", "")) for text in texts]
    totals = [count.total() for count in counts]
    present: Counter[str] = Counter()
    letters_with: Counter[str] = Counter()
    for count, total in zip(counts, totals, strict=True):
        for letter in count:
            if not letter.isascii():
                present[letter] += count[letter]
                letters_with[letter] += total
    worst = LanguageFinding(0, 0, "")
    for letter in sorted(present):
        if not unicodedata.name(letter, "").startswith("LATIN"):
            continue
        needed = EXPECTED_LETTERS * letters_with[letter] / present[letter]
        examined = [count for count, total in zip(counts, totals, strict=True) if total >= needed]
        lacking = sum(letter not in count for count in examined)
        # Of a letter that few documents have, it is those few that are odd.
        if len(examined) >= MIN_DOCUMENTS and MIN_MINORITY <= lacking < len(examined) / 2 and lacking > worst.documents:
            worst = LanguageFinding(lacking, len(examined), letter)
    return worst


def _words(text: str, letters: _Letters) -> str:
    return " ".join(text.translate(letters).split())


def _pair_counts(texts: Sequence[str], letters: _Letters) -> numpy.ndarray:
    """Counts (texts, pairs) of the letter pairs that stand in most texts; a space stands for a word's edge."""
    counts = []
    for text in texts:
        words = f" {_words(text, letters)} "
        counts.append(Counter(map(str.__add__, words, words[1:])))
    in_texts: Counter[str] = Counter()
    for count in counts:
        in_texts.update(count.keys())
    pairs = sorted(in_texts, key=lambda pair: (-in_texts[pair], pair))[:PAIRS]
    return numpy.array([[count[pair] for pair in pairs] for count in counts], dtype=numpy.float64)


def _part(counts: numpy.ndarray) -> numpy.ndarray | None:
    """(texts,) bool: the smaller side of the likeliest parting in two, each side with letter pairs of its own.

    Expectation maximisation with hard assignment, from the ends of the two widest directions of the square roots of the
    shares (Hellinger distance). None where no start gives two sides.
    """
    roots = numpy.sqrt(counts / numpy.maximum(counts.sum(axis=1, keepdims=True), 1))
    centred = roots - roots.mean(axis=0)
    directions = numpy.linalg.eigh(centred.T @ centred)[1]
    best, best_likelihood = None, -numpy.inf
    for direction in (-1, -2):
        along = centred @ directions[:, direction]
        for signed in (along, -along):
            for quantile in (0.7, 0.9):
                side = _settle(counts, signed > numpy.quantile(signed, quantile))
                if side is None:
                    continue
                logs = numpy.stack([_log_shares(counts[~side]), _log_shares(counts[side])])
                likelihood = (counts * logs[side.astype(int)]).sum()
                if likelihood > best_likelihood:
                    best, best_likelihood = side, likelihood
    return best if best is None or best.mean() <= 0.5 else ~best


def _settle(counts: numpy.ndarray, side: numpy.ndarray, rounds: int = 8) -> numpy.ndarray | None:
    for _ in range(rounds):
        if side.all() or not side.any():
            return None
        prior = numpy.log(side.mean() / (1 - side.mean()))
        settled = counts @ (_log_shares(counts[side]) - _log_shares(counts[~side])) + prior > 0
        if (settled == side).all():
            break
        side = settled
    return None if side.all() or not side.any() else side


def _log_shares(counts: numpy.ndarray) -> numpy.ndarray:
    smoothed = counts.sum(axis=0) + 0.5
    return numpy.log(smoothed / smoothed.sum())
