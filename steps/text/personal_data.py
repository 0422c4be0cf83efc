"""Personal data in text: e-mail addresses, telephone, payment card, bank account and identity document numbers.

Precise rather than complete. A number counts only by its checksum (cards: Luhn; IBAN: mod 97), by a form that nothing
else has (+994 50 123 45 67; AZE12345678), or by a word beside it that says what it is (telefon, FİN, pasport): the
numbers of articles, decrees, dates, sums and customs codes are left alone. Names and addresses are not looked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

PLACEHOLDERS = {"email": "[EMAIL]", "iban": "[IBAN]", "card": "[CARD]", "phone": "[PHONE]", "id": "[ID]"}

# No line without one of these holds any of the kinds. A pattern that begins with a set is found many times faster.
_CANDIDATE = re.compile(
    r"[@\dA-ZfФ](?:(?<=@)|(?<=\d)(?:[\s().\-/]{0,3}\d){5}|(?<=[A-Z])[A-Z][\s-]?\d{2}|(?<=F)[İI]N|(?<=[Ff])in\b"
    r"|(?<=Ф)ИН)"
)
# No IBAN, card or telephone number without its digits in this form, no number by its word without these.
_LETTERS_AND_DIGITS = re.compile(r"\d(?<=[A-Za-z]{2}\d)\d")
_CARD_DIGITS = re.compile(r"\d(?:[ -]?\d){13}")
_PHONE_DIGITS = re.compile(r"\d(?:[() \u00a0.-]*\d){6}")
_SIX_DIGITS = re.compile(r"\d{6}")
_FIN_WORDS = ("FİN", "FIN", "Fin", "fin", "ФИН")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}(?![\w@])")
_IBAN = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Z]{2}\d{2}(?:[A-Z0-9]{11,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,4})?)"
    # In small letters only the bank's code and digits after it: hexadecimal digests look like the rest.
    r"|[a-z]{2}\d{2}[a-z]{0,4}\d{10,26})(?![A-Za-z0-9])"
)
_CARD = re.compile(r"(?<![\w+.,/-])(?:\d{4}([ -]?)\d{4}\1\d{4}\1\d{4}|3[47]\d{2}([ -]?)\d{6}\2\d{5})(?![\w/]|[.,-]\d)")
_SEPARATOR = r"[ \u00a0.-]"
_PHONE = re.compile(
    # International: a plus, the country, at least two separated groups or one run.
    rf"(?<![\w+])(?:\(\+[1-9]\d{{0,4}}\){_SEPARATOR}?|(?:\+|00(?=994|7|90)|(?<![:.,])00 (?=994))[1-9]\d{{0,2}}"
    rf"(?:{_SEPARATOR}?\(?\d{{2,4}}\)?{_SEPARATOR}?|{_SEPARATOR}))"
    rf"\d{{2,4}}(?:{_SEPARATOR}?\d{{2,4}}){{1,3}}(?![\w/]|[.,-]\d)"
    # Azerbaijani: the area or operator code, then 3-2-2, 3-4 or all seven.
    rf"|(?<![\w+./-])(?:\(0[1-9]\d\)|0(?:1[02]|2\d|36|5[015]|60|7[07]|99)(?={_SEPARATOR}))"
    rf"{_SEPARATOR}?\d{{3}}{_SEPARATOR}?\d{{2}}{_SEPARATOR}?\d{{2}}(?![\w/]|[.,-]\d)"
    # Russian, as it is dialled inside the country.
    rf"|(?<![\w+./-])8{_SEPARATOR}?\(\d{{3,4}}\){_SEPARATOR}?\d{{2,3}}{_SEPARATOR}\d{{2}}{_SEPARATOR}\d{{2}}(?![\w/]|[.,-]\d)"
)
# Numbers that have the digits of a telephone number and are a sum, a count, a span of years, a date or a coordinate.
_THOUSANDS = r"[1-9]\d{0,2}(?:[ \u00a0.]\d{3})+"
_YEAR = r"(?:1[5-9]|20)\d{2}"
_NO_PHONE_BY_WORD = re.compile(
    rf"(?:{_THOUSANDS}|{_YEAR})(?: ?[-–] ?(?:{_THOUSANDS}|{_YEAR}))*|\d{{1,2}}\.\d{{1,2}}\.{_YEAR}"
)
_NO_PHONE = re.compile(r"\+[1-9]\d{0,2}(?:[ \u00a0.]\d{3})*[ \u00a0.]000|\+\d{1,3}\.\d+")
_CALLED = r"(?:\b(?:tel|mob|faks?|fax|phone|telefon\w*|mobil\w*|whatsapp\w*|тел|телефон\w*|моб)\b)"
_PHONE_BY_WORD = re.compile(
    rf"(?P<word>{_CALLED}[^\w\n+(]{{0,4}}(?:(?:nömrəsi|nömrə|nömrəm|numarası|number|no|номер)\b[^\w\n+(]{{0,4}})?)"
    rf"(?P<number>\(?\d[\d() \u00a0.-]{{5,17}}\d)(?![\w/]|[.,-]\d)",
    re.IGNORECASE,
)
# Further numbers of the place behind one that is known by its word: 498-12-34, 498-12-35.
_LOCAL_PHONE = re.compile(r"\d{3}-\d{2}-\d{2}")
_MORE_PHONES = re.compile(r"(?<=\[PHONE\])(?:(?:[,;/] ?| və | and | и )\d{3}-\d{2}-\d{2}(?![\w/]|[.,-]\d))+")
_ID = re.compile(r"(?<![A-Za-z0-9])(?:AZE ?(?:№|No\.?)? ?\d{8}|AA ?(?:№|No\.?)? ?\d{7})(?![\w/]|[.,-]\d)")
_ID_WORD = r"(?:pasport\w*|passport\w*|şəxsiyyət\w* vəsiqə\w*|vəsiqə\w*|kimlik|identity card|id card|паспорт\w*)"
_ID_BY_WORD = re.compile(
    rf"(?P<word>\b{_ID_WORD}\b[^\d\n]{{0,30}}?)"
    # Capitals that are no end of a word and no currency.
    rf"(?P<number>(?<!\w)(?!AZN|USD|EUR|GBP|RUB|TRY)(?-i:[A-Z]{{1,3}}) ?(?:№ ?)?\d{{6,9}})(?![\w/])",
    re.IGNORECASE,
)
# The personal identification number (FİN): seven digits and capitals, both of them in it; or small letters, but no
# year with an ending.
_FIN = re.compile(
    r"(?P<word>\b(?:F[İI]N|[Ff]in|ФИН)\b(?:[ -]?(?:kod\w*|nömrəsi|code|код))?[^\w\n]{1,4})"
    r"(?P<number>(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{7}"
    r"|(?=(?:[a-z]*\d){2})(?=\d*[a-z])(?!\d{4}[a-z]{3})[a-z0-9]{7})(?![\w])"
)
DIGITS_OF_A_PHONE = range(7, 16)


def mask_personal_data(text: str) -> tuple[str, Counter[str]]:
    """The text with each piece of personal data replaced by its placeholder, and how many there were of each kind
    (the keys of PLACEHOLDERS). A text without any comes back as the same object."""
    found: Counter[str] = Counter()
    if not _CANDIDATE.search(text):
        return text, found
    # No kind goes beyond a line's end.
    lines = [_mask_line(line, found) if _CANDIDATE.search(line) else line for line in text.split("\n")]
    return ("\n".join(lines) if found else text), found


def _mask_line(masked: str, found: Counter[str]) -> str:
    """The line masked; what was found is added to `found`."""

    def masking(kind: str, holds: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            groups = match.groupdict()
            number = groups.get("number") or match.group()
            if not holds(number):
                return match.group()
            found[kind] += 1
            return groups.get("word", "") + PLACEHOLDERS[kind]

        return replace

    # In this order: an IBAN holds what looks like a card, a card what looks like a telephone number.
    if "@" in masked:
        masked = _EMAIL.sub(masking("email", lambda number: True), masked)
    if _LETTERS_AND_DIGITS.search(masked):
        masked = _IBAN.sub(masking("iban", is_iban), masked)
    if _CARD_DIGITS.search(masked):
        masked = _CARD.sub(masking("card", is_card_number), masked)
    if any(word in masked for word in _FIN_WORDS):
        masked = _FIN.sub(masking("id", lambda number: True), masked)
    if _SIX_DIGITS.search(masked):
        masked = _ID.sub(masking("id", lambda number: True), masked)
        masked = _ID_BY_WORD.sub(masking("id", lambda number: True), masked)
    if _PHONE_DIGITS.search(masked):
        masked = _PHONE.sub(masking("phone", _is_phone), masked)
        masked = _PHONE_BY_WORD.sub(masking("phone", _is_phone_by_word), masked)
    if PLACEHOLDERS["phone"] in masked:
        masked = _MORE_PHONES.sub(
            lambda numbers: _LOCAL_PHONE.sub(masking("phone", lambda number: True), numbers.group()), masked
        )
    return masked


def is_card_number(text: str) -> bool:
    """True for the digits of a payment card: a known issuer's first digits and a right Luhn check digit."""
    digits = [int(character) for character in text if character.isdigit()]
    if digits[0] not in (2, 3, 4, 5, 6) or len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def is_iban(text: str) -> bool:
    """True where the check digits are right: ISO 13616, the letters as 10 to 35, the remainder by 97 is 1."""
    compact = text.replace(" ", "")
    if not 15 <= len(compact) <= 34:
        return False
    return int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4])) % 97 == 1


def _is_phone(number: str) -> bool:
    return _has_digits_of_a_phone(number) and not _NO_PHONE.fullmatch(number)


def _is_phone_by_word(number: str) -> bool:
    return _has_digits_of_a_phone(number) and not _NO_PHONE_BY_WORD.fullmatch(number)


def _has_digits_of_a_phone(number: str) -> bool:
    return sum(character.isdigit() for character in number) in DIGITS_OF_A_PHONE
