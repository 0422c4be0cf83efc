"""langadapt explain-cache of executions on SageMaker, against a stub of the service."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sagemaker_stub import EXPIRED, SageMakerStub, StubExecution
from stub_executions import row

FIRST, SECOND = "first0000000", "second000000"


def add(stub: SageMakerStub, name: str, definition: dict[str, Any], corpus: str = "1", **parameters: str) -> None:
    digests = [{"Name": f"{kind}_digest", "Value": digit * 64}
               for kind, digit in (("corpus", corpus), ("conversations", "2"), ("base_model", "3"))]  # fmt: skip
    resolved = row("ResolveInputs", Metadata={"Lambda": {"Arn": "arn", "OutputParameters": digests}})
    stub.executions.insert(0, StubExecution(name, definition, [("Succeeded", [resolved])], parameters=parameters))
    stub.deploy(definition)


def outcomes(output: str) -> dict[str, tuple[str, str]]:
    steps = json.loads(output)["steps"]
    return {step["step"]: (step["sagemaker"]["outcome"], step["local"]["outcome"]) for step in steps}


@pytest.fixture
def definition(compiled_text) -> dict[str, Any]:
    return json.loads(compiled_text("laptop"))


def test_what_another_corpus_and_another_threshold_make_run_again(
    stub: SageMakerStub, langadapt, definition: dict[str, Any]
) -> None:
    add(stub, FIRST, definition, CorpusUri="s3://own/a/")
    add(stub, SECOND, definition, CorpusUri="s3://own/a/", MaxBitsPerByte="0.5")
    code, output, _ = langadapt("explain-cache", FIRST, SECOND, "--json")
    assert code == 0
    assert json.loads(output)["old"] == FIRST
    told = outcomes(output)
    assert len(told) == 7
    assert set(told.values()) == {("hit", "hit")}
    # Other files under the same URI: what the function gave tells them apart.
    add(stub, "third0000000", definition, corpus="4", CorpusUri="s3://own/a/")
    output = langadapt("explain-cache", stub.executions[-1].arn, stub.executions[0].arn)[1]
    assert output.splitlines()[:2] == [
        "PrepareCorpus         SageMaker miss   here miss",
        f"  AppSpecification.ContainerArguments --corpus_digest: {'1' * 60}… -> {'4' * 60}…",
    ]
    assert "TrainTokenizer        SageMaker miss   here depends" in output


def test_an_execution_beside_a_configuration_and_a_definition(
    stub: SageMakerStub, langadapt, definition: dict[str, Any], tmp_path
) -> None:
    add(stub, FIRST, definition, CorpusUri="s3://own/a/")
    told = outcomes(langadapt("explain-cache", FIRST, "--json")[1])
    assert set(told.values()) == {("hit", "hit")}
    image = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/own@sha256:{'5' * 64}"
    changed = langadapt("explain-cache", FIRST, "--json", "--set", f"aws.image_uri={image}")[1]
    assert {service for service, _ in outcomes(changed).values()} == {"miss"}
    definition["Steps"][5]["Arguments"]["HyperParameters"]["phase_1_steps"] = "31"
    (tmp_path / "changed.json").write_text(json.dumps(definition))
    told = outcomes(langadapt("explain-cache", FIRST, str(tmp_path / "changed.json"), "--json")[1])
    # The definition's own corpus is another one.
    assert told["PrepareCorpus"][0] == told["ContinuedPretraining"][0] == "miss"


def test_executions_that_are_not_there(stub: SageMakerStub, langadapt, definition: dict[str, Any], tmp_path) -> None:
    add(stub, FIRST, definition)
    assert langadapt("explain-cache", FIRST, SECOND)[2] == (
        f"error: execution: {SECOND} is none of pipeline langadapt. See langadapt executions.\n"
    )
    gone = stub.executions[0].arn.replace(FIRST, SECOND)
    assert "DescribePipelineDefinitionForExecution" in langadapt("explain-cache", FIRST, gone)[2]
    stub.faults["ListPipelineExecutions"] = [EXPIRED]
    assert langadapt("explain-cache", FIRST)[2].startswith("error: AWS credentials: ExpiredTokenException")
    asked = len(stub.requests)
    assert "does not exist" in langadapt("explain-cache", str(tmp_path / "none.json"))[2]
    assert "limit NEW or --preset, --config and --set" in langadapt("explain-cache", "a", "b", "--preset", "laptop")[2]
    assert len(stub.requests) == asked
