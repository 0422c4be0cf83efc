"""The preset of Llama 3.1 8B, run whole on a model of that family's shape that is tiny: configuration alone decides."""

from __future__ import annotations

import json

import pytest
import torch
from served_folder import load_as_a_server
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM
from workplace import JOB_STEPS, Workplace, fill_workplace, prove

from steps.contract import EXIT_DONE, read_seal
from steps.contract.model_folder import read_tensors
from steps.schemas.evaluation import Evaluation
from steps.schemas.training import PretrainingSummary

pytestmark = pytest.mark.verify

PRESET = "azerbaijani-8b-p5"
ROPE = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8_192,
}  # fmt: skip
# Llama 3.1 8B's proportions, a 64th as wide: four heads a key, 3.5 times the width inside, head and embedding apart.
SHAPE = {
    "hidden_size": 64, "intermediate_size": 224, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_parameters": ROPE,
}  # fmt: skip
# What a small machine and a small text ask for; all else is the preset's own.
OVERRIDES = {
    "prepare_corpus.train_shards": 2,
    "prepare_corpus.validation_share": 0.1,
    "prepare_corpus.test_share": 0.1,
    "train_tokenizer.vocabulary_sizes": [768],
    "train_tokenizer.extended_tokens": [192],
    "train_tokenizer.max_vocabulary_parameters_share": 0.95,
    "tokenize_corpus.block_tokens": 64,
    "adapt_vocabulary.measured_documents": 2,
    "adapt_vocabulary.context_bytes": 256,
    "continued_pretraining.phase_1_steps": 3,
    "continued_pretraining.phase_2_steps": 6,
    "continued_pretraining.phase_1_warmup_steps": 1,
    "continued_pretraining.phase_2_warmup_steps": 1,
    "continued_pretraining.global_batch_tokens": 512,
    "continued_pretraining.liger": "off",
    "continued_pretraining.max_validation_blocks": 4,
    "continued_pretraining.checkpoint_every_steps": 4,
    "fine_tune.max_tokens": 384,
    "fine_tune.epochs": 0.25,
    "evaluate_model.context_bytes": 256,
    "evaluate_model.context_tokens": 128,
    "evaluate_model.batch_tokens": 4096,
    "evaluate_model.max_documents": 4,
    "evaluate_model.sample_new_tokens": 8,
    "evaluate_model.bootstrap_resamples": 200,
    "thresholds.max_bits_per_byte": 20.0,
    "thresholds.min_improvement": -20.0,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Workplace:
    """A base of Llama 3.1's shape in bfloat16, and one finished run of the preset on two processes."""
    folder = tmp_path_factory.mktemp("large")

    def make(rows: int, **ids: int) -> LlamaForCausalLM:
        return make_tiny_llama(rows, tied=False, dtype="bfloat16", **SHAPE, **ids).bfloat16()

    workplace = fill_workplace(folder, make)
    data = {"corpus": "corpus.jsonl", "conversations": "conversations.jsonl", "base_model": "base"}
    values = [f"--set={name}={json.dumps(value)}" for name, value in OVERRIDES.items()]
    values += [f"--set=data.{name}={folder / path}" for name, path in data.items()]
    finished = workplace.langadapt("run", "--preset", PRESET, "--run-dir", str(workplace.run_folder), *values)
    print(finished.stdout)
    assert finished.returncode == EXIT_DONE, finished.stderr
    return workplace


def test_every_step_ran_and_the_gate_registered_the_model(place: Workplace) -> None:
    states = place.states()
    names = ("ResolveInputs", *JOB_STEPS, "QualityGate", "RegisterModel")
    done = sum(states[name] == "Succeeded" for name in names)
    prove(f"steps of {PRESET} done on a tiny model of its shape", done, str(len(names)), done == len(names))
    evaluation = Evaluation.model_validate_json((place.output("Evaluate") / "evaluation.json").read_bytes())
    (gate,) = place.execution()["gates"].values()
    assert gate["open"]
    assert gate["conditions"][0]["value"] == pytest.approx(evaluation.bits_per_byte.candidate)
    assert len(place.versions()) == 1


def test_both_instances_sharded_the_model_with_float32_masters(place: Workplace) -> None:
    found = PretrainingSummary.model_validate_json(
        (place.output("ContinuedPretraining") / "training.json").read_bytes()
    )
    assert (found.processes, found.parallelism, found.precision) == (2, "fsdp2", "bfloat16_mixed")
    settings = read_seal(place.output("ContinuedPretraining")).config
    assert (settings["device_batch_blocks"], settings["phase_2_learning_rate"]) == (4, 0.0003)


@pytest.mark.parametrize("step", ["AdaptVocabulary", "ContinuedPretraining", "FineTune"])
def test_the_family_keeps_its_shape_through_every_step(place: Workplace, step: str) -> None:
    folder = place.output(step)
    config = AutoConfig.from_pretrained(folder)
    assert not config.tie_word_embeddings
    assert {name: config.rope_parameters[name] for name in ROPE} == ROPE
    for name, value in SHAPE.items():
        assert name == "rope_parameters" or getattr(config, name) == value, name
    tensors = read_tensors(folder)
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    assert embedding.shape == head.shape == (config.vocab_size, 64)
    differing = sum(one != other for one, other in zip(*map(stored_bytes, (embedding, head)), strict=True))
    prove(f"{step}: bytes in which head and embedding differ, as they are two", differing, "above 0", differing > 0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16"}


def stored_bytes(tensor) -> bytes:
    return tensor.file.read_bytes()[tensor.start : tensor.end]


def test_the_registered_model_is_served_with_the_positions_it_was_trained_with(place: Workplace) -> None:
    (version,) = place.versions()
    folder = place.folder / version["model_folder"]
    (found,) = load_as_a_server(folder)
    assert (found["dtypes"], found["left_over"], found["rows"]) == (["torch.bfloat16"], [], found["tokens"])
    exported = place.langadapt("models", "export-bedrock", "1", "--pending", "--output", "bedrock", "--json")
    assert exported.returncode == EXIT_DONE, exported.stderr
    told = json.loads(exported.stdout)
    prove("what Bedrock serves otherwise than it was trained", told["warnings"], "nothing", told["warnings"] == [])
    assert told["context_tokens"] == SHAPE["max_position_embeddings"]
    ids = torch.arange(100)[None]
    with torch.inference_mode():
        logits = [AutoModelForCausalLM.from_pretrained(one)(ids).logits for one in (folder, place.folder / "bedrock")]
    difference = float((logits[0] - logits[1]).abs().max())
    prove("logits of the exported folder beside the registered one's", difference, "0", difference == 0)
