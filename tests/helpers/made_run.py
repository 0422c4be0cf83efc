"""The folder of a run that never ran: every file that a report reads, with contents that a test chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whole_evaluation import evaluation

from pipeline.conditions import ConditionResult
from pipeline.execution_record import SKIPPED, SUCCEEDED, GateResult, RunResult, StepRecord, keep_definition
from steps.contract import Manifest
from steps.schemas.corpus import CorpusSummary
from steps.schemas.training import FineTuningSummary, PretrainingSummary, TelemetryRecord

DIGEST = "0123456789abcdef" * 4
# Step, type, what it waits for, name of its output.
STEPS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("ResolveInputs", "Lambda", (), ""),
    ("PrepareCorpus", "Processing", ("ResolveInputs",), "output"),
    ("TrainTokenizer", "Processing", ("ResolveInputs", "PrepareCorpus"), "output"),
    ("TokenizeCorpus", "Processing", ("PrepareCorpus", "TrainTokenizer"), "output"),
    ("AdaptVocabulary", "Processing", ("TrainTokenizer",), "output"),
    ("ContinuedPretraining", "Training", ("TokenizeCorpus", "AdaptVocabulary"), "model"),
    ("FineTune", "Training", ("ContinuedPretraining",), "model"),
    ("Evaluate", "Processing", ("ContinuedPretraining", "FineTune"), "output"),
    ("QualityGate", "Condition", ("Evaluate",), ""),
)
SHORT_TEXT = {"tokens_per_word": 6.4817, "ci95": (6.4, 6.6), "bytes_per_token": 1.3002, "one_token_words": 0.01,
              "round_trip_errors": 0}  # fmt: skip


def definition() -> dict[str, Any]:
    """The steps above, with a step in either branch of the gate."""
    steps: list[dict[str, Any]] = [
        {"Name": name, "Type": kind, "Arguments": {}, "DependsOn": list(needs)} for name, kind, needs, _ in STEPS
    ]
    steps[-1]["Arguments"] = {
        "Conditions": [],
        "IfSteps": [{"Name": "RegisterModel", "Type": "RegisterModel", "Arguments": {}}],
        "ElseSteps": [{"Name": "GateClosed", "Type": "Fail", "Arguments": {}}],
    }
    limit = {"Name": "MaxBitsPerByte", "Type": "Float", "DefaultValue": 2.0}
    return {"Version": "2020-12-01", "Parameters": [limit], "Steps": steps}


def fertility() -> dict[str, Any]:
    """A base and two sizes of one kind, the larger one chosen."""
    rows = [("base", "base", 2048, 6.4817), ("bbpe-1024", "bbpe", 1024, 3.3261), ("bbpe-4096", "bbpe", 4096, 2.2739)]
    return {
        "candidates": [
            {"name": name, "kind": kind, "vocab_size": size, "train_seconds": 1.0, "peak_memory_bytes": 1,
             "texts": {"heldout": {**SHORT_TEXT, "tokens_per_word": value, "ci95": (value - 0.1, value + 0.1)}}}
            for name, kind, size, value in rows
        ],
        "chosen": "bbpe-4096", "reason": "the smallest", "tokens_per_word": {"base": 6.4817, "chosen": 2.2739},
    }  # fmt: skip


def telemetry(steps: int, every: int = 1, phase_1: int | None = None) -> list[TelemetryRecord]:
    """Records of a training, each value a plain function of the step."""
    phase_1 = steps // 4 if phase_1 is None else phase_1
    return [
        TelemetryRecord(
            step=step, phase=1 if step <= phase_1 else 2, loss=2 + 6 / (1 + step / 50) + (step % 7) / 100,
            validation_bits_per_byte=3 - step / steps, learning_rate=1e-3 * (1 - step / (steps + 1)),
            gradient_norm=1 + (step % 5) / 10, tokens_per_second_per_device=1000.0 + step % 11,
            model_flop_utilisation=None, peak_memory_bytes=2**30, blocks_read=step, epoch=step / steps,
            seconds_left=float(steps - step),
        )
        for step in range(1, steps + 1, every)
    ]  # fmt: skip


def pretraining(steps: int) -> PretrainingSummary:
    phase = {"learning_rate": 1e-3, "tokens": 1, "first_loss": 8.0, "last_loss": 5.0, "seconds": 1.0}
    first = steps // 4
    return PretrainingSummary.model_validate({
        "phases": {"phase_1": {"steps": first, **phase}, "phase_2": {"steps": steps - first, **phase}},
        "corpus_passes": 1.0, "corpus_bytes": 1000, "phase_1_end": "all its steps are done", "resumed_from_step": 0,
        "processes": 1, "parallelism": "none", "device": "cpu", "precision": "float32", "liger": False,
        "parameters": 1_311_872, "flops_per_token": {}, "flops": 3e12, "peak_flops_per_second": None,
        "tokens_per_second_per_device": 1950.0, "peak_memory_bytes": 2**30, "validation_bits_per_byte": 2.6083,
        "validation_history": [(0, 3.4), (steps // 2, 2.7), (steps, 2.6083)], "profile": None,
    })  # fmt: skip


def fine_tuning(first_dropped: str = "c.jsonl, line 3") -> FineTuningSummary:
    return FineTuningSummary.model_validate({
        "conversation_form": "messages", "conversations": 94, "conversations_heldout": 10,
        "conversations_dropped": {"too long": 2}, "first_dropped": {"too long": first_dropped}, "personal_data": {},
        "steps": 120, "lora_scaling": 1.0, "trained_parameters": 622_976, "first_loss": 6.8, "last_loss": 5.5,
        "validation_loss_before": 6.9, "validation_loss": 6.2323, "validation_history": [(60, 6.3), (120, 6.2323)],
        "adapter_step": 120, "ended_early": False, "resumed_from_step": 0, "merge_relative_difference": 1e-6,
        "stop_rate_training": 1.0, "stop_rate_heldout": 0.9,
    })  # fmt: skip


class MadeRun:
    """A run in a folder. steps, gates and the rest of `result` may be changed before `write`."""

    def __init__(
        self, folder: Path, *, candidate: float = 1.5, champion: bool = False, training_steps: int = 40
    ) -> None:
        self.folder = folder
        self.evaluation = evaluation(candidate, champion=champion)
        self.training_steps = training_steps
        self.definition = definition()
        steps = {name: StepRecord(name, kind, SUCCEEDED, seconds=2.5, reason="first run") for name, kind, _, _ in STEPS}
        steps["RegisterModel"] = StepRecord("RegisterModel", "RegisterModel", SUCCEEDED, seconds=0.1,
                                            metric="version 3 PendingManualApproval")  # fmt: skip
        steps["GateClosed"] = StepRecord("GateClosed", "Fail", SKIPPED)
        steps["ResolveInputs"].values = {"corpus_digest": DIGEST, "champion_present": "false"}
        self.result = RunResult(folder, "abcdefabcdef", "langadapt", {"MaxBitsPerByte": 2.0}, steps, exit_code=0,
                                seconds=3723.4)  # fmt: skip
        self.set_gate(candidate, 2.0)
        self.files: dict[str, dict[str, Any]] = {
            "PrepareCorpus": {"corpus.json": self.corpus()},
            "TrainTokenizer": {"fertility.json": fertility()},
            "ContinuedPretraining": {"training.json": pretraining(training_steps).model_dump(mode="json")},
            "FineTune": {"training.json": fine_tuning().model_dump(mode="json")},
            "Evaluate": {"evaluation.json": self.evaluation},
        }
        self.settings: dict[str, dict[str, Any]] = {"ContinuedPretraining": {"seed": 7, "learning_rate": 0.001}}

    def set_gate(self, value: float, limit: float) -> None:
        condition = ConditionResult("bits_per_byte.candidate", "<=", value, limit, value <= limit, "MaxBitsPerByte")
        either = ConditionResult("", "or", None, None, True, parts=(
            ConditionResult("ResolveInputs.OutputParameters['champion_present']", "==", "false", "false", True),
            ConditionResult("champion.improvement_ci95[0]", ">", -0.1, 0.0, False)))  # fmt: skip
        self.result.gates["QualityGate"] = GateResult(value <= limit, (condition, either))

    @staticmethod
    def corpus() -> dict[str, Any]:
        split = {"shards": ["train/part-00000.jsonl"], "documents": 41, "words": 9215, "bytes": 77_319}
        source = {"read": 60, "dropped": {"duplicate": 5, "too short": 1}, "homoglyphs_repaired": 3, "documents_cut": 0}
        return CorpusSummary.model_validate({"splits": {"train": split}, "sources": {"corpus": source}}).model_dump()

    def write(self) -> Path:
        """Writes the folder; gives it."""
        for name, _, _, output in STEPS:
            record = self.result.steps.get(name)
            if not output or record is None or (record.state != SUCCEEDED and record.state != "Cached"):
                continue
            target = self.folder / "outputs" / name / "key" / output
            record.outputs = {output: target}
            record.log = self.folder / "jobs" / name / "key" / "log.txt"
            self._write_files(target, {**self.files.get(name, {}), "manifest.json": self.seal(name)})
            if name == "ContinuedPretraining":
                lines = "".join(f"{record.model_dump_json()}\n" for record in telemetry(self.training_steps))
                (target / "telemetry.jsonl").write_text(lines, "utf-8")
        self.result.definition = keep_definition(self.folder, self.definition)
        self.result.write()
        return self.folder

    def seal(self, step: str) -> dict[str, Any]:
        sealed = Manifest(step=step, config=self.settings.get(step, {}), inputs={"corpus": DIGEST}, code_sha256=DIGEST,
                          files={}, metrics={}, seconds=12.5, peak_memory_bytes=500 * 2**20,
                          versions={"python": "3.11.7"})  # fmt: skip
        return sealed.model_dump(mode="json")

    @staticmethod
    def _write_files(folder: Path, files: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content), "utf-8")
