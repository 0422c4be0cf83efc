"""Normalising: NFC without lower-casing, look-alikes only inside Latin words, cuts at good places."""

import itertools
import random
import unicodedata

from steps.text.normalisation import cut, normalise, repair_homoglyphs, segments


def test_turkic_letters_survive() -> None:
    text = "İstanbul Iğdır ılıq iş; ə ğ ş ç ö ü Ə Ğ Ş Ç Ö Ü"
    assert normalise(text) == text


def test_nfc_line_ends_and_control_characters() -> None:
    assert normalise("  g\u0306o\u0308z \r\nsu\x00\ufeff\r\n\r\n\r\n\r\nson ") == "ğöz\nsu\n\nson"


def test_marks_join_their_letters_whatever_stood_between() -> None:
    assert normalise("e\u200b\u0301") == normalise("e\x00\u0301") == "é"
    # Cyrillic о and Latin o look the same; only the Latin one has a composed form with the acute.
    assert repair_homoglyphs(normalise("g\u043e\u0301l")) == ("gól", 1)


def test_zero_width_spaces_stay_between_words_of_scripts_without_spaces() -> None:
    khmer, thai = "ភាសា\u200bខ្មែរ", "ภาษา\u200bไทย"
    assert normalise(khmer) == khmer
    assert normalise(thai) == thai
    assert normalise("kəl\u200bmə, \u200bsöz\u200b") == "kəlmə, söz"


def test_cyrillic_schwa_inside_latin_words() -> None:
    repaired, count = repair_homoglyphs("dәvәt Әli, mәktub")
    assert (repaired, count) == ("dəvət Əli, məktub", 4)


def test_cyrillic_words_stay() -> None:
    text = "Привет мир, әлифба и MixЖed"
    assert repair_homoglyphs(text) == (text, 0)


def test_cut_keeps_every_word_and_the_limit() -> None:
    text = "\n\n".join(f"Abzas {number}: " + "söz " * 40 for number in range(20))
    pieces = cut(text, 500)
    assert all(len(piece.encode()) <= 500 for piece in pieces)
    assert " ".join(pieces).split() == text.split()


def test_cut_prefers_a_blank_line_to_a_line_end_to_a_space() -> None:
    assert cut("bir iki üç dörd\n\nbeş\naltı yeddi", 28) == ["bir iki üç dörd", "beş\naltı yeddi"]
    assert cut("bir iki üç dörd\nbeş altı", 24) == ["bir iki üç dörd", "beş altı"]
    assert cut("bir iki üç dörd beş altı", 24) == ["bir iki üç dörd beş", "altı"]
    # A separator in the first half is no good place; spaces between pieces belong to neither.
    assert cut("a\n\nbir iki üç dörd     beş", 22) == ["a\n\nbir iki üç dörd", "beş"]
    assert cut(f"bir{' ' * 50}iki", 8) == ["bir", "iki"]
    assert cut("", 8) == cut(" " * 20, 8) == []


def test_cut_of_a_long_text_into_many_pieces() -> None:
    """Each piece costs its own length: were the rest looked at for each, this would be 60 GB."""
    text = "şəhər küçə ağac " * 100_000
    pieces = cut(text, 40)
    assert len(pieces) > 50_000
    assert all(20 < len(piece.encode()) <= 40 for piece in pieces[:-1])
    assert " ".join(pieces).split() == text.split()


def test_cut_without_spaces_never_splits_a_character() -> None:
    assert cut("ə" * 30, 11) == ["ə" * 5] * 6


def test_segments_lose_nothing_and_end_where_a_text_has_its_ends() -> None:
    assert list(segments("bir", 3)) == ["bir"]
    assert list(segments("bir iki\n\nüç dörd beş", 12)) == ["bir iki", "\n\nüç dörd", " beş"]
    assert list(segments("bir iki üç\ndörd", 12)) == ["bir iki üç", "\ndörd"]
    assert list(segments("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]
    generator = random.Random(0)
    text = "".join(generator.choices("abcə \n", k=5_000))
    pieces = list(segments(text, 100))
    assert "".join(pieces) == text
    assert all(50 <= len(piece) <= 100 for piece in pieces[:-1])


def test_what_is_not_looked_up_in_nfc_stays_as_it_is() -> None:
    """Every character that normalise() takes to be NFC, after every other kind of letter."""
    codes = itertools.chain(
        range(0xA0, 0x300), range(0x400, 0x483), range(0x48A, 0x530), range(0x2010, 0x2028), range(0x2030, 0x205F),
        range(0x20A0, 0x20C0),
    )  # fmt: skip
    for code in codes:
        for before in ("a", "ı", "е", "İ", "“"):
            assert unicodedata.normalize("NFC", before + chr(code)) == before + chr(code)
    assert normalise("e\u0301 \u0438\u0306 \u1100\u1161 \u212b") == "é й 가 Å"
