"""What stands in many documents: the same line, and held-out documents that are passages of training documents."""

from __future__ import annotations

import re
from collections import Counter

import numpy

# A text of the sample is known by so many of its first and last lines and sentences: menus and footers stand there.
UNITS_AT_EACH_END = 30
UNIT_CHARACTERS = range(15, 201)
# A flattened page has its menu and footer without line ends.
EDGE_CHARACTERS = 40
_UNIT_END = re.compile(r"\n+|(?<=[.!?|•])\s+")
_DIGITS = re.compile(r"\d+")

# Of a held-out document the smallest hashes of its shingles are kept: a fair sample of them.
PASSAGE_SHINGLES = 64
# Shorter ones are set phrases and headings, which stand in other documents by right.
MIN_PASSAGE_SHINGLES = 8
PASSAGE_SHARE = 0.8


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


class HeldoutPassages:
    """Held-out documents, and which of them stand whole, as a passage, in training documents.

    In memory are 64 shingles of each held-out document at most, of 100 bytes or so.
    """

    def __init__(self) -> None:
        self._owners: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}
        self.found: set[int] = set()

    @property
    def documents(self) -> int:
        """Held-out documents that are long enough to be looked for."""
        return len(self._sizes)

    def hold_out(self, document: int, shingles: numpy.ndarray) -> None:
        """document: the held-out document's number. shingles: its sorted distinct uint64 hashes."""
        if shingles.size < MIN_PASSAGE_SHINGLES:
            return
        kept = shingles[:PASSAGE_SHINGLES].tolist()
        for shingle in kept:
            self._owners.setdefault(shingle, []).append(document)
        self._sizes[document] = len(kept)

    def look_in(self, shingles: numpy.ndarray) -> None:
        """Notes the held-out documents that stand in a training document of these shingles."""
        owners = self._owners
        hits = Counter(owner for shingle in shingles.tolist() if shingle in owners for owner in owners[shingle])
        self.found.update(owner for owner, hit in hits.items() if hit >= PASSAGE_SHARE * self._sizes[owner])
