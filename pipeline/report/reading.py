"""Reads the files of a run into the facts of its report. A file that is missing or cannot be read is said, no error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from pipeline.execution_record import RECORD_NAME, RECORDS_NAME, RunResult
from pipeline.recorded_run import result_of
from pipeline.report.facts import Facts
from pipeline.report.token_cuts import CutProcess
from pipeline.step_graph import Node
from steps.contract import Manifest, StepError, UserError, find_seals
from steps.schemas.adaptation import Adaptation
from steps.schemas.corpus import CorpusFindings, CorpusSummary
from steps.schemas.evaluation import Evaluation
from steps.schemas.fertility import FertilityReport
from steps.schemas.training import FineTuningSummary, PretrainingSummary, TelemetryRecord

TELEMETRY_NAME = "telemetry.jsonl"
# Where the launcher lets a training job write, below the folder of its log.
UNFINISHED_TELEMETRY = f"opt/ml/model/{TELEMETRY_NAME}"
Model = TypeVar("Model", bound=pydantic.BaseModel)


def read_run(run_folder: Path) -> Facts:
    """The facts of the newest execution of a run folder. Raises StepError for a folder without a record."""
    return read_record(run_folder / RECORD_NAME)


def read_record(path: Path) -> Facts:
    """The facts of the execution that a record tells of: RUN/execution.json or RUN/executions/<id>.json.

    Raises StepError for another file.
    """
    run_folder = path.parent.parent if path.parent.name == RECORDS_NAME else path.parent
    if not path.is_file():
        raise StepError(str(path), "no such file", remedy="Name a folder that langadapt run has made.")
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise StepError(str(path), "no JSON", remedy="Name a folder that langadapt run has made.") from error
    if not isinstance(record, dict) or not isinstance(record.get("steps"), dict):
        raise StepError(str(path), "no record of a run", remedy="Name a folder that langadapt run has made.")
    facts = facts_of(result_of(run_folder, record), run_folder)
    facts.recorded_at = path.stat().st_mtime
    return facts


def facts_of(result: RunResult, run_folder: Path) -> Facts:
    """The facts of a run whose record is at hand."""
    from pipeline.summary import shown

    facts = Facts(result, shown(run_folder))
    _read_graph(facts, run_folder / result.definition)
    read_files(facts)
    return facts


def read_files(facts: Facts) -> None:
    """Reads what the steps' output folders hold."""
    cutting = CutProcess.started(facts.result.outputs)
    reader = FileReader(facts)
    for step, folders in facts.result.outputs.items():
        for folder in folders.values():
            if not folder.is_dir():
                facts.missing.append(f"{step}: its output {folder} is gone, and with it what it measured.")
                continue
            reader.read_folder(step, folder)
    for step, record in facts.result.steps.items():
        if step not in facts.telemetry and record.log and (path := record.log.parent / UNFINISHED_TELEMETRY).is_file():
            facts.telemetry[step] = list(reader.lines(path))
            facts.unfinished.add(step)
    if cutting is not None:
        facts.cuts, problem = cutting.result()
        facts.missing += [problem] if problem else []


class FileReader:
    """Takes each known file of an output folder by its name: of a foreign definition's step as well."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def read_folder(self, step: str, folder: Path) -> None:
        facts = self.facts
        seals = [self._model(Manifest, path) for path in find_seals(folder)]
        facts.manifests.setdefault(step, []).extend(seal for seal in seals if seal is not None)
        facts.corpus = self._model(CorpusSummary, folder / "corpus.json") or facts.corpus
        facts.findings = self._model(CorpusFindings, folder / "findings.json") or facts.findings
        facts.fertility = self._fertility(folder / "fertility.json") or facts.fertility
        facts.adaptation = self._model(Adaptation, folder / "adaptation.json") or facts.adaptation
        facts.evaluation = self._model(Evaluation, folder / "evaluation.json") or facts.evaluation
        self._read_training(step, folder / "training.json")
        if (folder / TELEMETRY_NAME).is_file():
            facts.telemetry[step] = list(self.lines(folder / TELEMETRY_NAME))

    def _fertility(self, path: Path) -> FertilityReport | None:
        """A report that names what it chose among candidates which were all measured on the held-out text."""
        report = self._model(FertilityReport, path)
        if report is None:
            return None
        measured = {candidate.name: "heldout" in candidate.texts for candidate in report.candidates}
        if report.chosen in measured and all(measured.values()):
            return report
        self.facts.missing.append(f"{path}: its choice is none of its candidates, or one was not measured.")
        return None

    def _read_training(self, step: str, path: Path) -> None:
        """training.json is of one form for pretraining and of another for fine-tuning."""
        if not path.is_file():
            return
        try:
            content = json.loads(path.read_bytes())
        except (ValueError, OSError) as error:
            self._say(path, error)
            return
        if isinstance(content, Mapping) and "phases" in content:
            if summary := self._model(PretrainingSummary, path):
                self.facts.trainings[step] = summary
        else:
            self.facts.fine_tuning = self._model(FineTuningSummary, path) or self.facts.fine_tuning

    def lines(self, path: Path) -> Iterator[TelemetryRecord]:
        """The records of a telemetry file; of one that is still written to, those that are whole."""
        try:
            content = path.read_bytes()
        except OSError as error:
            self._say(path, error)
            return
        for line in content.splitlines():
            try:
                yield TelemetryRecord.model_validate_json(line)
            except pydantic.ValidationError as error:
                self._say(path, error)
                return

    def _model(self, kind: type[Model], path: Path) -> Model | None:
        """The content of a file; None where it is not there or, said, cannot be read."""
        if not path.is_file():
            return None
        try:
            return kind.model_validate_json(path.read_bytes())
        except (pydantic.ValidationError, OSError) as error:
            self._say(path, error)
            return None

    def _say(self, path: Path, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) else "not in the form that this version of langadapt reads"
        self.facts.missing.append(f"{path}: {why}.")


def _read_graph(facts: Facts, path: Path) -> None:
    """The graph of the definition that ran; without it, the steps as the record lists them."""
    from pipeline.remote.execution_view import graph_of

    if not path.is_file():
        facts.missing.append("The run's definition is gone: steps are listed, not drawn.")
        return
    try:
        definition: dict[str, Any] = json.loads(path.read_bytes())
        facts.graph = graph_of(definition)
    except (ValueError, KeyError, TypeError, UserError) as error:
        facts.missing.append(f"{path}: no definition that can be drawn ({error}).")


def drawn_steps(facts: Facts) -> dict[str, Node]:
    """The steps of the graph that the record knows, too."""
    return {name: node for name, node in facts.graph.items() if name in facts.result.steps}
