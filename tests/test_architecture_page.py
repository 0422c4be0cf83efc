"""docs/architecture.md: each place that it names exists, and its line defines the named symbol."""

from __future__ import annotations

import re

from architecture_page import PAGE, PLACE, ROOT, page

TEXT = PAGE.read_text("utf-8")
QUESTIONS = re.findall(r"^\| where is (.+?) \| (.+?) \|", TEXT, flags=re.MULTILINE)


def test_every_line_is_that_of_its_symbol() -> None:
    assert page(TEXT) == TEXT, "give: python tests/helpers/architecture_page.py"


def test_the_line_holds_the_symbol() -> None:
    """By the file's text alone, whatever the script says."""
    places = list(PLACE.finditer(TEXT))
    assert len(places) >= 10
    for found in places:
        line = (ROOT / found["path"]).read_text("utf-8").splitlines()[int(found["line"]) - 1]
        assert re.search(rf"\b{found['symbol'].rpartition('.')[2]}\b", line), found[0]


def test_ten_questions_or_more_are_answered_by_file_and_line() -> None:
    assert len(QUESTIONS) >= 10
    assert not [question for question, answer in QUESTIONS if not PLACE.search(answer)]


def test_every_room_is_a_folder_of_the_house() -> None:
    rooms = re.findall(r"^\| `([a-z/]+/)` \|", TEXT, flags=re.MULTILINE)
    assert {"pipeline/", "steps/", "containers/", "tests/"} <= set(rooms)
    assert not [room for room in rooms if not (ROOT / room).is_dir()]
