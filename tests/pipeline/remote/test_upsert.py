"""langadapt upsert and schedule against moto's server, and what upsert makes of a definition."""

import json
import subprocess
import sys

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn
from small_jobs import ROOT
from workplace import PRESET

from pipeline.config import load_config
from pipeline.remote.account import Account
from pipeline.remote.code_upload import upload_code
from pipeline.remote.definition_changes import definition_changes
from pipeline.remote.placeholders import OWN_SETTINGS
from pipeline.remote.upsert import MAX_INLINE_BYTES, definition_arguments
from pipeline.remote.writes import Writes
from steps.contract import ConfigError, StepError

ACCOUNT = "123456789012"


def own_settings(bucket: str, pipeline: str = "own") -> list[str]:
    """An account's own names in the place of the placeholders."""
    image = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
    values = {
        "aws.bucket": bucket,
        "aws.role_arn": f"arn:aws:iam::{ACCOUNT}:role/steps",
        "aws.resolve_inputs_function_arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:resolve-inputs",
        "aws.image_uri": f"{image}/environment@sha256:{'1' * 64}",
        "serving.image_uri": f"{image}/serving@sha256:{'2' * 64}",
        "aws.scheduler_role_arn": f"arn:aws:iam::{ACCOUNT}:role/scheduler",
        "aws.pipeline_name": pipeline,
    }
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_a_pipeline_is_sent_once_started_listed_and_changed(stand_in: AccountStandIn, bucket: str, langadapt) -> None:
    """The command line as a process, but for what reads alone."""
    own = ["--config", str(PRESET), *own_settings(bucket)]
    sagemaker, s3 = boto3.client("sagemaker", region_name=REGION), boto3.client("s3", region_name=REGION)
    created = run_process("upsert", *own, "--set", "aws.tags={team: language}")
    assert created.returncode == 0, created.stderr
    assert created.stdout.splitlines()[0] == "pipeline own: created"
    assert created.stderr == ""
    archives = {entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    assert len(archives) == 7
    deployed = sagemaker.describe_pipeline(PipelineName="own")
    named = {f"langadapt/code/{part[:64]}.zip" for part in deployed["PipelineDefinition"].split("/code/")[1:]}
    assert named == archives
    assert ACCOUNT in deployed["RoleArn"]
    stand_in.seen.clear()
    again = run_process("upsert", *own, "--set", "aws.tags={team: language}")
    assert (again.returncode, again.stdout) == (0, "pipeline own: unchanged\n"), again.stderr
    assert [entry["PipelineName"] for entry in sagemaker.list_pipelines()["PipelineSummaries"]].count("own") == 1
    assert stand_in.sent("PUT") == []
    tags = sagemaker.list_tags(ResourceArn=deployed["PipelineArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "language"}]
    changed = [*own, "--set", "fine_tune.learning_rate=0.003", "--set", "aws.tags={team: speech}",
               "--set", "aws.max_parallel_steps=2"]  # fmt: skip
    told = json.loads(langadapt("upsert", *changed, "--dry-run", "--json")[1])
    assert "step FineTune: Arguments.HyperParameters.learning_rate 0.002 -> 0.003" in told["changes"]
    assert "ParallelismConfiguration: (none) -> {'MaxParallelExecutionSteps': 2}" in told["changes"]
    assert "tag team: language -> speech" in told["changes"]
    assert [entry["operation"] for entry in told["requests"]] == ["AddTags", "UpdatePipeline"]
    assert told["requests"][1]["request"]["ParallelismConfiguration"] == {"MaxParallelExecutionSteps": 2}
    assert sagemaker.describe_pipeline(PipelineName="own")["PipelineDefinition"] == deployed["PipelineDefinition"]
    started = run_process("start", *own, "--param", "MaxBitsPerByte=0.9", "--name", "first")
    assert started.returncode == 0, started.stderr
    (row,) = json.loads(langadapt("executions", *own, "--json")[1])
    assert (row["arn"], row["name"]) == (started.stdout.strip(), "first")
    described = sagemaker.list_pipeline_parameters_for_execution(PipelineExecutionArn=row["arn"])
    assert described["PipelineParameters"] == [{"Name": "MaxBitsPerByte", "Value": "0.9"}]


def test_a_schedule_is_set_listed_changed_and_removed(stand_in: AccountStandIn, langadapt) -> None:
    sagemaker, scheduler = (boto3.client(name, region_name=REGION) for name in ("sagemaker", "scheduler"))
    parameters = [{"Name": "MaxBitsPerByte", "Type": "Float", "DefaultValue": 1.0}]
    sagemaker.create_pipeline(
        PipelineName="nightly", RoleArn=f"arn:aws:iam::{ACCOUNT}:role/steps", ClientRequestToken="0" * 32,
        PipelineDefinition=json.dumps({"Version": "2020-12-01", "Parameters": parameters, "Steps": []}),
    )  # fmt: skip
    own = own_settings("own-bucket", "nightly")
    words = [
        "schedule",
        "set",
        "cron(0 3 ? * SUN *)",
        "--time-zone",
        "Asia/Baku",
        "--param",
        "MaxBitsPerByte=0.8",
        *own,
    ]
    assert "CreateSchedule" in langadapt(*words, "--dry-run")[1]
    assert langadapt(*words)[1] == "schedule nightly: created, cron(0 3 ? * SUN *) Asia/Baku\n"
    assert langadapt(*words)[1] == "schedule nightly: unchanged, cron(0 3 ? * SUN *) Asia/Baku\n"
    there = scheduler.get_schedule(Name="nightly")
    assert there["Target"]["Arn"] == sagemaker.describe_pipeline(PipelineName="nightly")["PipelineArn"]
    assert there["Target"]["RoleArn"].endswith("role/scheduler")
    assert langadapt("schedule", "list", *own)[1] == (
        "nightly  cron(0 3 ? * SUN *) Asia/Baku  ENABLED  MaxBitsPerByte=0.8\n"
    )
    assert "nightly: updated, rate(7 days) UTC" in langadapt("schedule", "set", "rate(7 days)", *own)[1]
    assert langadapt("schedule", "remove", *own)[1] == "schedule nightly: removed\n"
    assert langadapt("schedule", "remove", *own)[1] == "schedule nightly: there was none\n"
    assert langadapt("schedule", "list", *own)[1] == "pipeline nightly has no schedule\n"
    for wrong, line in {
        ("cron(0 3 * *)",): "error: schedule: cron(0 3 * *); limit cron(six fields)",
        (
            "rate(7 days)",
            "--time-zone",
            "Asia/Bakuu",
        ): "error: --time-zone: Asia/Bakuu; limit a time zone's name. Did you mean Asia/Baku?",
        ("rate(7 days)", "--param", "MaxBits=1"): "error: --param MaxBits: no such parameter.",
        ("rate(7 days)", "--set", "aws.scheduler_role_arn=null"): "error: aws.scheduler_role_arn: not set",
    }.items():
        code, _, errors = langadapt("schedule", "set", wrong[0], *own, *wrong[1:])
        assert code == 1
        assert errors.startswith(line)


def test_schedules_of_others_are_left_alone_and_those_of_a_pipeline_that_has_gone_are_listed(
    stand_in: AccountStandIn, langadapt
) -> None:
    sagemaker, scheduler = (boto3.client(name, region_name=REGION) for name in ("sagemaker", "scheduler"))
    definition = json.dumps({"Version": "2020-12-01", "Parameters": [], "Steps": []})
    role = f"arn:aws:iam::{ACCOUNT}:role/steps"
    for name in ("weekly", "payroll"):
        sagemaker.create_pipeline(
            PipelineName=name, RoleArn=role, ClientRequestToken="0" * 32, PipelineDefinition=definition
        )
    own, other = own_settings("own-bucket", "weekly"), own_settings("own-bucket", "payroll")
    assert langadapt("schedule", "set", "rate(7 days)", "--name", "payroll", *other)[0] == 0
    for command in (["set", "rate(1 day)"], ["remove"]):
        code, _, errors = langadapt("schedule", *command, "--name", "payroll", *own)
        assert code == 1
        assert errors.startswith("error: --name: payroll starts arn:aws:sagemaker:")
        assert errors.endswith("; limit a schedule of pipeline weekly. Take another name.\n")
    assert scheduler.get_schedule(Name="payroll")["ScheduleExpression"] == "rate(7 days)"
    for words in (["set", "rate(1 day)", "--name", ""], ["remove", "--name", "two words"]):
        assert "limit 1 to 64 letters, digits, _ . -." in langadapt("schedule", *words, *own)[2]
    sagemaker.delete_pipeline(PipelineName="payroll", ClientRequestToken="0" * 32)
    assert langadapt("schedule", "list", *other)[1] == "payroll  rate(7 days) UTC  ENABLED\n"
    assert langadapt("schedule", "remove", *other)[1] == "schedule payroll: removed\n"
    assert "aws.pipeline_name: payroll is none in us-west-2." in langadapt("schedule", "list", *other)[2]


def test_a_request_that_the_service_does_not_take_is_told_in_a_dry_run_too(stand_in: AccountStandIn) -> None:
    asked = {"ResourceArn": f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:pipeline/own", "Tags": [{"Key": "a?", "Value": "b"}]}
    for dry_run in (True, False):
        writes = Writes(Account(REGION), dry_run=dry_run)
        with pytest.raises(ConfigError, match=r"AddTags Tags\[0\]\.Key: a\?; limit pattern .*Correct the setting"):
            writes.send("sagemaker", "AddTags", **asked)
        assert writes.requests == stand_in.seen == []


@pytest.mark.parametrize("setting", OWN_SETTINGS)
def test_a_placeholder_is_refused_by_name_before_anything_is_sent(
    stand_in: AccountStandIn, langadapt, setting: str
) -> None:
    words = own_settings("own-bucket")
    at = next(place for place, word in enumerate(words) if word.startswith(f"{setting}="))
    code, _, errors = langadapt("upsert", *words[: at - 1], *words[at + 1 :])
    assert code == 1
    assert errors.startswith(f"error: {setting}: ")
    assert errors.endswith(f"is a placeholder; limit your account's own. Set {setting}.\n")
    assert stand_in.seen == []


def test_all_placeholders_are_named_at_once(langadapt) -> None:
    assert langadapt("upsert")[2].endswith(
        "Set aws.bucket, aws.role_arn, aws.resolve_inputs_function_arn, aws.image_uri and serving.image_uri.\n"
    )


def test_an_archive_of_another_content_is_not_overwritten(stand_in: AccountStandIn, bucket: str) -> None:
    config = load_config(overrides=own_settings(bucket)[1::2])
    account = Account(REGION)
    (uri,) = upload_code(config, ["prepare_corpus"], account, Writes(account))
    assert upload_code(config, ["prepare_corpus"], account, Writes(account)) == []
    key = uri.removeprefix(f"s3://{bucket}/")
    boto3.client("s3", region_name=REGION).put_object(Bucket=bucket, Key=key, Body=b"something else")
    with pytest.raises(StepError, match=r"another content than its name says\. Find out who wrote it"):
        upload_code(config, ["prepare_corpus"], account, Writes(account))


def test_a_definition_beyond_what_the_request_takes_goes_by_way_of_the_bucket(
    stand_in: AccountStandIn, bucket: str
) -> None:
    config = load_config(overrides=own_settings(bucket)[1::2])
    account = Account(REGION)
    small = definition_arguments(config, '{"Steps": []}', Writes(account))
    assert small == {"PipelineDefinition": '{"Steps":[]}'}
    text = json.dumps({"Steps": [], "Metadata": {"note": "ə" * (MAX_INLINE_BYTES // 2)}})
    place = definition_arguments(config, text, Writes(account))["PipelineDefinitionS3Location"]
    kept = boto3.client("s3", region_name=REGION).get_object(Bucket=place["Bucket"], Key=place["ObjectKey"])
    assert json.loads(kept["Body"].read()) == json.loads(text)


def test_changes_are_told_by_step_and_argument() -> None:
    def definition(**changed: object) -> dict:
        join = {"Std:Join": {"On": "/", "Values": ["s3://b", changed.get("part", "x")]}}
        steps = [
            {"Name": "A", "Type": "Training", "Arguments": {"HyperParameters": changed.get("a", {"rate": "1"})}},
            {"Name": "B", "Type": "Processing", "Arguments": {"ContainerArguments": ["--x=1", join]}},
            {"Name": "G", "Type": "Condition", "Arguments": {
                "Conditions": [], "IfSteps": [{"Name": "R", "Type": "Fail", "Arguments": {"ErrorMessage": "no"}}]}},
        ]  # fmt: skip
        default = {"Name": "Max", "Type": "Float", "DefaultValue": changed.get("default", 1.0)}
        return {"Parameters": [default], "Steps": steps[: changed.get("steps", 3)]}  # type: ignore[misc]

    assert definition_changes(definition(), definition()) == []
    assert definition_changes(definition(), definition(default=0.5)) == ["parameter Max: DefaultValue 1.0 -> 0.5"]
    assert definition_changes(definition(), definition(a={"rate": "2", "seed": "0"})) == [
        "step A: Arguments.HyperParameters.rate 1 -> 2", "step A: Arguments.HyperParameters.seed (none) -> 0"
    ]  # fmt: skip
    assert definition_changes(definition(), definition(part="y")) == [
        "step B: Arguments.ContainerArguments[1]['Std:Join'].Values[1] x -> y"
    ]
    assert definition_changes(definition(), definition(steps=2)) == ["step G: gone", "step R: gone"]
    assert definition_changes(definition(steps=2), definition()) == ["step G: new", "step R: new"]
