"""docs/troubleshooting.md: the fixed words of each line that it quotes stand in the source, and its settings exist."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from source_words import fixed_words, is_in_source

from pipeline.config import PipelineConfig

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
LINES = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)


def known_names() -> set[str]:
    """What a line may name beside the source's words: section.field, and the sections and steps of the product."""
    fields = {
        f"{section}.{field}"
        for section, info in PipelineConfig.model_fields.items()
        for field in getattr(info.annotation, "model_fields", {})
    }
    # The system's own word for a full disk.
    return fields | set(PipelineConfig.model_fields) | {os.strerror(errno.ENOSPC)}


@pytest.mark.parametrize("line", LINES)
def test_the_words_of_a_line_stand_in_the_source(line: str) -> None:
    missing = [words for words in fixed_words(line) if not is_in_source(words) and words not in known_names()]
    assert not missing


def test_there_are_thirty_lines_or_more_and_each_once() -> None:
    assert len(LINES) == len(set(LINES))
    assert len(LINES) >= 30


def test_a_row_has_all_three_columns() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ")]
    assert not [row for row in rows if len(re.split(r"(?<!\\)\|", row)) != 5]


def test_the_short_list_of_the_base_models_page_quotes_real_words() -> None:
    page = (DOCS / "own-base-model.md").read_text("utf-8").partition("## Lines that you may meet")[2]
    quoted = re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE)
    assert len(quoted) >= 10
    assert not [words for line in quoted for words in fixed_words(line) if not is_in_source(words)]
