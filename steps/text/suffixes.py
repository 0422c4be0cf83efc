"""Pre-tokenisation by suffixes: a word of an agglutinative language falls into its stem and the suffixes behind it.

kitablarımızdan -> kitab, lar, ımız, dan
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import regex

from steps.contract import ConfigError
from steps.text.bbpe import APOSTROPHE_PATTERN

# A shorter stem is seldom one: "ada" (island) is not "ad" with a dative.
SHORTEST_STEM_LETTERS = 3
# Both bounds keep the time of a match within limits, whatever the text. A word beyond them stays whole.
LONGEST_STEM_LETTERS = 24
MOST_SUFFIXES = 8


def _words(*lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines for word in line.split())


# Left out are endings of one letter (dative a, accusative ı, possessive m) and those that many stems end in (aorist ər,
# participle an, passive il): as tokens of their own they cost more than they save.
AZERBAIJANI_SUFFIXES = _words(
    # Plural; possessive of each person, behind a consonant and behind a vowel.
    "lar lər",
    "ım im um üm ın in un ün sı si su sü ımız imiz umuz ümüz ınız iniz unuz ünüz",
    "mız miz muz müz nız niz nuz nüz",
    # Genitive, dative, accusative, locative, ablative; those with n stand behind a possessive of the third person.
    "nın nin nun nün ya yə na nə nı ni nu nü yı yi yu yü da də nda ndə dan dən ndan ndən la lə",
    # What makes nouns and adjectives of nouns.
    "lıq lik luq lük lığ liy luğ lüy lı li lu lü sız siz suz süz çı çi çu çü ca cə dakı dəki ndakı ndəki",
    # Verbs: infinitive, negation, tenses, copula, persons.
    "maq mək mağ məy ma mə ır ir ur ür yır yir yur yür mır mir mur mür dı di du dü mış miş muş müş",
    "acaq əcək yacaq yəcək acağ əcəy yar yər dır dir dur dür",
    "am əm san sən ıq ik uq ük sınız siniz sunuz sünüz sa sə malı məli",
    # Participles and converbs.
    "yan yən dıq dik duq dük dığ diy duğ düy ıb ib ub üb yıb yib yub yüb araq ərək yaraq yərək",
    "ınca incə unca üncə",
)

TURKISH_SUFFIXES = _words(
    "lar ler",
    "ım im um üm ın in un ün sı si su sü ımız imiz umuz ümüz ınız iniz unuz ünüz",
    "mız miz muz müz nız niz nuz nüz",
    "nın nin nun nün ya ye na ne nı ni nu nü yı yi yu yü da de ta te nda nde dan den tan ten ndan nden la le yla yle",
    "lık lik luk lük lığ liğ luğ lüğ lı li lu lü sız siz suz süz cı ci cu cü çı çi çu çü ca ce ça çe",
    "ki daki deki taki teki ndaki ndeki",
    "mak mek ma me ıyor iyor uyor üyor yor dı di du dü tı ti tu tü mış miş muş müş",
    "acak ecek yacak yecek acağ eceğ yacağ yeceğ ır ir ur ür dır dir dur dür tır tir tur tür",
    "ız iz uz üz sın sin sun sün sa se malı meli",
    "yan yen dık dik duk dük tık tik tuk tük dığ diğ duğ düğ tığ tiğ tuğ tüğ ıp ip up üp yıp yip yup yüp",
    "arak erek yarak yerek ınca ince unca ünce",
)


def suffix_pattern(suffixes: Sequence[str]) -> str:
    """The pattern for apostrophes, with a word that ends in suffixes cut into stem and suffixes.

    The stem is the shortest of at least 3 letters behind which suffixes fill the word to its end; of several suffixes
    the longest comes first. Upper and lower case are one; so are i, I and İ, as ı and I are. Written without the
    engines' own ways to ignore case, which differ in just these letters: `regex`, which counts pre-tokens, and
    Oniguruma, which tokenizers split with, must find the same pieces. Raises ConfigError.
    """
    if not suffixes:
        raise ConfigError("train_tokenizer.suffixes", "[]", limit="at least one suffix", remedy="Name the suffixes.")
    for suffix in suffixes:
        if not suffix.isalpha():
            raise ConfigError(
                "train_tokenizer.suffixes", repr(suffix), limit="letters alone", remedy="Write it without hyphens."
            )
    one = _alternatives([[_either_case(letter) for letter in suffix] for suffix in suffixes])
    word_ends = r"(?!\p{L})"
    # A suffix begins behind a letter, which is where a stem or a suffix was cut off: other matches take whole words.
    suffix = rf"(?<=\p{{L}}){one}(?={one}{{0,{MOST_SUFFIXES - 1}}}{word_ends})"
    stem = (
        rf"[^\r\n\p{{L}}\p{{N}}]?\p{{L}}{{{SHORTEST_STEM_LETTERS},{LONGEST_STEM_LETTERS}}}?"
        rf"(?={one}{{1,{MOST_SUFFIXES}}}{word_ends})"
    )
    return f"{suffix}|{stem}|{APOSTROPHE_PATTERN}"


def split_counts(counts: Mapping[str, int], pattern: str) -> Counter[str]:
    """Occurrences by pre-token of a pattern of `suffix_pattern`, from those by pre-token of APOSTROPHE_PATTERN: what
    counting the texts again would give, which takes six times as long as counting them by the simpler pattern.
    """
    find_all = regex.compile(pattern).findall
    split: Counter[str] = Counter()
    for pretoken, count in counts.items():
        for piece in find_all(pretoken):
            split[piece] += count
    return split


def _either_case(letter: str) -> str:
    """A set of the letter's cases, as a pattern."""
    cases = {"i": "iIİ", "İ": "iİ", "ı": "ıI", "I": "ıiI"}.get(letter)
    if cases is None:
        cases = "".join(sorted({case for case in (letter, letter.lower(), letter.upper()) if len(case) == 1}))
    return cases if len(cases) == 1 else f"[{cases}]"


def _alternatives(words: Sequence[Sequence[str]]) -> str:
    """A group that matches any of the words, the longest first. Common beginnings are written once: tried one by one,
    two hundred suffixes at each letter would make splitting ten times as slow."""
    by_first: dict[str, list[Sequence[str]]] = {}
    ends_here = False
    for word in words:
        if word:
            by_first.setdefault(word[0], []).append(word[1:])
        else:
            ends_here = True
    if not by_first:
        return ""
    branches = [first + _alternatives(rest) for first, rest in sorted(by_first.items())]
    group = f"(?:{'|'.join(branches)})"
    return group + "?" if ends_here else group
