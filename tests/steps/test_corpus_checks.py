"""Corpora that are plausible and likely wrong: each brings one warning, by name; the sample and its kind bring none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from doubtful_corpora import ENGLISH, RUSSIAN, SPOILT, TURKISH, foreign, misread, part, sample_texts, write_texts

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import EXIT_DONE, content_digest, read_seal, run_step
from steps.prepare_corpus import FOLDERS, REPORTS, prepare_corpus
from steps.schemas.corpus import FindingSummary
from steps.text.characters import character_flags
from steps.text.corpus import read_findings, read_summary
from steps.text.corpus_checks import InputChecks
from steps.text.languages import find_other_languages, find_other_scripts, profile_distance


def warned(folder: Path, inputs: dict[str, Path], *more: str) -> list[str]:
    """The names of the manifest's warnings."""
    arguments = [f"--{name}={path}" for name, path in inputs.items()]
    arguments += [f"--output={folder / 'out'}", "--test_share=0.1", "--validation_share=0.1", *more]
    assert run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS, reports=REPORTS, arguments=arguments) == EXIT_DONE
    return [warning.name for warning in read_seal(folder / "out").warnings]


# All of them are run by tests/verify/test_corpora.py.
QUICK = [
    "other-language:Turkish", "mixed-script", "letters-missing:all", "mojibake:cp1254", "html-markup",
    "repeated-boilerplate", "one-document-dominates", "mostly-duplicates", "many-short-documents", "personal-data",
    "heldout-in-training:passages", "source-corpus-same-language:identical",
]  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_spoilt_corpus_brings_its_warning_alone(tmp_path: Path, name: str) -> None:
    more = ["--max_document_bytes=2000"] if name == "one-document-dominates" else []
    assert warned(tmp_path, SPOILT[name](tmp_path, sample_texts()), *more) == [name.partition(":")[0]]


def test_the_clean_sample_brings_none(tmp_path: Path) -> None:
    texts = sample_texts()
    corpus = write_texts(tmp_path / "corpus.jsonl", texts[:40])
    held_out = write_texts(tmp_path / "held_out.jsonl", texts[40:])
    source = write_texts(tmp_path / "source.jsonl", foreign(ENGLISH, 40))
    assert warned(tmp_path, {"corpus": corpus, "extra_heldout": held_out, "source_corpus": source}) == []


def test_counts_stand_in_findings_json_whatever_the_order(tmp_path: Path) -> None:
    texts = [*part(sample_texts(), misread("cp1252")), *foreign(RUSSIAN, 14)]
    for name, order in (("one", texts), ("two", texts[::-1])):
        (tmp_path / name).mkdir()
        warned(tmp_path / name, {"corpus": write_texts(tmp_path / "corpus.jsonl", order)})
    findings = read_findings(tmp_path / "one" / "out").sources["corpus"].findings
    assert findings["mojibake"] == FindingSummary(documents=14, examined=68, warned=True)
    assert findings["mixed-script"] == FindingSummary(documents=14, examined=54, warned=True)
    assert content_digest(tmp_path / "one" / "out") == content_digest(tmp_path / "two" / "out")


def test_a_share_below_the_setting_is_counted_and_not_warned_of(tmp_path: Path) -> None:
    corpus = {"corpus": write_texts(tmp_path / "corpus.jsonl", part(sample_texts(), lambda text: f"<p>{text}</p>", 9))}
    assert warned(tmp_path, corpus, "--warned_document_share=0.2") == []
    found = read_findings(tmp_path / "out").sources["corpus"].findings["html-markup"]
    assert (found.documents, found.warned) == (6, False)


@pytest.mark.parametrize(("documents", "is_warned"), [(2, False), (3, True)])
def test_of_two_documents_one_is_always_the_longer(documents: int, is_warned: bool) -> None:
    checks = InputChecks(0.02)
    for text in ["söz " * 100, *["söz"] * (documents - 1)]:
        checks.see_read(text)
    found = {finding.name: finding for finding in checks.findings(Counter(), documents)}
    assert found["one-document-dominates"].is_warned == is_warned


def test_what_is_warned_of_and_the_names_of_faulty_files_are_no_content(tmp_path: Path) -> None:
    texts = part(sample_texts(), lambda text: f"<p>{text}</p>", 9)
    digests = set()
    for name, share in (("one", "0.02"), ("two", "0.2")):
        (tmp_path / name).mkdir()
        corpus = write_texts(tmp_path / name / f"{name}.jsonl", texts)
        corpus.write_text(corpus.read_text("utf-8") + "no json\n", "utf-8")
        warned(tmp_path / name, {"corpus": corpus}, f"--warned_document_share={share}", "--max_bad_line_share=0.1")
        digests.add(content_digest(tmp_path / name / "out"))
        source = read_findings(tmp_path / name / "out").sources["corpus"]
        assert source.findings["html-markup"].warned == (name == "one")
        assert [fault.file for fault in source.faults] == [corpus.name]
    assert len(digests) == 1


def test_personal_data_is_counted_and_masked(tmp_path: Path) -> None:
    corpus = SPOILT["personal-data"](tmp_path, sample_texts())
    assert warned(tmp_path, corpus, "--mask_personal_data=true") == []
    kinds = {"card": 3, "email": 3, "id": 3, "phone": 3}
    assert read_summary(tmp_path / "out").sources["corpus"].personal_data == kinds
    metrics = read_seal(tmp_path / "out").metrics
    assert (metrics["personal_data"], metrics["personal_data_phone"]) == (12, 3)
    written = "".join(path.read_text("utf-8") for path in (tmp_path / "out").rglob("part-*.jsonl"))
    assert written.count("Müraciət üçün: [PHONE], kart [CARD], [EMAIL], FİN: [ID].") == 3
    assert "example.az" not in written
    assert "4111" not in written


@pytest.mark.parametrize("sentences", [ENGLISH, TURKISH, RUSSIAN], ids=["English", "Turkish", "Russian"])
def test_one_language_is_one_language(sentences: list[str]) -> None:
    texts = foreign(sentences, 100)
    assert find_other_scripts(texts)[0].documents == 0
    assert find_other_languages(texts)[0].documents == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_documents_in_another_language_are_the_ones_set_apart(seed: int) -> None:
    texts = [*sample_texts(), *foreign(TURKISH, 15), *foreign(ENGLISH, 15)]
    random.Random(seed).shuffle(texts)
    finding, same = find_other_languages(texts)
    assert (finding.documents, finding.examined) == (30, 84)
    assert sorted(same) == sorted(sample_texts())


def test_distance_by_hand() -> None:
    assert profile_distance(["aaaa"], ["bbbb"]) == 1.0
    assert profile_distance(["ab ab"], ["ab ab ab ab"]) == 0.0
    # Pairs " a", "aa", "a " of one text; " a", "ab", "b " of the other: one of three in common.
    assert profile_distance(["aa"], ["ab"]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "text",
    [
        "CAFÉ… «ÉCOLE» Ç. É” Ö— ÂGÉ: São Paulo, Ångström, Århus, 5 < 7 && x > y, a&b; R&D",
        "Əhməd dedi: “Çay İÇ!” – Ğ, Ş, Ö… İstanbul’da",
        "РОССИЯ: С «Ростеха» – РСФСР, Њујорк, Їжак, СССР",
    ],
)
def test_good_text_has_no_flags(text: str) -> None:
    assert character_flags(text) == []


MISREAD = {"cp1252": "Ã¶lÃ§Ã¼ dÉ™", "cp1251": "Г¶lГ§Гј dЙ™"}


@pytest.mark.parametrize("encoding", [*MISREAD, "cp1254", "latin-1"])
def test_every_common_way_of_decoding_wrongly_is_seen(encoding: str) -> None:
    misreading: Callable[[str], str] = misread(encoding)
    # No help from U+FFFD, which stands for what the encoding lacks.
    texts = [misreading(text).replace("\ufffd", "") for text in sample_texts()]
    assert [character_flags(text) for text in texts] == [["mojibake"]] * len(texts)
    if encoding in MISREAD:
        assert misreading("ölçü də") == MISREAD[encoding]
