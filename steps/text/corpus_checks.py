"""What is plausible in an input and yet likely wrong: watched while the input is read, told by name at the end.

Counts of characters and sizes are over all documents as they were read; language, script, missing letters and repeated
lines over the first documents in the order of their digests, which is a sample by chance, the same for the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from steps.text.characters import ALL_CAPITALS, HTML_MARKUP, MOJIBAKE, UNUSUAL_KINDS, character_flags
from steps.text.languages import (
    SAMPLE_CHARACTERS,
    SAMPLE_DOCUMENTS,
    find_missing_letters,
    find_other_languages,
    find_other_scripts,
    main_script,
    profile_distance,
)
from steps.text.repeated_lines import RepeatedLines

# Headings in capitals stand in any text; a fifth is another way of writing.
CAPITALS_SHARE = 0.2
# A line in a fifth of all documents is the page's around them.
BOILERPLATE_SHARE = 0.2
MOST = 0.5
# Texts of one language in different genres: up to 0.104; Azerbaijani and Turkish: 0.167 and more.
SAME_LANGUAGE_DISTANCE = 0.13
MIN_DOCUMENTS = 2
QUOTED_CHARACTERS = 60
# Scripts that mark the edges of words, which they write without spaces, by a zero-width space.
SCRIPTS_WITHOUT_SPACES = ("KHMER", "LAO", "THAI", "MYANMAR", "TIBETAN")


@dataclass(frozen=True)
class Finding:
    """`documents` of `examined` are as `name` says; `text` goes on after "... documents" and says what to do."""

    name: str
    documents: int
    examined: int
    text: str
    is_warned: bool

    def message(self, source: str) -> str:
        share = self.documents / self.examined if self.examined else 0.0
        return f"{source}: {self.documents:,} of {self.examined:,} documents ({share:.1%}) {self.text}"


class InputChecks:
    """Watches one input; its memory does not grow with the input."""

    def __init__(self, warned_document_share: float) -> None:
        self._share = warned_document_share
        self._documents = self._characters = self._longest = 0
        self._flags: Counter[str] = Counter()
        self._lines = RepeatedLines()
        self.sample: list[str] = []

    def see_read(self, raw: str) -> None:
        """A document as it was read, before it is normalised and cut."""
        self._documents += 1
        self._characters += len(raw)
        self._longest = max(self._longest, len(raw))
        self._flags.update(character_flags(raw))

    def see_kept(self, text: str) -> None:
        """A document that was kept, in the order of the documents' digests."""
        if self._lines.documents >= SAMPLE_DOCUMENTS:
            return
        self._lines.add(text)
        head = text[:SAMPLE_CHARACTERS]
        # Those are told of by their own names; their letters are not those of their language.
        if not {MOJIBAKE, ALL_CAPITALS} & {*character_flags(head)}:
            self.sample.append(head)

    def findings(self, dropped: Counter[str], kept: int) -> Iterator[Finding]:
        """All that was found, in a fixed order. dropped: documents for each reason; kept: documents."""
        yield from self._language_findings()
        yield from self._character_findings()
        yield self._boilerplate()
        yield from self._size_findings(dropped, kept)

    def _shared(self, name: str, documents: int, examined: int, text: str, share: float | None = None) -> Finding:
        limit = self._share if share is None else share
        is_warned = documents >= max(MIN_DOCUMENTS, limit * examined)
        return Finding(name, documents, examined, text, is_warned)

    def _language_findings(self) -> Iterator[Finding]:
        scripts, one_script = find_other_scripts(self.sample)
        text = (
            f"are mostly in another script than the rest ({scripts.detail}). Take them out, or give more of the rest."
        )
        yield self._shared("mixed-script", scripts.documents, scripts.examined, text)
        languages, one_language = find_other_languages(one_script)
        text = f'seem to be in another language than the rest, such as "{languages.detail}". Take them out.'
        yield self._shared("other-language", languages.documents, languages.examined, text)
        letters = find_missing_letters(one_language)
        text = (
            f'have no "{letters.detail}" where the others have many: typed without diacritics? Mend or leave them out.'
        )
        yield self._shared("letters-missing", letters.documents, letters.examined, text)

    def _character_findings(self) -> Iterator[Finding]:
        text = "hold UTF-8 read as another encoding (such as Ã¼ or É™) or U+FFFD. Decode the source as UTF-8 again."
        yield self._shared(MOJIBAKE, self._flags[MOJIBAKE], self._documents, text)
        text = "hold HTML tags or entities. Give the text that a browser shows."
        yield self._shared(HTML_MARKUP, self._flags[HTML_MARKUP], self._documents, text)
        for kind in UNUSUAL_KINDS:
            is_usual = kind.startswith("zero-width") and self._writes_without_spaces()
            text = (
                f"hold {kind}. Look where they come from; control and zero-width characters are left out, others stay."
            )
            share = 1.1 if is_usual else None
            yield self._shared(kind.replace(" ", "-"), self._flags[kind], self._documents, text, share)
        text = "are in capitals throughout. Give them as they were written, or leave them out."
        yield self._shared(ALL_CAPITALS, self._flags[ALL_CAPITALS], self._documents, text, CAPITALS_SHARE)

    def _writes_without_spaces(self) -> bool:
        return main_script("".join(text[:100] for text in self.sample)) in SCRIPTS_WITHOUT_SPACES

    def _boilerplate(self) -> Finding:
        documents, line = self._lines.most_frequent()
        documents = documents if documents > 1 else 0
        quoted = line if len(line) <= QUOTED_CHARACTERS else f"{line[:QUOTED_CHARACTERS]}..."
        text = f'hold the same line, "{quoted}". Cut menus, headers and footers off.'
        # In fewer than ten documents two may share a line by chance.
        limit = max(BOILERPLATE_SHARE, 3 / max(self._lines.documents, 1))
        return self._shared("repeated-boilerplate", documents, self._lines.documents, text, limit)

    def _size_findings(self, dropped: Counter[str], kept: int) -> Iterator[Finding]:
        share = self._longest / max(self._characters, 1)
        is_most = share > MOST and self._documents > 2
        text = f"is {share:.0%} of the text. In .txt blank lines separate documents: is one missing?"
        yield Finding("one-document-dominates", int(is_most), self._documents, text, is_most)
        duplicates = dropped["exact duplicate"] + dropped["near duplicate"]
        pieces = duplicates + dropped["too short"] + kept
        text = "were dropped as copies of others. Was the same text given several times?"
        yield Finding("mostly-duplicates", duplicates, pieces, text, duplicates > MOST * pieces)
        short = dropped["too short"]
        text = (
            "were dropped as too short. Is prepare_corpus.text_field the field with the text? "
            "Is each sentence a document? Join them, or lower prepare_corpus.min_document_characters."
        )
        yield Finding("many-short-documents", short, pieces, text, short > MOST * pieces)


def language_distance(first: InputChecks, second: InputChecks) -> float | None:
    """profile_distance of the two inputs' samples; None where one has no document."""
    return profile_distance(first.sample, second.sample) if first.sample and second.sample else None
