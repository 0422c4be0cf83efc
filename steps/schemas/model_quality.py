"""statistics.json: the figures of an evaluation in the form that SageMaker shows beside a model version.

The form is that of Model Monitor's model quality jobs: groups of metrics, each with `value` and `standard_deviation`,
which is the text "NaN" where there is none. evaluation.json, which the gate reads, has more in a form of its own.
"""

from __future__ import annotations

from typing import Any

from steps.schemas.evaluation import Evaluation

STATISTICS_FILE = "statistics.json"
GROUP = "language_model_metrics"
NO_DEVIATION = "NaN"


def model_quality(evaluation: Evaluation) -> dict[str, dict[str, dict[str, Any]]]:
    """The content of statistics.json: bits per byte, intervals, retention, contamination and accuracy."""
    bits, champion = evaluation.bits_per_byte, evaluation.champion
    values: dict[str, float] = {
        "bits_per_byte": bits.candidate,
        "bits_per_byte_base": bits.base,
        "bits_per_byte_pretrained": bits.pretrained,
        "bits_per_byte_equal_tokens": evaluation.equal_tokens.candidate,
        "improvement": bits.improvement,
        "improvement_low": bits.improvement_ci95[0],
        "improvement_high": bits.improvement_ci95[1],
        "contaminated_share": evaluation.contamination.test.share,
    }
    if champion.present:
        values["champion_improvement"] = champion.improvement
        values["champion_improvement_low"] = champion.improvement_ci95[0]
    if evaluation.extra_heldout is not None:
        values["bits_per_byte_extra_heldout"] = evaluation.extra_heldout.candidate
    if evaluation.retention is not None:
        values["retention_loss"] = evaluation.retention.loss
    if evaluation.ablation is not None:
        values["ablation_improvement"] = evaluation.ablation.equal_bytes.improvement
        values["ablation_improvement_low"] = evaluation.ablation.equal_bytes.improvement_ci95[0]
    for task, accuracy in (evaluation.accuracy or {}).items():
        values[f"accuracy_{task}"] = accuracy.candidate.plain.share
    return {GROUP: {name: {"value": value, "standard_deviation": NO_DEVIATION} for name, value in values.items()}}
