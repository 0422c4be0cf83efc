"""langadapt models ... --remote against a Model Registry on loopback: the same answers as from the local one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn
from whole_evaluation import evaluation

from pipeline.__main__ import command_code
from pipeline.lint.samples import Samples
from pipeline.lint.steps import list_steps

METADATA = {
    "tokenizer": "bbpe-4096", "tokens_per_word.base": "3.22", "tokens_per_word.chosen": "1.59",
    "champion.present": "false", "corpus_digest": "c" * 64, "execution_id": "abcdef012345", "serving_engine": "djl-lmi",
}  # fmt: skip


@pytest.fixture
def registered(stand_in: AccountStandIn, bucket: str) -> Callable[..., str]:
    """Registers a version as the DAG does and returns its ARN; its model and evaluation.json lie in the bucket."""
    sagemaker, s3 = (boto3.client(service, region_name=REGION) for service in ("sagemaker", "s3"))
    sagemaker.create_model_package_group(ModelPackageGroupName=bucket, ModelPackageGroupDescription="of a test")

    def register(*, with_model: bool = True, with_evaluation: bool = True) -> str:
        if with_model:
            s3.put_object(Bucket=bucket, Key="models/1/FineTune/output/model/model.safetensors", Body=b"w" * 2_000)
        if with_evaluation:
            content = json.dumps(evaluation(1.5, champion=False)).encode()
            s3.put_object(Bucket=bucket, Key="runs/1/Evaluate/evaluation.json", Body=content)
        source = {"S3Uri": f"s3://{bucket}/models/1/FineTune/output/model/", "S3DataType": "S3Prefix",
                  "CompressionType": "None"}  # fmt: skip
        statistics = {"ContentType": "application/json", "S3Uri": f"s3://{bucket}/runs/1/Evaluate/statistics.json"}
        return sagemaker.create_model_package(
            ModelPackageGroupName=bucket,
            InferenceSpecification={
                "Containers": [{"Image": "serving", "ModelDataSource": {"S3DataSource": source}}],
                "SupportedContentTypes": ["application/json"], "SupportedResponseMIMETypes": ["application/json"],
                "SupportedRealtimeInferenceInstanceTypes": ["ml.g5.xlarge"],
            },
            ModelMetrics={"ModelQuality": {"Statistics": statistics}},
            CustomerMetadataProperties=METADATA, ModelApprovalStatus="PendingManualApproval",
        )["ModelPackageArn"]  # fmt: skip

    return register


@pytest.fixture
def models(bucket: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `langadapt models WORDS --remote`; its exit code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        command = ["models", *words, "--remote", "--set", f"aws.model_package_group={bucket}"]
        code = command_code(command, as_json="--json" in words)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_versions_are_listed_as_the_local_ones(models: Any, registered: Any, bucket: str) -> None:
    assert models("list") == (0, f"no model version is registered in group {bucket}\n", "")
    for _ in range(2):
        registered()
    code, out, err = models("list")
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert [row.split("  ")[:3] for row in rows] == [
        [bucket, f"version {number}", "PendingManualApproval"] for number in (1, 2)
    ]
    listed = json.loads(models("list", "--json")[1])
    assert listed[0]["metadata"] == METADATA
    assert listed[0]["model_folder"] == f"s3://{bucket}/models/1/FineTune/output/model/"


def test_a_version_is_shown_with_its_evidence(models: Any, registered: Any, bucket: str) -> None:
    registered()
    code, out, err = models("show", "1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{bucket} version 1: PendingManualApproval"
    assert lines[1].endswith("better than the base model by 1.0000 bits per byte")
    for part in (
        "fertility         3.22 -> 1.59 tokens a word (bbpe-4096)",
        "equal bytes     2.5000 -> 1.6000 -> 1.5000; improvement 1.0000 (95%: 0.9000 to 1.1000)",
        "execution abcdef012345",
        "corpus cccccccccccc",
        "(2.0 kB of model)",
        "serving           djl-lmi on ml.g5.xlarge; docs/serving.md",
        "PendingManualApproval",
    ):
        assert part in out, part
    shown = json.loads(models("show", "1", "--json")[1])
    assert shown["evidence"]["evaluation.json"]["bits_per_byte"]["candidate"] == 1.5
    assert (shown["model_bytes"], shown["damage"]) == (2_000, None)


def test_evidence_that_has_gone_leaves_the_metadata(models: Any, registered: Any) -> None:
    registered(with_evaluation=False)
    code, out, err = models("show", "1")
    assert code == 0
    assert err.startswith("warning: not looked at: s3 GetObject: ")
    assert ["tokens_per_word.chosen", "1.59"] in [line.split() for line in out.splitlines()]
    assert "bits per byte" not in out


def test_a_version_whose_model_has_gone_is_told_and_not_approved(models: Any, registered: Any, bucket: str) -> None:
    registered(with_model=False)
    code, out, err = models("show", "1")
    assert (code, out) == (1, f"{bucket} version 1: PendingManualApproval\n")
    assert err.startswith(f"error: damaged model: nothing lies at s3://{bucket}/models/1/")
    code, _, err = models("approve", "1")
    assert code == 1
    assert err.startswith("error: damaged model version: nothing lies at ")


def test_an_approval_is_written_once(models: Any, registered: Any, stand_in: AccountStandIn, bucket: str) -> None:
    arn = registered()
    assert models("approve", "1", "--comment", "read the\nsamples")[:2] == (0, f"{bucket} version 1: Approved\n")
    kept = boto3.client("sagemaker", region_name=REGION).describe_model_package(ModelPackageName=arn)
    assert (kept["ModelApprovalStatus"], kept["ApprovalDescription"]) == ("Approved", "read the samples")

    stand_in.seen.clear()
    code, out, err = models("approve", "1", "--comment", "again")
    assert (code, out) == (0, f"{bucket} version 1: Approved, as before\n")
    assert err == "note: the comment was not kept: the version was Approved before\n"
    assert not [request for request in stand_in.seen if "Update" in request.headers.get("x-amz-target", "")]
    _, out, _ = models("show", "1")
    assert "Approved by fake-user-profile-name: read the samples" in out


def test_what_the_pipeline_registers_is_listed_shown_and_approved(
    models: Any, compiled_text: Callable[..., str], bucket: str
) -> None:
    """The request of the compiled RegisterModel, with samples for what an execution fills in."""
    definition = json.loads(compiled_text("laptop"))
    steps = {step.name: step for step in list_steps(definition)}
    samples = Samples({entry["Name"]: entry["DefaultValue"] for entry in definition["Parameters"]}, steps)
    for step in steps.values():
        request = samples.resolve_step(step)
        if step.type == "RegisterModel":
            break
    source = request["InferenceSpecification"]["Containers"][0]["ModelDataSource"]["S3DataSource"]
    source["S3Uri"] = f"s3://{bucket}/models/sample/"
    s3, sagemaker = (boto3.client(name, region_name=REGION) for name in ("s3", "sagemaker"))
    s3.put_object(Bucket=bucket, Key="models/sample/model.safetensors", Body=b"weights")
    sagemaker.create_model_package_group(ModelPackageGroupName=bucket)
    sagemaker.create_model_package(**request | {"ModelPackageGroupName": bucket})
    (listed,) = json.loads(models("list", "--json")[1])
    assert (listed["version"], listed["status"]) == (1, "PendingManualApproval")
    shown = json.loads(models("show", "1", "--json")[1])
    assert shown["metadata"].keys() == request["CustomerMetadataProperties"].keys()
    assert (shown["model_bytes"], shown["damage"]) == (7, None)
    assert models("approve", "1")[:2] == (0, f"{bucket} version 1: Approved\n")


def test_a_dry_run_prints_the_request_and_decides_nothing(
    models: Any, registered: Any, stand_in: AccountStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    arn = registered()
    for decision, status in {"approve": "Approved", "reject": "Rejected"}.items():
        code, out, _ = models(decision, "1", "--comment", "so", "--dry-run", "--json")
        asked = {"ModelPackageArn": arn, "ModelApprovalStatus": status, "ApprovalDescription": "so"}
        sent = {"service": "sagemaker", "operation": "UpdateModelPackage", "request": asked}
        assert (code, json.loads(out)) == (0, {"changes": [], "requests": [sent]})
    assert not [request for request in stand_in.seen if "Update" in request.headers.get("x-amz-target", "")]
    assert command_code(["models", "approve", "1", "--dry-run"], as_json=False) == 1
    assert capsys.readouterr().err.startswith("error: --dry-run: True; limit with --remote alone.")


def test_a_rejection_needs_a_reason_and_an_approval_after_it_another(models: Any, registered: Any) -> None:
    registered()
    code, _, err = models("reject", "1", "--comment", " ")
    assert (code, err) == (1, "error: comment: empty. Say why the version is rejected.\n")
    assert models("reject", "1", "--comment", "repeats itself")[0] == 0
    code, _, err = models("approve", "1")
    assert code == 1
    assert err.startswith("error: comment: empty; limit a reason, as the version was rejected.")
    assert json.loads(models("approve", "1", "--comment", "a typing error", "--json")[1])["changed"] is True


def test_what_is_not_there_or_too_long_is_one_line(models: Any, registered: Any) -> None:
    registered()
    code, _, err = models("show", "7")
    assert (code, err) == (
        1, "error: version: 7; limit one of 1. List them with `langadapt models list --remote`.\n"
    )  # fmt: skip
    code, _, err = models("approve", "1", "--comment", "x" * 1_025)
    assert (code, err) == (1, "error: comment: 1025 characters; limit 1024 characters. Shorten it.\n")
    code, _, err = models("show", "1", "--check")
    assert err.startswith("error: --check: with --remote; limit a version of a local registry.")


def test_without_remote_no_configuration_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_code(["models", "list", "--preset", "laptop"], as_json=False) == 1
    assert capsys.readouterr().err == (
        "error: --preset: laptop; limit with --remote alone. Add --remote, or leave it out.\n"
    )
