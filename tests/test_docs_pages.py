"""The pages as a whole: all are listed, what they name exists, translated READMEs show the README's commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shown_commands import commands_of

from pipeline.config import load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))
TRANSLATED = sorted(ROOT.glob("README.*.md"))
ALL = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *TRANSLATED]
# Where a page is named: in words of code, or as a link.
NAMED = re.compile(r"`((?:docs|infra|tests|pipeline|steps|containers)/[\w./-]+\.(?:md|py|yaml|json))`")
LINKED = re.compile(r"\]\(([\w./-]+)(#[\w-]+)?\)")


def section(title: str) -> str:
    """The README's text below a heading, to the next of its rank."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_page_is_listed_with_a_phrase() -> None:
    rows = re.findall(r"^\| `?\[?`?(docs/[\w-]+\.md)`?.*?\| (.+) \|$", section("Documentation"), flags=re.MULTILINE)
    assert sorted(name for name, _ in rows) == [page.relative_to(ROOT).as_posix() for page in PAGES]
    assert all(len(phrase.split()) >= 3 for _, phrase in rows)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *TRANSLATED], ids=lambda p: p.name
)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    missing = [name for name in NAMED.findall(text) if not (ROOT / name).exists()]
    missing += [name for name, _ in LINKED.findall(text) if name and not (page.parent / name).exists()]
    assert not missing


def test_the_anchor_of_the_translations_is_there() -> None:
    anchors = {anchor for page in TRANSLATED for _, anchor in LINKED.findall(page.read_text("utf-8")) if anchor}
    assert anchors == {"#documentation"}
    assert section("Documentation")


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: page.name)
def test_a_translation_shows_the_readmes_commands(page: Path) -> None:
    text = page.read_text("utf-8")
    commands = commands_of(page)
    assert len(commands) >= 8
    assert set(commands) <= set(commands_of(ROOT / "README.md"))
    assert re.findall(r"^    (make .+)$", text, flags=re.MULTILINE) == ["make run", "make test"]
    assert "not run on AWS" in text
    assert page.name in README.partition("\n## ")[0]


def test_there_are_three_translations() -> None:
    assert [page.name for page in TRANSLATED] == ["README.az.md", "README.ru.md", "README.zh.md"]


def test_the_configuration_of_the_walk_is_whole() -> None:
    config = load_config(file=ROOT / "docs" / "turkish" / "turkish.yaml")
    assert config.train_tokenizer.suffixes == ("turkish",)
    for path in (config.data.corpus, config.data.conversations):
        assert (ROOT / str(path)).exists()


def test_the_texts_of_the_walk_are_turkish_in_utf_8() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "docs" / "turkish" / "texts").glob("*.txt")]
    documents = [document for text in texts for document in text.strip().split("\n\n")]
    assert len(documents) == 64
    assert len(set(documents)) == 63
    for letter in "çğıöşüİ":
        assert any(letter in document for document in documents)
