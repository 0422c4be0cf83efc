"""Evaluate with a model that was pretrained with the base tokenizer: every figure of the comparison by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import StepFolders
from steps.evaluate_model import evaluate_model
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.bootstrap import paired_bootstrap
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.schemas.corpus import CorpusSummary
from steps.schemas.evaluation import Evaluation
from steps.schemas.model_quality import model_quality
from steps.text.corpus import SplitWriter, text_sha256

HELDOUT = [
    "Bakıda qış mülayim keçir, amma Xəzərdən əsən xəzri küləyi havanı sərtləşdirir.",
    "Müştəri xidməti həftənin yeddi günü işləyir; zəngə orta hesabla bir dəqiqəyə cavab verilir.",
    "İnternet paketiniz bitibsə, tətbiqdən yenisini seçin. Ödəniş balansdan çıxılacaq. " * 3,
]
CONFIG = EvaluateModelConfig(context_bytes=64, context_tokens=32, batch_tokens=512, samples=0, bootstrap_resamples=200)


def training(steps: tuple[int, int], flops: float) -> dict[str, Any]:
    """training.json of a pretraining of 256 tokens a step."""
    phases = {
        f"phase_{number}": {"steps": count, "learning_rate": 0.1, "tokens": count * 256, "first_loss": 2.0,
                            "last_loss": 1.0, "seconds": 1.0}
        for number, count in enumerate(steps, start=1)
    }  # fmt: skip
    return {
        "phases": phases, "corpus_passes": 1.01, "corpus_bytes": 5_000, "phase_1_end": None, "resumed_from_step": 0,
        "processes": 1, "parallelism": "none", "device": "cpu", "precision": "float32", "liger": False,
        "parameters": 77, "flops_per_token": {}, "flops": flops, "peak_flops_per_second": None,
        "tokens_per_second_per_device": 1.0, "peak_memory_bytes": 1, "validation_bits_per_byte": 2.5,
        "validation_history": [], "profile": None,
    }  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory, make_tiny_tokenizer, make_tiny_llama) -> dict[str, Path]:
    """Base and ablation with a tokenizer without merges, the others with one of 320 tokens; and the corpus."""
    root = tmp_path_factory.mktemp("inputs")
    coarse, fine = make_tiny_tokenizer(vocab_size=262), make_tiny_tokenizer()
    for seed, (name, tokenizer) in enumerate(
        {"base_model": coarse, "ablation": coarse, "pretrained": fine, "model": fine}.items()
    ):
        save_model(make_tiny_llama(len(tokenizer), seed=seed), tokenizer, root / name)
    (root / "pretrained" / "training.json").write_text(json.dumps(training((3, 7), 5e9)))
    (root / "ablation" / "training.json").write_text(json.dumps(training((9, 21), 1.6e10)))
    summaries = {}
    for split, documents in {"train": HELDOUT[:1], "test": HELDOUT, "extra_heldout": HELDOUT[1:]}.items():
        writer = SplitWriter(root / "corpus", split, 1)
        for document in sorted(documents, key=text_sha256):
            writer.add(text_sha256(document), document)
        summaries[split] = writer.close()
    (root / "corpus" / "corpus.json").write_text(CorpusSummary(splits=summaries, sources={}).model_dump_json())
    return {path.name: path for path in root.iterdir()}


def run(folders: dict[str, Path], output: Path) -> tuple[Evaluation, dict[str, Any]]:
    output.mkdir()
    metrics = evaluate_model(CONFIG, StepFolders(output=output, inputs=folders))
    return Evaluation.model_validate_json((output / "evaluation.json").read_bytes()), metrics


def test_the_comparison_is_of_the_two_pretrained_models_by_hand(folders, tmp_path):
    evaluation, metrics = run(folders, tmp_path / "out")
    ablation = evaluation.ablation
    contexts = {
        "equal_bytes": (HELDOUT, {"context_bytes": 64}),
        "equal_tokens": (HELDOUT, {"context_tokens": 32}),
        "extra_heldout": (HELDOUT[1:], {"context_bytes": 64}),
    }
    for measure, (texts, context) in contexts.items():
        texts = sorted(texts, key=text_sha256)
        scores = [
            score_documents(
                load_model(folders[name]), load_tokenizer(folders[name]), texts, batch_tokens=512, **context
            )
            for name in ("ablation", "pretrained")
        ]
        found = getattr(ablation, measure)
        assert found.base_tokenizer == pytest.approx(scores[0].bits_per_byte)
        assert found.new_tokenizer == pytest.approx(scores[1].bits_per_byte)
        assert found.improvement == pytest.approx(found.base_tokenizer - found.new_tokenizer)
        interval = paired_bootstrap(scores[0].bits, scores[1].bits, scores[0].bytes, 200, CONFIG.seed)
        assert found.improvement_ci95 == pytest.approx(interval)
        assert (found.documents, found.bytes_scored) == (len(texts), numpy.sum(scores[0].bytes))
    assert ablation.equal_bytes.new_tokenizer == evaluation.bits_per_byte.pretrained
    assert metrics["ablation_improvement"] == ablation.equal_bytes.improvement


def test_what_each_training_took_stands_beside_it(folders, tmp_path):
    evaluation, _ = run(folders, tmp_path / "out")
    base, new = (evaluation.ablation.training[name] for name in ("base_tokenizer", "new_tokenizer"))
    assert (base.steps, base.tokens, base.flops) == (30, 30 * 256, 1.6e10)
    assert (new.steps, new.tokens, new.flops) == (10, 10 * 256, 5e9)
    assert (new.corpus_passes, new.corpus_bytes, new.parameters, new.validation_bits_per_byte) == (1.01, 5_000, 77, 2.5)
    shown = model_quality(evaluation)["language_model_metrics"]
    assert shown["ablation_improvement"]["value"] == evaluation.ablation.equal_bytes.improvement


def test_without_such_a_model_nothing_is_said_of_it(folders, tmp_path):
    evaluation, metrics = run({name: path for name, path in folders.items() if name != "ablation"}, tmp_path / "out")
    assert evaluation.ablation is None
    assert not [name for name in metrics if name.startswith("ablation")]
