"""One input of PrepareCorpus: what was read from it, what was dropped and why, what is odd about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import StepError, report_progress
from steps.schemas.corpus import FaultSummary, FindingSummary, SourceFindings, SourceSummary
from steps.text.corpus_checks import Finding, InputChecks
from steps.text.reading import JSON_LIST, JSON_OVER_LINES, Record, text_files

MAX_FAULTS_NAMED = 100
PASSES = 3


class Progress:
    """How much of all inputs is done: each is gone through three times, to be read, compared and written.

    kilobytes: of the files of each input.
    """

    def __init__(self, kilobytes: dict[str, int]) -> None:
        self._kilobytes = kilobytes
        self._passes = dict.fromkeys(kilobytes, 0.0)

    def tell(self, name: str, passes: float) -> None:
        """passes: how often the input has been gone through, a part of a pass included."""
        self._passes[name] = passes
        done = sum(kilobytes * self._passes[other] for other, kilobytes in self._kilobytes.items()) / PASSES
        report_progress(round(done), sum(self._kilobytes.values()), "kB")


class Input:
    """One input: where it lies, what was read from it, what was dropped and why, what is odd about it."""

    def __init__(self, name: str, path: Path, config: PrepareCorpusConfig) -> None:
        self.kilobytes = sum(file.stat().st_size for file in text_files(path)) // 1_000
        self.name, self.path, self.config = name, path, config
        self.lines = self.read = self.kept = self.homoglyphs = self.cut = self.unreadable = self.personal_documents = 0
        self.dropped: Counter[str] = Counter()
        self.personal: Counter[str] = Counter()
        self.faults: dict[tuple[str, str], FaultSummary] = {}
        self.checks = InputChecks(config.warned_document_share)

    def note_fault(self, record: Record) -> None:
        """A line that is no document."""
        fault = str(record.fault)
        self.unreadable += 1
        self.dropped[f"unreadable line: {fault}"] += 1
        key = (record.source, fault)
        if key in self.faults:
            self.faults[key].lines += 1
        elif len(self.faults) < MAX_FAULTS_NAMED:
            self.faults[key] = FaultSummary(file=record.source, fault=fault, lines=1, first_line=record.number)

    def dropped_text(self) -> str:
        """What was dropped, counted by reason, such as `199 exact duplicate`."""
        return ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.dropped.items()))

    def too_many_faults(self, first: Record) -> StepError:
        """The error of an input of which too many lines are no documents."""
        value = (
            f"{self.unreadable:,} of {self.lines:,} lines unreadable, "
            f"first: {first.source} line {first.number}: {first.fault}"
        )
        remedy = "Mend the file or raise prepare_corpus.max_bad_line_share."
        if first.fault in (JSON_LIST, JSON_OVER_LINES):
            remedy = "Write one object a line."
        if first.text_like_field:
            remedy = f"Did you mean {first.text_like_field}? Then set prepare_corpus.text_field to it."
        limit = f"a share of {self.config.max_bad_line_share}"
        return StepError(str(self.path), value, limit=limit, remedy=remedy)

    def findings(self) -> Iterator[Finding]:
        """What is odd about the input."""
        yield from self.checks.findings(self.dropped, self.kept)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.personal.items()))
        text = f"hold personal data ({kinds}). Set data.mask_personal_data to true, or take them out."
        is_warned = self.personal.total() > 0 and not self.config.mask_personal_data
        yield Finding("personal-data", self.personal_documents, self.read, text, is_warned)

    def summary(self) -> SourceSummary:
        """The counts in corpus.json."""
        return SourceSummary(
            read=self.read,
            dropped=dict(sorted(self.dropped.items())),
            homoglyphs_repaired=self.homoglyphs,
            documents_cut=self.cut,
            personal_data=dict(sorted(self.personal.items())),
        )

    def findings_summary(self, findings: list[Finding]) -> SourceFindings:
        """What stands in findings.json: faults by their files, and those of `findings` that any document has."""
        present = {
            finding.name: FindingSummary(
                documents=finding.documents, examined=finding.examined, warned=finding.is_warned
            )
            for finding in findings
            if finding.documents
        }
        return SourceFindings(faults=list(self.faults.values()), findings=present)
