"""`ablation: true`: what both branches share, and the second branch as compiled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.config import config_digest, load_config, preset_names, validate_config
from pipeline.references import referenced_steps, walk_references
from steps.contract import ConfigError

ABLATION = "ablation=true"
BRANCH = ("TokenizeCorpusBase", "ContinuedPretrainingBase")


@pytest.fixture(scope="module")
def steps(compiled_text: Callable[..., str]) -> Callable[..., dict[str, Any]]:
    """The steps of a definition by name, the gate's branches left out."""

    def load(*overrides: str) -> dict[str, Any]:
        return {step["Name"]: step for step in json.loads(compiled_text("laptop", *overrides))["Steps"]}

    return load


def settings_of(step: dict[str, Any]) -> dict[str, Any]:
    arguments = step["Arguments"]
    if "HyperParameters" in arguments:
        return arguments["HyperParameters"]
    pairs = [
        argument.split("=", 1) if isinstance(argument, str) else argument["Std:Join"]["Values"]
        for argument in arguments["AppSpecification"]["ContainerArguments"]
    ]
    return {name.removeprefix("--").removesuffix("="): value for name, value in pairs}


# --- the configuration ------------------------------------------------------------------------------------------------


def test_both_branches_read_the_documents_once_and_in_their_order() -> None:
    plain = load_config().continued_pretraining
    assert (plain.passes, plain.block_order) == (0, "shuffled")
    section = load_config(overrides=[ABLATION]).continued_pretraining
    assert (section.passes, section.block_order) == (1, "sequential")
    assert section == plain.model_copy(update={"passes": 1.0, "block_order": "sequential"})
    asked = load_config(overrides=[ABLATION, "continued_pretraining.passes=2.5"])
    assert asked.continued_pretraining.passes == 2.5
    assert asked.continued_pretraining.block_order == "sequential"


def test_a_configuration_written_out_whole_reads_back() -> None:
    config = load_config(overrides=[ABLATION])
    again = validate_config(config.model_dump(mode="json"))
    assert config_digest(again) == config_digest(config)


def test_a_shuffled_order_is_another_one_for_each_tokenizer() -> None:
    overrides = [ABLATION, "continued_pretraining.block_order=shuffled"]
    with pytest.raises(ConfigError) as refused:
        load_config(overrides=overrides)
    assert str(refused.value) == (
        "continued_pretraining.block_order: shuffled; limit sequential with ablation. "
        "Leave it out, or set ablation to false."
    )


# --- the definition ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_compiles_with_it_and_passes_the_lint(compiled_text: Callable[..., str], preset: str) -> None:
    definition = json.loads(compiled_text(preset, ABLATION))
    assert [name for step in definition["Steps"] if (name := step["Name"]) in BRANCH] == list(BRANCH)
    used = {reference["Get"] for reference in walk_references(definition["Steps"]) if "Get" in reference}
    assert {f"Parameters.{parameter['Name']}" for parameter in definition["Parameters"]} <= used
    outputs = {output["OutputName"] for output in definition["Steps"][0]["OutputParameters"]}
    assert set(re.findall(r"OutputParameters\['(\w+)'\]", json.dumps(definition))) == outputs


def test_the_branch_hangs_between_the_tokenizer_and_the_evaluation(steps: Callable[..., dict[str, Any]]) -> None:
    found = steps(ABLATION)
    edges = {name: referenced_steps(step["Arguments"]) - {"ResolveInputs"} for name, step in found.items()}
    assert edges["TokenizeCorpusBase"] == {"PrepareCorpus", "TrainTokenizer"}
    assert edges["ContinuedPretrainingBase"] == {"TokenizeCorpusBase"}
    assert edges["Evaluate"] == {"PrepareCorpus", "ContinuedPretraining", "ContinuedPretrainingBase", "FineTune"}
    assert edges["FineTune"] == {"ContinuedPretraining"}
    assert not {*BRANCH} & steps().keys()


def test_the_branches_differ_in_tokenizer_and_model_alone(steps: Callable[..., dict[str, Any]]) -> None:
    found = steps(ABLATION, "compute.tokenize_corpus.instance_count=3")
    main, base = (settings_of(found[name]) for name in ("TokenizeCorpus", "TokenizeCorpusBase"))
    assert {name for name in main if main[name] != base[name]} == {"use_base_tokenizer"}
    assert (main["use_base_tokenizer"], base["use_base_tokenizer"]) == ("false", "true")
    clusters = [found[name]["Arguments"]["ProcessingResources"] for name in ("TokenizeCorpus", "TokenizeCorpusBase")]
    assert clusters[0] == clusters[1]

    main, base = (settings_of(found[name]) for name in ("ContinuedPretraining", "ContinuedPretrainingBase"))
    assert {name for name in main if main[name] != base[name]} == {"base_model_digest"}
    assert (main["passes"], main["block_order"]) == ("1.0", "sequential")
    # New content under the base model's URI is a new cache key.
    assert base["base_model_digest"] == {"Get": "Steps.ResolveInputs.OutputParameters['base_model_digest']"}
    training = [found[name]["Arguments"] for name in ("ContinuedPretraining", "ContinuedPretrainingBase")]
    assert training[0]["ResourceConfig"] == training[1]["ResourceConfig"]
    inputs = [{channel["ChannelName"]: channel for channel in of_one["InputDataConfig"]} for of_one in training]
    assert [set(of_one) for of_one in inputs] == [{"model", "blocks", "code"}, {"base_model", "blocks", "code"}]
    assert inputs[0]["code"] == inputs[1]["code"]


def test_each_branch_has_checkpoints_of_its_own(steps: Callable[..., dict[str, Any]]) -> None:
    found = steps(ABLATION)
    uris = {
        name: found[name]["Arguments"]["CheckpointConfig"]["S3Uri"]["Std:Join"]["Values"]
        for name in ("ContinuedPretraining", "ContinuedPretrainingBase")
    }
    main, base = uris.values()
    # Place, settings and code are the same; what it is trained from is not.
    assert main[:3] == base[:3]
    assert main[3] != base[3]
    assert [entry["Get"].split("'")[1] for entry in base[4:]] == ["base_model_digest", "corpus_digest"]
    events = [
        found[name]["Arguments"]["TensorBoardOutputConfig"]["S3OutputPath"]["Std:Join"]["Values"] for name in uris
    ]
    assert [path[-2] for path in events] == list(uris)


def test_a_version_tells_what_the_tokenizer_brought(steps: Callable[..., dict[str, Any]]) -> None:
    def metadata(*overrides: str) -> dict[str, Any]:
        (register,) = steps(*overrides)["QualityGate"]["Arguments"]["IfSteps"]
        return register["Arguments"]["CustomerMetadataProperties"]

    new = metadata(ABLATION).keys() - metadata().keys()
    figures = {"ablation.improvement", "ablation.improvement_low", "ablation.improvement_high"}
    assert new == figures | {"code.TokenizeCorpusBase", "code.ContinuedPretrainingBase"}
    assert len(metadata(ABLATION)) <= 50


def test_without_it_no_job_has_other_settings_than_before(steps: Callable[..., dict[str, Any]]) -> None:
    settings = settings_of(steps()["ContinuedPretraining"])
    assert (settings["passes"], settings["block_order"], settings["base_model_digest"]) == ("0.0", "shuffled", "")
    assert settings_of(steps()["TokenizeCorpus"])["use_base_tokenizer"] == "false"
