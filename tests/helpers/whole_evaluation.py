"""An evaluation.json with every section."""

from __future__ import annotations

from typing import Any

from steps.schemas.evaluation import Evaluation

PROMPT = "Bakı şəhərində qış mülayim keçir, amma Xəzərdən əsən xəzri küləyi havanı sərtləşdirir və hamı evdə oturur"


def evaluation(candidate: float, *, champion: bool) -> dict[str, Any]:
    """An evaluation with every section."""
    size = {"documents": 60, "bytes_scored": 123_456}
    bits = {"base": 2.5, "pretrained": candidate + 0.1, "candidate": candidate, "improvement": 2.5 - candidate,
            "improvement_ci95": (2.4 - candidate, 2.6 - candidate), **size}  # fmt: skip
    share = {"plain": {"right": 5, "share": 0.5, "ci95": (0.2, 0.8)},
             "by_byte": {"right": 5, "share": 0.5, "ci95": (0.2, 0.8)}}  # fmt: skip
    figures = {"characters": 10, "words": 3, "repeated_trigrams": 0.25, "distinct_bigrams": 1.0, "ended": True}
    models = ("base", "pretrained", "candidate")
    tokenizers = {
        "base_tokenizer": 1.8,
        "new_tokenizer": 1.5,
        "improvement": 0.3,
        "improvement_ci95": (0.2, 0.4),
        **size,
    }
    training = {"steps": 100, "tokens": 409_600, "flops": 2e12, "corpus_passes": 1.0, "corpus_bytes": 10,
                "parameters": 7, "validation_bits_per_byte": 2.0}  # fmt: skip
    found = Evaluation.model_validate({
        "bits_per_byte": bits, "equal_tokens": bits, "extra_heldout": bits,
        "champion": {"present": champion, "bits_per_byte": 1.7, "improvement": 1.7 - candidate,
                     "improvement_ci95": (1.6 - candidate, 1.8 - candidate)},
        "ablation": {"equal_bytes": tokenizers, "equal_tokens": tokenizers, "extra_heldout": tokenizers,
                     "training": {"base_tokenizer": {**training, "steps": 300}, "new_tokenizer": training}},
        "retention": {"base": 1.0, "candidate": 1.2, "loss": 0.2, **size},
        "accuracy": {"questions": {"kind": "choice", "items": 10, "chance": 0.25, **dict.fromkeys(models, share)}},
        "contamination": {"ngram_words": 13,
                          "test": {"texts": 58, "contaminated": 2, "share": 2 / 58, "too_short": 2}},
        "samples": [{"prompt": PROMPT, **dict.fromkeys(models, f"\x1b[31m{PROMPT} {PROMPT}"),
                     "figures": dict.fromkeys(models, figures)}] * 5,
        **size, "text_sha256": "0" * 64,
    })  # fmt: skip
    return found.model_dump(mode="json")
