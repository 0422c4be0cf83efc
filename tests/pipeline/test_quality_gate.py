"""The compiled gate: what closes it, what stops the run, and that a second reading of its JSON agrees with ours."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from small_jobs import WORKER, processing, training

from pipeline.execution_record import RunResult, StepRecord
from pipeline.local.execution import Execution
from pipeline.local.executor import run_definition
from pipeline.local.jobs import LocalImage
from pipeline.local.step_runners import run_condition
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Quiet
from pipeline.references import Scope
from pipeline.registry import LocalRegistry
from pipeline.service_shapes import shape_problems
from pipeline.step_graph import build_graph
from steps.contract import StepError

RETENTION = ("data.source_corpus=text", "thresholds.max_retention_loss=0.5")
LIMITS = {"MaxBitsPerByte": 3.0, "MinImprovement": 0.2, "MaxRetentionLoss": 0.5}
RANDOM_FILES = 100
GOOD = {
    "bits_per_byte": {"base": 2.5, "pretrained": 1.6, "candidate": 1.5, "improvement": 1.0,
                      "improvement_ci95": [0.9, 1.1]},
    "champion": {"present": True, "bits_per_byte": 1.7, "improvement": 0.2, "improvement_ci95": [0.1, 0.3]},
    "retention": {"base": 1.0, "candidate": 1.1, "loss": 0.1},
    "documents": 8, "text_sha256": "0" * 64,
}  # fmt: skip
JUDGED = [
    ("bits_per_byte", "candidate"), ("bits_per_byte", "improvement"), ("bits_per_byte", "improvement_ci95", 0),
    ("retention", "loss"), ("champion", "improvement_ci95", 0),
]  # fmt: skip


@pytest.fixture(scope="module")
def compiled(compiled_text) -> dict[str, Any]:
    return json.loads(compiled_text("laptop", *RETENTION))


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A good evaluation with one value changed."""
    changed = json.loads(json.dumps(GOOD))
    place = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


# --- a second reading -------------------------------------------------------------------------------------------------


class UndecidedError(Exception):
    """The service could not evaluate the condition, so that the execution fails."""


def second_reading(conditions: list[dict[str, Any]], file: str, champion_present: str) -> bool:
    """The outcome of a condition step, from the service's documentation alone: all conditions must hold; JsonGet reads
    a property file by a path of names and places; values are compared as they are."""

    def not_json(text: str) -> None:
        raise UndecidedError(text)

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise UndecidedError("duplicate")
        return dict(pairs)

    def value(side: Any) -> Any:
        if not isinstance(side, dict):
            return side
        if "Get" in side:
            parameters = {f"Parameters.{name}": limit for name, limit in LIMITS.items()}
            return {**parameters, "Steps.ResolveInputs.OutputParameters['champion_present']": champion_present}[
                side["Get"]
            ]
        content = json.loads(file, parse_constant=not_json, object_pairs_hook=no_duplicates)
        for part in side["Std:JsonGet"]["Path"].replace("[", ".").replace("]", "").split("."):
            try:
                content = content[int(part)] if part.isdigit() else content[part]
            except (KeyError, IndexError, TypeError) as error:
                raise UndecidedError(part) from error
        return content

    def number(item: Any) -> float:
        if type(item) not in (int, float) or math.isinf(item):
            raise UndecidedError(item)
        return item

    def holds(condition: dict[str, Any]) -> bool:
        kind = condition["Type"]
        if kind == "Or":
            parts = [holds(part) for part in condition["Conditions"]]
            return any(parts)
        left, right = value(condition["LeftValue"]), value(condition["RightValue"])
        if kind == "Equals":
            return left == right
        difference = number(left) - number(right)
        return {"GreaterThan": difference > 0, "GreaterThanOrEqualTo": difference >= 0,
                "LessThanOrEqualTo": difference <= 0}[kind]  # fmt: skip

    results = [holds(condition) for condition in conditions]
    return all(results)


def executed(compiled: dict[str, Any], scope: Scope, folder: Path) -> bool:
    """The outcome of the gate as the local executor runs it."""
    execution = Execution(
        RunResult(folder, "id", "pipeline", {}, {}), scope, scope, UriFolders(folder, {}), {}, None, {},
        LocalRegistry(folder), {}, Quiet(), False,
    )  # fmt: skip
    run_condition(build_graph(compiled)["QualityGate"], StepRecord("QualityGate", "Condition"), execution)
    return execution.result.gates["QualityGate"].open


def random_file(chance: random.Random) -> str:
    """An evaluation near the limits, on them, or spoilt in one place."""
    near = {
        JUDGED[0]: lambda: chance.choice([3.0, 3, math.nextafter(3.0, 4), chance.uniform(1, 3.4)]),
        JUDGED[1]: lambda: chance.choice([0.2, math.nextafter(0.2, 0), chance.uniform(0.1, 2)]),
        JUDGED[2]: lambda: chance.choice([0.0, -0.0, 5e-324, 1e-9, chance.uniform(-0.1, 1)]),
        JUDGED[3]: lambda: chance.choice([0.5, math.nextafter(0.5, 1), -1, chance.uniform(-0.5, 0.6)]),
        JUDGED[4]: lambda: chance.choice([0, 0.0, 1e-12, chance.uniform(-0.1, 1)]),
    }
    content = json.loads(json.dumps(GOOD))
    for path, draw in near.items():
        if chance.random() < 0.5:
            place = content
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = draw()
    text = json.dumps(content)
    if chance.random() < 0.3:
        section, name, *_ = chance.choice(JUDGED)
        spoilt = [math.nan, math.inf, "1.0", None, True, [], {}]
        del content[section][name]
        if (value := chance.choice([*spoilt, "missing"])) != "missing":
            content[section][name] = value
        text = json.dumps(content)
        if chance.random() < 0.2:
            text = text.replace('"documents"', '"retention": {"loss": 0}, "documents"')
    return text


def test_a_second_reading_of_the_compiled_gate_agrees_on_random_files(compiled, tmp_path):
    chance = random.Random(4)
    conditions = compiled["Steps"][-1]["Arguments"]["Conditions"]
    outcomes = {True: 0, False: 0, None: 0}
    for number in range(RANDOM_FILES):
        text, present = random_file(chance), chance.choice(["true", "false"])
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        scope = Scope(LIMITS, {}, {"ResolveInputs": {"OutputParameters": {"champion_present": present}}},
                      {("Evaluate", "Evaluation"): path})  # fmt: skip
        expected: bool | None
        try:
            expected = second_reading(conditions, text, present)
        except UndecidedError:
            expected = None
        found: bool | None
        try:
            found = executed(compiled, scope, tmp_path)
        except StepError:
            found = None
        assert found == expected, text
        outcomes[found] += 1
    print(f"{RANDOM_FILES} files: {outcomes[True]} open, {outcomes[False]} closed, {outcomes[None]} stop the run")
    assert min(outcomes.values()) >= 15


# --- whole runs -------------------------------------------------------------------------------------------------------


def run(compiled: dict[str, Any], folder: Path, evaluation: str, champion_present: str = "true") -> RunResult:
    """The compiled gate with what stands behind it, after jobs that leave what they are told."""

    def leaving(name: str, file: str, content: str, property_file: str) -> dict[str, Any]:
        code = f"output.mkdir(parents=True, exist_ok=True); (output / {file!r}).write_text({content!r})"
        declared = {"PropertyFileName": property_file, "OutputName": "output", "FilePath": file}
        step = processing(name, code, PropertyFiles=[declared])
        step["Arguments"]["ProcessingOutputConfig"]["Outputs"][0]["OutputName"] = "output"
        return step

    fertility = json.dumps({"chosen": "bbpe", "tokens_per_word": {"base": 3.0, "chosen": 1.5}})
    evaluate_step = leaving("Evaluate", "evaluation.json", evaluation, "Evaluation")
    evaluate_step["Arguments"]["AppSpecification"]["ContainerArguments"][0] += (
        '; (output / \'statistics.json\').write_text(\'{"group": {"bits": {"value": 1.5}}}\')'
    )
    resolve, *_, gate = compiled["Steps"]
    fine_tune = training("FineTune", "output.mkdir(parents=True, exist_ok=True); (output / 'w').write_text('weights')")
    steps = [resolve, leaving("TrainTokenizer", "fertility.json", fertility, "Fertility"), fine_tune, evaluate_step]
    (folder / "worker.py").write_text(WORKER)
    outputs = [entry["OutputName"] for entry in resolve["OutputParameters"]]
    resolved = {**dict.fromkeys(outputs, "d" * 64), "champion_uri": "s3://b/c", "champion_present": champion_present}
    return run_definition(
        {"Parameters": compiled["Parameters"], "Steps": [*steps, gate]},
        run_folder=folder / "run", registry=LocalRegistry(folder / "registry"), progress=Quiet(),
        default_image=LocalImage((sys.executable, "-S", str(folder / "worker.py")), "image"),
        functions={resolve["FunctionArn"]: lambda event, context: resolved},
        parameters={name: str(limit) for name, limit in LIMITS.items()},
    )  # fmt: skip


def test_an_open_gate_registers_a_package_that_the_service_would_take(compiled, tmp_path):
    result = run(compiled, tmp_path, json.dumps(GOOD))
    assert (result.exit_code, result.failure) == (0, "")
    version = LocalRegistry(tmp_path / "registry").show(1)
    assert version.status == "PendingManualApproval"
    assert shape_problems("RegisterModel", _on_s3(version.request), "") == []
    assert len(version.metadata) <= 50
    told = version.metadata
    assert (told["bits_per_byte.improvement_low"], told["bits_per_byte.improvement_high"]) == ("0.9", "1.1")
    assert (told["retention.loss"], told["tokens_per_word.chosen"]) == ("0.1", "1.5")
    assert told["execution_id"] == result.execution_id
    assert {"corpus_digest", "conversations_digest", "base_model_digest", "champion_digest", "source_corpus_digest",
            "settings_sha256", "recipe_sha256", "config_sha256", "image", "code.FineTune"} <= told.keys()  # fmt: skip
    # The statistics that the package names, and beside them what the run leaves.
    assert version.metrics == {"group": {"bits": {"value": 1.5}}}
    assert json.loads(next(version.evidence_named("evaluation.json"))) == GOOD
    kept = json.loads(next(version.evidence_named("execution.json")))
    assert kept["execution_id"] == result.execution_id
    assert kept["gates"]["QualityGate"]["open"] is True
    assert json.loads(next(version.evidence_named("definition.json")))["Steps"][-1] == compiled["Steps"][-1]


def _on_s3(value: Any) -> Any:
    """A request in which each file of this machine stands on S3."""
    return json.loads(json.dumps(value).replace("file:///", "s3://bucket/"))


@pytest.mark.parametrize(
    ("path", "value"),
    [(JUDGED[0], 3.0001), (JUDGED[1], 0.1999), (JUDGED[2], 0.0), (JUDGED[3], 0.5001), (JUDGED[4], 0.0)],
)
def test_each_condition_alone_closes_the_gate(path, value, compiled, tmp_path):
    result = run(compiled, tmp_path, json.dumps(with_value(path, value)))
    assert result.exit_code == 2
    failed = [leaf.name for leaf in result.gates["QualityGate"].conditions if not leaf.holds]
    assert len(failed) == 1
    assert "Quality gate closed." in result.failure
    assert LocalRegistry(tmp_path / "registry").list_versions() == []


def test_without_a_champion_its_condition_is_ignored(compiled, tmp_path):
    result = run(compiled, tmp_path, json.dumps(with_value(JUDGED[4], -1.0)), champion_present="false")
    assert result.exit_code == 0
    assert len(LocalRegistry(tmp_path / "registry").list_versions()) == 1


SPOILT = {
    "missing": json.dumps({name: value for name, value in GOOD.items() if name != "bits_per_byte"}),
    "NaN": json.dumps(with_value(JUDGED[1], math.nan)),
    "Infinity": json.dumps(with_value(JUDGED[1], math.inf)),
    "beyond float": json.dumps(with_value(JUDGED[1], 1)).replace('"improvement": 1,', '"improvement": 1e999,'),
    "NaN elsewhere": json.dumps({**GOOD, "more": math.nan}),
    "text": json.dumps(with_value(JUDGED[2], "0.9")),
    "null": json.dumps(with_value(JUDGED[3], None)),
    "true": json.dumps(with_value(JUDGED[1], True)),
    "empty list": json.dumps(with_value(("champion", "improvement_ci95"), [])),
    "twice": json.dumps(GOOD).replace('"documents"', '"retention": {"loss": 0.0}, "documents"'),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_what_is_no_finite_number_stops_the_run_and_registers_nothing(kind, compiled, tmp_path):
    result = run(compiled, tmp_path, SPOILT[kind])
    print(result.failure)
    assert result.exit_code == 1
    assert result.failure.startswith("QualityGate: ")
    assert "\n" not in result.failure
    assert LocalRegistry(tmp_path / "registry").list_versions() == []
