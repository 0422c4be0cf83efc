"""`langadapt models show`: the evidence for one model version on one screen.

Every line comes from what the registry keeps of the run: evaluation.json, fertility.json, the steps' seals and
execution.json. A version of another pipeline, which has none of them, shows its metadata.
"""

from __future__ import annotations

import datetime
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pydantic

from pipeline.conditions import ConditionResult, condition_text
from pipeline.model_versions import Approval, Status
from steps.contract import Manifest
from steps.schemas.evaluation import BitsPerByte, Evaluation
from steps.schemas.fertility import FertilityReport

WIDTH = 100
LABEL_WIDTH = 18
SHORTEST_ROOM = 40
SHORT_DIGEST = 12
SAMPLE_CHARACTERS = 78
SHOWN_WARNINGS = 4
SHOWN_APPROVALS = 5
# The end of the year 9999.
LATEST_SECONDS = 253_402_300_800
Row = tuple[str, str]
Kept = TypeVar("Kept", bound=pydantic.BaseModel)


class ReportedVersion(Protocol):
    """What is told of a version, be it in a local registry or in SageMaker's.

    request: with InferenceSpecification. kept_at: where its files lie, and how large they are. model_digest: empty
    where the registry keeps none.
    """

    @property
    def group(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def status(self) -> Status: ...
    @property
    def created_at(self) -> float: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def request(self) -> Mapping[str, Any]: ...
    @property
    def approvals(self) -> list[Approval]: ...
    @property
    def model_digest(self) -> str: ...
    @property
    def model_folder(self) -> Path | str: ...
    @property
    def kept_at(self) -> str: ...
    def evidence_named(self, name: str) -> Iterator[bytes]: ...


def report_lines(version: ReportedVersion) -> list[str]:
    """At most about 40 lines of at most 100 columns."""
    evaluations = (_parsed(Evaluation, content) for content in version.evidence_named("evaluation.json"))
    evaluation = next(filter(None, evaluations), None)
    execution: dict[str, Any] = json.loads(next(version.evidence_named("execution.json"), b"{}"))
    rows: list[Row] = []
    if evaluation is None:
        rows += [(name, value) for name, value in version.metadata.items()]
    else:
        rows += [
            _verdict(evaluation),
            *_bits_rows(evaluation),
            *_ablation_rows(evaluation),
            *_champion_rows(evaluation, execution),
            *_fertility_rows(version),
        ]
        rows += [*_behaviour_rows(evaluation), *_sample_rows(evaluation)]
    rows += [*_gate_rows(execution), *_corpus_rows(version), *_warning_rows(execution)]
    rows += [*_provenance_rows(version, execution), *_history_rows(version)]
    heading = f"{version.group} version {version.version}: {version.status}"
    # Names of another pipeline's metadata may be longer than ours.
    width = max([LABEL_WIDTH, *(len(label) + 2 for label, _ in rows)])
    return [heading, *(line for row in rows for line in _wrapped(row, width))]


def _parsed(kind: type[Kept], content: bytes) -> Kept | None:
    """None for a file in the form of another version of langadapt: a registry outlives versions."""
    try:
        return kind.model_validate_json(content)
    except pydantic.ValidationError:
        return None


def _verdict(evaluation: Evaluation) -> Row:
    """What a person would want to hear first."""
    bits, champion = evaluation.bits_per_byte, evaluation.champion
    against = [("the base model", bits.improvement, bits.improvement_ci95[0])]
    if champion.present:
        against.append(("the champion", champion.improvement, champion.improvement_ci95[0]))
    said = [
        f"better than {name} by {gain:.4f} bits per byte" if low > 0 else f"not clearly better than {name}"
        for name, gain, low in against
    ]
    return "verdict", ", ".join(said)


def _wrapped(row: Row, label_width: int) -> list[str]:
    label, text = row
    room = max(WIDTH - 2 - label_width, SHORTEST_ROOM)
    pieces = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    labels = [label, *[""] * (len(pieces) - 1)]
    return [f"  {name:<{label_width}}{piece}" for name, piece in zip(labels, pieces, strict=True)]


def _interval(value: float, ci95: tuple[float, float]) -> str:
    return f"{value:.4f} (95%: {ci95[0]:.4f} to {ci95[1]:.4f})"


def _bits(bits: BitsPerByte) -> str:
    return (
        f"{bits.base:.4f} -> {bits.pretrained:.4f} -> {bits.candidate:.4f}; "
        f"improvement {_interval(bits.improvement, bits.improvement_ci95)}"
    )


def _bits_rows(evaluation: Evaluation) -> Iterator[Row]:
    bits, retention = evaluation.bits_per_byte, evaluation.retention
    yield "bits per byte", f"base -> pretrained -> candidate, {bits.documents} documents, {bits.bytes_scored:,} bytes"
    yield "  equal bytes", _bits(bits)
    yield "  equal tokens", _bits(evaluation.equal_tokens)
    if evaluation.extra_heldout is not None:
        yield "  extra held-out", _bits(evaluation.extra_heldout)
    if retention is not None:
        yield (
            "retention",
            f"base {retention.base:.4f} -> candidate {retention.candidate:.4f}; loss {retention.loss:.4f}",
        )


def _ablation_rows(evaluation: Evaluation) -> Iterator[Row]:
    if evaluation.ablation is None:
        return
    rows = {"equal bytes": evaluation.ablation.equal_bytes, "equal tokens": evaluation.ablation.equal_tokens}
    yield "tokenizer alone", "base's own -> new, each pretrained on the same documents in the same order"
    for context, measured in rows.items():
        gain = _interval(measured.improvement, measured.improvement_ci95)
        yield f"  {context}", f"{measured.base_tokenizer:.4f} -> {measured.new_tokenizer:.4f}; improvement {gain}"
    taken = [evaluation.ablation.training[name] for name in ("base_tokenizer", "new_tokenizer")]
    steps, tokens, flops = (
        " -> ".join(f"{getattr(training, name):{form}}" for training in taken)
        for name, form in (("steps", ","), ("tokens", ","), ("flops", ".2e"))
    )
    yield "  training", f"{steps} steps, {tokens} tokens, {flops} FLOPs"


def _champion_rows(evaluation: Evaluation, execution: Mapping[str, Any]) -> Iterator[Row]:
    champion = evaluation.champion
    if not champion.present:
        yield "champion", "none was approved then"
        return
    uris = [step["values"].get("champion_uri", "") for step in execution.get("steps", {}).values()]
    # .../<group>/<version>/model
    parts = next(filter(None, uris), "").rstrip("/").split("/")
    name = f"version {parts[-2]}" if len(parts) > 1 else "the version approved then"
    gain = _interval(champion.improvement, champion.improvement_ci95)
    yield "champion", f"{name}, {champion.bits_per_byte:.4f}; improvement {gain}"


def _fertility_rows(version: ReportedVersion) -> Iterator[Row]:
    reports = [_parsed(FertilityReport, content) for content in version.evidence_named("fertility.json")]
    for report in filter(None, reports):
        yield "fertility", report.headline()
    told = [version.metadata.get(f"tokens_per_word.{name}", "") for name in ("base", "chosen")]
    # Beside the report they would say the same twice.
    if not reports and all(map(_is_number, told)):
        base, chosen = map(float, told)
        yield "fertility", f"{base:.2f} -> {chosen:.2f} tokens a word ({version.metadata.get('tokenizer', 'unknown')})"


def _behaviour_rows(evaluation: Evaluation) -> Iterator[Row]:
    for task, found in (evaluation.accuracy or {}).items():
        shares = " -> ".join(f"{model.plain.share:.0%}" for model in (found.base, found.pretrained, found.candidate))
        yield "accuracy", f"{task}: {shares} ({found.items} questions, chance {found.chance:.0%})"
    test, words = evaluation.contamination.test, evaluation.contamination.ngram_words
    seen = f"{test.contaminated} of {test.texts} test documents share {words} words in a row with the training text"
    yield "contamination", seen + (f"; {test.too_short} are too short to tell" if test.too_short else "")
    if evaluation.samples:
        models: tuple[Any, ...] = ("base", "pretrained", "candidate")
        means = [
            sum(sample.figures[name].repeated_trigrams for sample in evaluation.samples) / len(evaluation.samples)
            for name in models
        ]
        yield "repetition", f"{' -> '.join(f'{mean:.0%}' for mean in means)} of runs of 3 words stood there before"


def _sample_rows(evaluation: Evaluation) -> Iterator[Row]:
    """The first sample side by side, shortened; the others are in samples of evaluation.json."""
    for sample in evaluation.samples[:1]:
        yield "prompt", _shortened(sample.prompt)
        for name, text in (("base", sample.base), ("pretrained", sample.pretrained), ("candidate", sample.candidate)):
            yield f"  {name}", _shortened(text)


def _shortened(text: str) -> str:
    """On one line, and nothing in it that a terminal would act on."""
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    return line if len(line) <= SAMPLE_CHARACTERS else f"{line[: SAMPLE_CHARACTERS - 3]}..."


def _gate_rows(execution: Mapping[str, Any]) -> Iterator[Row]:
    for gate in execution.get("gates", {}).values():
        conditions = map(ConditionResult.from_json, gate["conditions"])
        yield "gate", f"{'open' if gate['open'] else 'closed'}: {'; '.join(map(condition_text, conditions))}"


def _corpus_rows(version: ReportedVersion) -> Iterator[Row]:
    for content in version.evidence_named("manifest.json"):
        sealed = _parsed(Manifest, content)
        if sealed is not None and sealed.step == "prepare_corpus":
            kept = {name: sealed.metrics.get(name, 0) for name in ("documents", "words", "dropped")}
            yield "corpus", f"{kept['documents']:,} documents, {kept['words']:,} words; {kept['dropped']:,} dropped"


def _warning_rows(execution: Mapping[str, Any]) -> Iterator[Row]:
    warnings = execution.get("warnings", [])
    for label, warning in zip(["warnings"] + [""] * len(warnings), warnings[:SHOWN_WARNINGS], strict=False):
        yield label, _shortened(f"{warning['step']}: {warning['name']}: {warning.get('message', '')}")
    if len(warnings) > SHOWN_WARNINGS:
        yield "", f"and {len(warnings) - SHOWN_WARNINGS} more, in execution.json"


def _provenance_rows(version: ReportedVersion, execution: Mapping[str, Any]) -> Iterator[Row]:
    run = f"execution {version.metadata['execution_id']}" if "execution_id" in version.metadata else ""
    if execution:
        run = f"execution {execution['execution_id']} of {execution['pipeline']}"
    yield "made", "; ".join(filter(None, [seconds_as_date(version.created_at), run]))
    # Without a champion the base model stands in, with its digest.
    left_out = ["text_sha256", *(["champion_digest"] if version.metadata.get("champion.present") == "false" else [])]
    known = ({"model": version.model_digest} if version.model_digest else {}) | {
        name.removesuffix("_digest").removesuffix("_sha256"): value
        for name, value in version.metadata.items()
        if name.endswith(("_digest", "_sha256")) and name not in left_out
    }
    yield "digests", ", ".join(f"{name} {value[:SHORT_DIGEST]}" for name, value in known.items())
    yield "files", version.kept_at
    inference = version.request.get("InferenceSpecification") or {}
    if "serving_engine" in version.metadata and (types := inference.get("SupportedRealtimeInferenceInstanceTypes")):
        yield "serving", f"{version.metadata['serving_engine']} on {' or '.join(types)}; docs/serving.md"


def _history_rows(version: ReportedVersion) -> Iterator[Row]:
    left_out = len(version.approvals) - SHOWN_APPROVALS
    label = "history"
    if left_out > 0:
        yield label, f"{left_out} earlier entries, in approvals/"
        label = ""
    for approval in version.approvals[-SHOWN_APPROVALS:]:
        yield label, approval_text(approval)
        label = ""


def _is_number(text: str) -> bool:
    """Whether a text is a decimal number, as metadata hold figures."""
    return re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) is not None


def approval_text(approval: Approval) -> str:
    """When, what, who and why."""
    by = f" by {approval.by}" if approval.by else ""
    comment = f": {approval.comment}" if approval.comment else ""
    return f"{seconds_as_date(approval.at)}  {approval.status}{by}{comment}"


def seconds_as_date(seconds: float) -> str:
    """ISO 8601 in UTC, to the second; the number itself where the clock that gave it was beyond every calendar."""
    if not 0 <= seconds < LATEST_SECONDS:
        return f"{seconds:.0f} s since 1970"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
