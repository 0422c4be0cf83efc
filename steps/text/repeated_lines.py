"""The line or sentence that stands in most documents."""

from __future__ import annotations

import re
from collections import Counter

# A text of the sample is known by so many of its first and last lines and sentences: menus and footers stand there.
UNITS_AT_EACH_END = 30
UNIT_CHARACTERS = range(15, 201)
# A flattened page has its menu and footer without line ends.
EDGE_CHARACTERS = 40
_UNIT_END = re.compile(r"\n+|(?<=[.!?|•])\s+")
_DIGITS = re.compile(r"\d+")


class RepeatedLines:
    """Counts, for each line or sentence, the documents that have it; digits count as one another."""

    def __init__(self) -> None:
        self.documents = 0
        self._counts: Counter[str] = Counter()

    def add(self, text: str) -> None:
        units = _UNIT_END.split(text)
        if len(units) > 2 * UNITS_AT_EACH_END:
            units = units[:UNITS_AT_EACH_END] + units[-UNITS_AT_EACH_END:]
        found = {_DIGITS.sub("0", unit.strip()) for unit in units if len(unit.strip()) in UNIT_CHARACTERS}
        if len(text) > 4 * EDGE_CHARACTERS:
            found |= {_DIGITS.sub("0", edge) for edge in (text[:EDGE_CHARACTERS], text[-EDGE_CHARACTERS:])}
        self.documents += 1
        self._counts.update(unit for unit in found if any(character.isalpha() for character in unit))

    def most_frequent(self) -> tuple[int, str]:
        """(documents, line) of the line that most documents have; of equals the longest."""
        if not self._counts:
            return 0, ""
        line = max(self._counts, key=lambda unit: (self._counts[unit], len(unit), unit))
        return self._counts[line], line
