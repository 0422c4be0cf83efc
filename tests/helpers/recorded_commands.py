"""What each command of the command line asks of IAM, recorded while it runs against accounts on loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from account_stand_in import REGION as MOTO_REGION
from account_stand_in import Answer, Seen, account_stand_in
from environments import ACCOUNT, FULL
from policy_simulation import REGION, Request, Rights
from recorded_actions import recorded_calls, requests_of
from sagemaker_stub import sagemaker_stub
from stub_executions import add_execution, ending

from pipeline.__main__ import command_code

NAME = FULL["name"]
EXECUTION_ID = "abcdefabcdef"
STUBBED = {
    "start": ["start", "--name", "nightly"],
    "executions": ["executions"],
    "status": ["status", EXECUTION_ID, "--json"],
    "logs": ["logs", "Train", "--execution", EXECUTION_ID],
    "stop": ["stop", EXECUTION_ID],
}


def commands_of_people(rights: Rights, folder: Path) -> dict[str, list[Request]]:
    """Requests by command, in the names of the environment whose rights these are. folder: an empty one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        return of_stub(patch, rights) | of_moto(patch, rights, folder)


def of_stub(patch: pytest.MonkeyPatch, rights: Rights) -> dict[str, list[Request]]:
    """Commands about executions. The stub's pipeline is named langadapt, its jobs job-STEP, its bucket own."""

    def here(text: str) -> str:
        text = re.sub(r"pipeline/langadapt(?=/|$)", f"pipeline/{NAME}", text).replace(MOTO_REGION, REGION)
        text = text.replace("-job/job-", f"-job/pipelines-{EXECUTION_ID}-")
        return text.replace("arn:aws:s3:::own/", rights.objects("langadapt/runs/abc/"))

    found = {}
    with sagemaker_stub() as stub:
        for name, value in {**stub.environment, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        execution = add_execution(stub, ending(stub, candidate=1.25)[-1:])
        stub.streams["/aws/sagemaker/TrainingJobs", "job-Train/algo-1-1700000000"] = ["a line"]
        for command, words in STUBBED.items():
            if command == "stop":
                execution.frames = ending(stub)[:1]
            found[command] = recorded(words, here)
        execution.frames, execution.after_retry = ending(stub, train="Failed")[-1:], ending(stub)
        found["retry"] = recorded(["retry", EXECUTION_ID], here)
    return found


def of_moto(patch: pytest.MonkeyPatch, rights: Rights, folder: Path) -> dict[str, list[Request]]:
    """Commands about what lies in the account."""
    bucket, repository = rights.bucket.rpartition(":")[2], rights.template.only("AWS::ECR::Repository", "")
    images = f"{ACCOUNT}.dkr.ecr.{MOTO_REGION}.amazonaws.com/{repository}"
    resolve_inputs = rights.template.arn(rights.template.only("AWS::Lambda::Function", "ResolveInputs"))
    own = {
        "aws.bucket": bucket, "aws.pipeline_name": NAME, "aws.model_package_group": NAME,
        "aws.role_arn": rights.role_arn("JobsRole"), "aws.pipeline_role_arn": rights.role_arn("DriverRole"),
        "aws.scheduler_role_arn": rights.role_arn("ScheduleRole"),
        "aws.resolve_inputs_function_arn": resolve_inputs.replace(REGION, MOTO_REGION),
        "aws.image_uri": f"{images}@sha256:{'1' * 64}",
        "serving.image_uri": f"{images}@sha256:{'2' * 64}",
    }  # fmt: skip
    settings = [word for name, value in own.items() for word in ("--set", f"{name}={value}")]
    (folder / "corpus.txt").write_text("Bu bir sənəddir.\n", encoding="utf-8")
    run = {
        "push": ["push", "corpus", str(folder / "corpus.txt")],
        "upsert": ["upsert"],
        "upsert of a change": ["upsert", "--set", "aws.tags={team: language}", "--set", "compute.cache_days=20"],
        "preflight": ["preflight"],
        "schedule set": ["schedule", "set", "rate(7 days)"],
        "schedule list": ["schedule", "list"],
        "schedule remove": ["schedule", "remove"],
        "models list": ["models", "list", "--remote"],
        "models show": ["models", "show", "1", "--remote"],
        "models approve": ["models", "approve", "1", "--remote"],
        "models reject": ["models", "reject", "1", "--comment", "a try", "--remote"],
    }
    with account_stand_in() as server:
        server.in_the_way = quotas
        for name, value in {**server.environment, "AWS_MAX_ATTEMPTS": "1"}.items():
            patch.setenv(name, value)
        s3 = boto3.client("s3", region_name=MOTO_REGION)
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": MOTO_REGION})
        register_version(bucket)
        return {command: recorded([*words, *settings], lambda text: text.replace(MOTO_REGION, REGION))
                for command, words in run.items()}  # fmt: skip


def quotas(request: Seen) -> Answer | None:
    """Of the account's quotas moto has none."""
    is_about = "ListServiceQuotas" in request.headers.get("x-amz-target", "")
    return (200, json.dumps({"Quotas": []}).encode()) if is_about else None


def register_version(bucket: str) -> None:
    sagemaker, s3 = (boto3.client(service, region_name=MOTO_REGION) for service in ("sagemaker", "s3"))
    s3.put_object(Bucket=bucket, Key="langadapt/models/1/model.safetensors", Body=b"weights")
    sagemaker.create_model_package_group(ModelPackageGroupName=NAME)
    source = {"S3Uri": f"s3://{bucket}/langadapt/models/1/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    statistics = {
        "ContentType": "application/json",
        "S3Uri": f"s3://{bucket}/langadapt/runs/1/Evaluate/statistics.json",
    }
    sagemaker.create_model_package(
        ModelPackageGroupName=NAME, ModelApprovalStatus="PendingManualApproval",
        ModelMetrics={"ModelQuality": {"Statistics": statistics}},
        InferenceSpecification={"Containers": [{"Image": "serving", "ModelDataSource": {"S3DataSource": source}}],
                                "SupportedContentTypes": ["a/b"], "SupportedResponseMIMETypes": ["a/b"]},
    )  # fmt: skip


def recorded(words: list[str], here: Callable[[str], str]) -> list[Request]:
    """What a command asks, in the names of this environment. What it says and how it ends does not matter here."""
    with recorded_calls() as calls:
        command_code(words, as_json=False)
    assert calls, words
    return [Request(request.action, here(request.resource), request.context)
            for call in calls for request in requests_of(*call)]  # fmt: skip
