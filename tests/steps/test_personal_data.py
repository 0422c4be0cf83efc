"""Personal data: what counts, what is left alone, and that masking leaves nothing behind."""

from __future__ import annotations

from collections import Counter

import pytest
from doubtful_corpora import sample_texts

from steps.text.personal_data import is_card_number, is_iban, mask_personal_data


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Zəng edin: +994 50 123 45 67 və ya (012) 555-44-33.", "Zəng edin: [PHONE] və ya [PHONE]."),
        ("Tel: 0501234567; mobil nömrəsi 055 123 45 67.", "Tel: [PHONE]; mobil nömrəsi [PHONE]."),
        ("Faks: (+99412) 493 49 60, +1 (415) 555-2671", "Faks: [PHONE], [PHONE]"),
        ("050-123-45-67, WhatsApp +7 912 345-67-89", "[PHONE], WhatsApp [PHONE]"),
        ("kart 4111 1111 1111 1111 və 4111111111111111", "kart [CARD] və [CARD]"),
        ("3782 822463 10005 (Amex)", "[CARD] (Amex)"),
        ("Yazın: ali.mammadov+is@mail.example.az.", "Yazın: [EMAIL]."),
        ("IBAN AZ21NABZ00000000137010001944!", "IBAN [IBAN]!"),
        ("DE89 3704 0044 0532 0130 00 hesabına", "[IBAN] hesabına"),
        ("FİN: 5ABC1D2, FIN kod 1AB2C3D", "FİN: [ID], FIN kod [ID]"),
        ("şəxsiyyət vəsiqəsinin nömrəsi AA1234567", "şəxsiyyət vəsiqəsinin nömrəsi [ID]"),
        ("pasportu AZE12345678; passport C01234567", "pasportu [ID]; passport [ID]"),
        ("passport C123456", "passport [ID]"),
        ("050 1234567, (050)1234567 və ya 050 123 4567", "[PHONE], [PHONE] və ya [PHONE]"),
        ("00 994 50 123 45 67; 8 (495) 123-45-67", "[PHONE]; [PHONE]"),
        ("Tel.: 498-12-34, 498-12-35 və 498-12-36.", "Tel.: [PHONE], [PHONE] və [PHONE]."),
        ("iban az21nabz00000000137010001944, fin kod: 5abc1d2", "iban [IBAN], fin kod: [ID]"),
    ],
)
def test_masked(text: str, masked: str) -> None:
    found, counts = mask_personal_data(text)
    assert found == masked
    assert counts.total() == masked.count("[")
    assert mask_personal_data(masked) == (masked, Counter())


@pytest.mark.parametrize(
    "text",
    [
        "Maddə 123.4.5.6, 12.05.2009, 1 234 567 manat, XİF MN 0501 00 000 0, 8703 23 194 0",
        "2009-cu il 31 may tarixli 819-IIIQD nömrəli Qanun (2004, № 12, maddə 1020; 2005, № 4, maddə 278)",
        "telefon 102, 103 və 112; 12 345 678 901 234 567; 3.14159265358979; 192.168.100.200",
        "4111 1111 1111 1112, 0000 0000 0000 0000, 1234567890123456",
        "AZ22NABZ00000000137010001944 GB00WEST12345698765432",
        "ISBN 978-5-17-080115-2, +1000, 2020-2021, 2019/2020, 10:30-12:45, a@b, @istifadəçi",
        # The end of a word before a long number is no letter of a document's number; nor is a currency.
        "Pasport üçün rüsum cəmi 1200000 manat; passport holders up to 1234567 people; pasport: AZN 1200000",
        "mobil 10 000 000 abunəçi, telefon 1 200 000 manat, Telefon: 2020-2021, telefon 12.05.2009",
        "mobil 5 000 000-6 000 000, +250 000 000 manat, +40.409264, +49.867092, saat 10:00 994 nəfər 12 45 67",
        "fin 1917nci ildə, 498-12-35, ab12cdef0123456789ab",
        "fin dili, FİN SÖZÜ, Boeing AA737, AB1234567 modeli, COVID19, 5000000-6000000 nəfər",
    ],
)
def test_left_alone(text: str) -> None:
    assert mask_personal_data(text) == (text, Counter())


def test_the_sample_holds_none() -> None:
    assert sum((mask_personal_data(text)[1] for text in sample_texts()), Counter()) == Counter()


def test_checksums() -> None:
    assert is_card_number("4111 1111 1111 1111")
    # A Luhn digit is right for one of ten.
    assert sum(is_card_number(f"411111111111111{digit}") for digit in range(10)) == 1
    assert is_iban("GB82 WEST 1234 5698 7654 32")
    assert not is_iban("GB83 WEST 1234 5698 7654 32")
