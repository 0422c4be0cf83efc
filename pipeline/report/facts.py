"""What a report is made of: all that a run's files tell, of a run here or of an execution on SageMaker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.execution_record import RunResult
from pipeline.step_graph import Node
from steps.contract import Manifest
from steps.schemas.adaptation import Adaptation
from steps.schemas.corpus import CorpusFindings, CorpusSummary
from steps.schemas.evaluation import Evaluation
from steps.schemas.fertility import FertilityReport
from steps.schemas.training import FineTuningSummary, PretrainingSummary, TelemetryRecord


@dataclass(frozen=True)
class Token:
    """A token as it is shown: what its bytes spell, and how many they are."""

    text: str
    bytes: int

    @property
    def has_part_of_letter(self) -> bool:
        """Whether some of its bytes are no whole letter, and stand in the text as \\xC9."""
        return len(self.text.encode()) != self.bytes


@dataclass(frozen=True)
class TokenCuts:
    """One text cut by the base's tokenizer and by the new one. source: the file that the text is from."""

    text: str
    source: str
    base: Sequence[Token]
    new: Sequence[Token]


@dataclass
class Facts:
    """Each file's content, None or empty where it is not there.

    place: the run folder or ARN as a person would write it.  graph: the steps of the definition, empty where that is
    gone.  recorded_at: seconds since the epoch when the record was last written.  cost: in words.
    trainings, telemetry: by step, in the order of the graph.  unfinished: the steps whose telemetry is of a training
    that did not end.  manifests: by step, a seal for each output.  missing: what could not be read, in sentences.
    notes: what an execution's service did not tell.
    """

    result: RunResult
    place: str
    graph: Mapping[str, Node] = field(default_factory=dict)
    recorded_at: float | None = None
    cost: str = "no cost"
    cost_note: str = "ran on this machine"
    fertility: FertilityReport | None = None
    cuts: TokenCuts | None = None
    evaluation: Evaluation | None = None
    corpus: CorpusSummary | None = None
    findings: CorpusFindings | None = None
    adaptation: Adaptation | None = None
    trainings: dict[str, PretrainingSummary] = field(default_factory=dict)
    fine_tuning: FineTuningSummary | None = None
    telemetry: dict[str, list[TelemetryRecord]] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    manifests: dict[str, list[Manifest]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
