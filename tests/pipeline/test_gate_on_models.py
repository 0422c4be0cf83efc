"""Real tiny models through Evaluate and the compiled gate: what is better passes; what is not, or only by chance,
does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from pipeline.conditions import ConditionResult, evaluate
from pipeline.references import Scope
from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import StepFolders
from steps.evaluate_model import evaluate_model
from steps.modeling.loading import save_model
from steps.schemas.corpus import CorpusSummary
from steps.text.corpus import SplitWriter, text_sha256

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
CONFIG = EvaluateModelConfig(
    context_bytes=256, context_tokens=128, batch_tokens=4096, max_documents=12, samples=0, bootstrap_resamples=1000
)
LIMITS = {"MaxBitsPerByte": 8.0, "MinImprovement": 0.05}


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """Training text and twelve documents to measure on, in that order."""
    return [json.loads(line)["text"][:400] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory, documents, tiny_tokenizer, make_tiny_llama) -> Path:
    """Models by name: base, better (trained further), best (further still), shuffled (better's weights, permuted)."""
    folder = tmp_path_factory.mktemp("models")
    model = make_tiny_llama()
    ids = tiny_tokenizer("\n".join(documents[12:]), return_tensors="pt").input_ids[0]
    blocks = ids[: len(ids) // 64 * 64].view(-1, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    drawn = torch.Generator().manual_seed(0)
    for step, name in ((5, "base"), (30, "better"), (60, "best")):
        for _ in range(step):
            batch = blocks[torch.randint(len(blocks), (8,), generator=drawn)]
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        save_model(model, tiny_tokenizer, folder / name)
        if name == "better":
            weights = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        shuffled = make_tiny_llama()
        shuffled.load_state_dict(weights)
        for parameter in shuffled.parameters():
            order = torch.randperm(parameter.numel(), generator=drawn)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    save_model(shuffled, tiny_tokenizer, folder / "shuffled")
    splits = {}
    for split, texts in (("train", documents[12:]), ("test", documents[:12])):
        writer = SplitWriter(folder / "corpus", split, 1)
        for text in sorted(texts, key=text_sha256):
            writer.add(text_sha256(text), text)
        splits[split] = writer.close()
    summary = CorpusSummary(splits=splits, sources={})
    (folder / "corpus" / "corpus.json").write_text(summary.model_dump_json())
    return folder


@pytest.fixture
def judge(place, compiled_text, tmp_path):
    """Evaluates a candidate and gives the gate's conditions by name."""
    conditions = json.loads(compiled_text())["Steps"][-1]["Arguments"]["Conditions"]

    def judged(candidate: str, champion: str | None = None) -> dict[str, ConditionResult]:
        inputs = {"base_model": "base", "pretrained": "base", "model": candidate, "champion": champion or "base"}
        folders = {name: place / model for name, model in inputs.items()} | {"corpus": place / "corpus"}
        config = CONFIG.model_copy(update={"champion_present": champion is not None})
        evaluate_model(config, StepFolders(tmp_path, folders))
        present = "false" if champion is None else "true"
        scope = Scope(LIMITS, {}, {"ResolveInputs": {"OutputParameters": {"champion_present": present}}},
                      {("Evaluate", "Evaluation"): tmp_path / "evaluation.json"})  # fmt: skip
        results = [evaluate(condition, scope) for condition in conditions]
        return {result.name or "champion": result for result in results}

    return judged


def failed(conditions: dict[str, ConditionResult]) -> list[str]:
    for result in conditions.values():
        print(result)
    return [name for name, result in conditions.items() if not result.holds]


def test_a_better_model_passes(judge):
    assert failed(judge("better")) == []


def test_an_equal_model_is_refused_by_its_interval(judge):
    conditions = judge("base")
    assert conditions["bits_per_byte.improvement_ci95[0]"].value == 0
    assert failed(conditions) == ["bits_per_byte.improvement", "bits_per_byte.improvement_ci95[0]"]


def test_shuffled_weights_are_refused(judge):
    conditions = judge("shuffled")
    assert failed(conditions) == ["bits_per_byte.improvement", "bits_per_byte.improvement_ci95[0]"]
    assert conditions["bits_per_byte.improvement"].value < -0.5


def test_a_worse_model_than_the_champion_is_refused_by_that_alone(judge):
    assert failed(judge("better", champion="best")) == ["champion"]


def test_a_better_model_than_the_champion_passes(judge):
    assert failed(judge("best", champion="better")) == []


def test_the_champion_again_is_refused_by_that_alone(judge):
    assert failed(judge("better", champion="better")) == ["champion"]
