"""The section on the corpus: what was read, what was dropped and why, what was kept for what."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.report.blocks import Block, Cell, Paragraph, Row, Section, Subheading, Table
from pipeline.report.facts import Facts
from pipeline.report.wording import share_text, size_text
from steps.schemas.corpus import CorpusFindings, CorpusSummary

SHOWN_FAULTS = 30


def corpus_section(facts: Facts) -> Section:
    if facts.corpus is None:
        return Section("Corpus", [Paragraph("Not told: no corpus.json.")], "corpus")
    return Section("Corpus", list(_blocks(facts.corpus, facts.findings)), "corpus")


def _blocks(corpus: CorpusSummary, findings: CorpusFindings | None) -> Iterator[Block]:
    yield splits_table(corpus)
    yield Subheading("Dropped, and why")
    yield dropped_table(corpus)
    if findings is None:
        return
    faults = [(source, fault) for source, found in findings.sources.items() for fault in found.faults]
    if faults:
        yield Subheading("Lines that could not be used")
        rows: list[Row] = [
            [source, Cell(fault.file, is_code=True), fault.fault, f"{fault.lines:,}", f"{fault.first_line:,}"]
            for source, fault in faults[:SHOWN_FAULTS]
        ]
        yield Table(("input", "file", "fault", "lines", "the first"), rows, right=frozenset({3, 4}))
        if len(faults) > SHOWN_FAULTS:
            yield Paragraph(f"and {len(faults) - SHOWN_FAULTS} more, in findings.json")
    odd = [(source, name, found) for source, all_found in findings.sources.items()
           for name, found in all_found.findings.items()]  # fmt: skip
    if odd:
        yield Subheading("Peculiarities")
        rows = [
            [source, name, f"{found.documents:,}", share_text(found.documents / max(1, found.examined)),
             Cell("warned", "warn") if found.warned else ""] for source, name, found in odd
        ]  # fmt: skip
        yield Table(("input", "what", "documents", "share", ""), rows, right=frozenset({2, 3}))


def splits_table(corpus: CorpusSummary) -> Table:
    rows = [
        [name.replace("_", " "), f"{split.documents:,}", f"{split.words:,}", size_text(split.bytes),
         f"{len(split.shards):,}"] for name, split in corpus.splits.items()
    ]  # fmt: skip
    return Table(("kept for", "documents", "words", "text", "shards"), rows, right=frozenset(range(1, 5)))


def dropped_table(corpus: CorpusSummary) -> Table:
    """A row an input and reason; what was repaired or masked as well."""
    rows: list[Row] = []
    for name, source in corpus.sources.items():
        rows.append([name.replace("_", " "), "read", f"{source.read:,}", ""])
        for why, number in source.dropped.items():
            rows.append(["", f"dropped: {why}", f"{number:,}", share_text(number / source.read) if source.read else ""])
        if not source.dropped:
            rows.append(["", "dropped", "0", ""])
        changed = {"documents cut to their longest size": source.documents_cut,
                   "letters repaired that look like others": source.homoglyphs_repaired}  # fmt: skip
        changed |= {f"personal data found: {kind}": number for kind, number in source.personal_data.items()}
        rows += [["", what, f"{number:,}", ""] for what, number in changed.items() if number]
    return Table(("input", "what", "number", "of those read"), rows, right=frozenset({2, 3}))
