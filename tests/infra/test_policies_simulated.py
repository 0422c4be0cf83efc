"""Every call that people, functions, the pipeline and its jobs make is allowed to them, and many others are not.

The calls are recorded while commands and handlers run against accounts on loopback and inside the process, those of
jobs read from the definition in the template. IAM is moto's (tests/helpers/policy_simulation.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from account_stand_in import REGION as MOTO_REGION
from account_stand_in import Answer, Seen, account_stand_in
from answered_calls import answered_calls
from automated_account import (
    BUCKET,
    AutomatedAccount,
    execution_event,
    object_event,
    package_event,
)
from automated_account import NAME as OTHER_NAME
from environments import ACCOUNT, FULL, SERVING_IMAGE
from policy_simulation import REGION, Request, ResolvedTemplate, is_allowed
from recorded_actions import KEY, recorded_calls, requests_of
from sagemaker_stub import sagemaker_stub
from stub_executions import add_execution, ending

import pipeline.resolve_inputs
from infra.handlers import deploy_approved_model, measure_silence, notify, start_for_new_data, stop_over_budget
from pipeline.__main__ import command_code

NAME = FULL["name"]
SAGEMAKER = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
PIPELINE = f"{SAGEMAKER}:pipeline/{NAME}"
EXECUTION_ID = "abcdefabcdef"
EXECUTION = f"{PIPELINE}/execution/{EXECUTION_ID}"
JOBS = "processing-job/pipelines-abcdefabcdef-PrepareCorpus-x1", "training-job/pipelines-abcdefabcdef-FineTune-x1"


class Rights:
    """Who may do what in the full environment: roles by what their logical ids hold."""

    def __init__(self, template: dict[str, Any]) -> None:
        self.template = ResolvedTemplate(template)
        self.bucket = self.template.arn(self.template.only("AWS::S3::Bucket", "StorageBucket"))
        self.key = self.template.arn(self.template.only("AWS::KMS::Key", ""))
        self._statements: dict[str, list[dict[str, Any]]] = {}

    def role_arn(self, part: str) -> str:
        return self.template.arn(self.template.only("AWS::IAM::Role", part))

    def may(self, who: str, request: Request) -> bool:
        if who not in self._statements:
            if who == "Operators":
                found = self.template.managed_statements(self.template.only("AWS::IAM::ManagedPolicy", who))
            else:
                found = self.template.statements(self.template.only("AWS::IAM::Role", who))
            self._statements[who] = found
        resource = self.key if request.resource == KEY else request.resource
        return is_allowed(self._statements[who], Request(request.action, resource, request.context))

    def refused(self, who: str, requests: Iterable[Request]) -> list[str]:
        return sorted({str(request) for request in requests if not self.may(who, request)})

    def objects(self, key: str) -> str:
        return f"{self.bucket}/{key}"


@pytest.fixture(scope="module")
def rights(stack_templates: dict[str, Any]) -> Rights:
    return Rights(stack_templates[NAME])


# --- people at the command line

STUBBED = {
    "start": ["start", "--name", "nightly"],
    "executions": ["executions"],
    "status": ["status", EXECUTION_ID, "--json"],
    "logs": ["logs", "Train", "--execution", EXECUTION_ID],
    "stop": ["stop", EXECUTION_ID],
}
# What the stack owns: people change it there.
OF_THE_STACK = {
    "upsert": {"sagemaker:CreatePipeline", "sagemaker:AddTags", "iam:PassRole"},
    "schedule set": {"scheduler:CreateSchedule", "iam:PassRole"},
    "schedule remove": {"scheduler:DeleteSchedule"},
}


@pytest.fixture(scope="module")
def commands(rights: Rights, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Request]]:
    """What each command asks of IAM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        found = of_stub(patch, rights)
        return found | of_moto(patch, rights, tmp_path_factory.mktemp("commands"))


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
    bucket, images = rights.bucket.rpartition(":")[2], f"{ACCOUNT}.dkr.ecr.{MOTO_REGION}.amazonaws.com"
    resolve_inputs = rights.template.arn(rights.template.only("AWS::Lambda::Function", "ResolveInputs"))
    own = {
        "aws.bucket": bucket, "aws.pipeline_name": NAME, "aws.model_package_group": NAME,
        "aws.role_arn": rights.role_arn("JobsRole"), "aws.scheduler_role_arn": rights.role_arn("ScheduleRole"),
        "aws.resolve_inputs_function_arn": resolve_inputs.replace(REGION, MOTO_REGION),
        "aws.image_uri": f"{images}/{own_repository(rights)}@sha256:{'1' * 64}",
        "serving.image_uri": f"{images}/{own_repository(rights)}@sha256:{'2' * 64}",
    }  # fmt: skip
    settings = [word for name, value in own.items() for word in ("--set", f"{name}={value}")]
    (folder / "corpus.txt").write_text("Bu bir sənəddir.\n", encoding="utf-8")
    run = {
        "push": ["push", "corpus", str(folder / "corpus.txt")],
        "upsert": ["upsert"],
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


def test_people_may_all_that_the_command_line_asks(rights: Rights, commands: dict[str, list[Request]]) -> None:
    refused = {command: rights.refused("Operators", requests) for command, requests in commands.items()
               if command not in OF_THE_STACK}  # fmt: skip
    assert [line for lines in refused.values() for line in lines] == []
    assert {"start", "status", "logs", "stop", "retry", "push", "preflight", "models approve"} <= set(refused)
    assert len({request.action for requests in commands.values() for request in requests}) >= 25


def test_people_may_not_change_what_the_stack_owns(rights: Rights, commands: dict[str, list[Request]]) -> None:
    for command, expected in OF_THE_STACK.items():
        refused = {line.split()[0] for line in rights.refused("Operators", commands[command])}
        assert refused <= expected, command
        assert expected - {"sagemaker:AddTags"} <= refused, command


# --- functions


def of_handlers(rights: Rights) -> Iterator[tuple[str, Callable[[AutomatedAccount], None]]]:
    """Each function's role, and what makes it call all that it ever calls."""

    def decide(account: AutomatedAccount) -> None:
        for version in (1, 2):
            account.register(version)
            event = account.decide(version, "Approved")
            for _ in range(2):
                batch(deploy_approved_model, event)
                if account.endpoint and account.endpoint["EndpointStatus"] != "InService":
                    account.end_deployment()

    def tell(account: AutomatedAccount) -> None:
        notify.handler(execution_event(account.add_execution(1, "Failed")), None)
        account.register(3)
        notify.handler(package_event(3, "PendingManualApproval"), None)

    def start(account: AutomatedAccount) -> None:
        prefix = settings(rights, "start_for_new_data")["prefix"]
        account.objects[f"{prefix}a.txt"] = (b"text", account.clock)
        account.add_execution(1, "Failed")
        batch(start_for_new_data, object_event(f"{prefix}a.txt"))
        assert account.sent("StartPipelineExecution")

    def stop(account: AutomatedAccount) -> None:
        account.add_execution(1, "Executing")
        topic = settings(rights, "stop_over_budget")["budget_topic_arn"].replace(REGION, MOTO_REGION)
        stop_over_budget.handler({"Records": [{"Sns": {"TopicArn": topic, "Message": OTHER_NAME}}]}, None)

    def resolve(account: AutomatedAccount) -> None:
        account.register(1, "Approved", InferenceSpecification={"Containers": [{"Image": "serving", "ModelDataSource": {
            "S3DataSource": {"S3Uri": f"s3://{BUCKET}/langadapt/models/1/", "S3DataType": "S3Prefix",
                             "CompressionType": "None"}}}]})  # fmt: skip
        for key in ("langadapt/models/1/a", "langadapt/inputs/base_model/a"):
            account.objects[key] = (b"text", account.clock)
        pipeline.resolve_inputs.handler(
            {"base_model_uri": f"s3://{BUCKET}/langadapt/inputs/base_model/", "model_package_group": OTHER_NAME,
             "pipeline_name": OTHER_NAME, "execution_id": "abcdefabcdef"}, None
        )  # fmt: skip

    yield "ApprovalDeploy", decide
    yield "NotificationsNotify", tell
    yield "NewDataStart", start
    yield "BudgetStop", stop
    yield "MonitoringSilence", lambda account: measure_silence.handler({}, None)
    yield "ResolveInputs", resolve


def batch(module: Any, event: dict[str, Any]) -> None:
    module.handler({"Records": [{"messageId": "m-1", "body": json.dumps(event)}]}, None)


def settings(rights: Rights, handler: str) -> dict[str, Any]:
    (found,) = [made for made in rights.template.of_type("AWS::Lambda::Function").values()
                if made["Handler"].endswith(f"{handler}.handler")]  # fmt: skip
    return json.loads(found["Environment"]["Variables"]["SETTINGS"])


@pytest.mark.parametrize(
    ("who", "handler"),
    [("ApprovalDeploy", "deploy_approved_model"), ("NotificationsNotify", "notify"),
     ("NewDataStart", "start_for_new_data"), ("BudgetStop", "stop_over_budget"),
     ("MonitoringSilence", "measure_silence"), ("ResolveInputs", "")],
)  # fmt: skip
def test_functions_may_all_that_they_ask(
    rights: Rights, monkeypatch: pytest.MonkeyPatch, who: str, handler: str
) -> None:
    act = dict(of_handlers(rights))[who]
    account = AutomatedAccount()
    bucket = rights.bucket.rpartition(":")[2]

    def there(text: str) -> str:
        """What the template names as the tests' account calls it."""
        return text.replace(NAME, OTHER_NAME).replace(bucket, BUCKET).replace(REGION, MOTO_REGION)

    if handler:
        given = settings(rights, handler)
        topic = given.get("topic_arn", "")
        account.topic_arn = there(topic)
        monkeypatch.setenv("SETTINGS", there(json.dumps(given)))
    with answered_calls(account):
        act(account)

    def here(request: Request) -> Request:
        text = json.dumps([request.resource, dict(request.context)])
        text = text.replace(BUCKET, bucket).replace(OTHER_NAME, NAME).replace(MOTO_REGION, REGION)
        return Request(request.action, *json.loads(text))

    asked = [here(request) for call in account.calls
             for request in requests_of(call.service, call.operation, call.parameters)]  # fmt: skip
    assert len(asked) >= 2
    assert rights.refused(who, asked) == []


# --- the pipeline, its jobs, and what serves


@pytest.fixture(scope="module")
def definition(rights: Rights) -> dict[str, Any]:
    (made,) = rights.template.of_type("AWS::SageMaker::Pipeline").values()
    assert made["RoleArn"] == rights.role_arn("Driver")
    return json.loads(made["PipelineDefinition"]["PipelineDefinitionBody"])


def steps_of(definition: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in definition["Steps"]:
        yield step
        for branch in ("IfSteps", "ElseSteps"):
            yield from step.get("Arguments", {}).get(branch, [])


def flat(value: Any, definition: dict[str, Any]) -> str:
    """A text of the definition, with defaults of parameters, and x for what only an execution knows."""
    if isinstance(value, str):
        return value
    if "Std:Join" in value:
        return value["Std:Join"]["On"].join(flat(part, definition) for part in value["Std:Join"]["Values"])
    name = value.get("Get", "").removeprefix("Parameters.")
    defaults = {entry["Name"]: entry.get("DefaultValue") for entry in definition["Parameters"]}
    return str(defaults.get(name, "x"))


def places(value: Any, definition: dict[str, Any], is_written: bool = False) -> Iterator[tuple[str, bool]]:
    """S3 URIs of a step's arguments, and whether the step writes there."""
    if isinstance(value, dict):
        for key, item in value.items():
            written = is_written or key in ("ProcessingOutputConfig", "OutputDataConfig", "CheckpointConfig")
            if key in ("S3Uri", "S3OutputPath"):
                yield flat(item, definition), written
            else:
                yield from places(item, definition, written)
    elif isinstance(value, list):
        for item in value:
            yield from places(item, definition, is_written)


def in_container(image_arn: str, jobs: str) -> list[Request]:
    """What SageMaker does with the role of any container: the image, the log, the metrics."""
    stream = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/sagemaker/{jobs}:log-stream:name/algo-1"
    logs = [Request(f"logs:{action}", stream) for action in ("CreateLogStream", "DescribeLogStreams", "PutLogEvents")]
    images = [Request(f"ecr:{action}", image_arn)
              for action in ("BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer")]  # fmt: skip
    metrics = Request("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": f"/aws/sagemaker/{jobs}"})
    return [*logs, *images, metrics, Request("ecr:GetAuthorizationToken", "*")]


def test_jobs_may_read_and_write_what_the_definition_names(rights: Rights, definition: dict[str, Any]) -> None:
    asked = in_container(f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/{own_repository(rights)}", "TrainingJobs")
    for step in steps_of(definition):
        if step["Type"] not in ("Processing", "Training"):
            continue
        assert step["Arguments"]["RoleArn"] == rights.role_arn("JobsRole")
        for uri, is_written in places(step["Arguments"], definition):
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            if bucket == "x":  # another step's output, which that step's own arguments name
                continue
            resource = f"arn:aws:s3:::{bucket}/{key.rstrip('/')}/file"
            asked += [Request("s3:GetObject", resource), Request("kms:Decrypt", KEY)]
            asked.append(Request("s3:ListBucket", f"arn:aws:s3:::{bucket}"))
            if is_written:
                asked += [Request("s3:PutObject", resource), Request("kms:GenerateDataKey", KEY)]
    assert len({request.resource for request in asked if request.action == "s3:PutObject"}) >= 7
    assert rights.refused("JobsRole", asked) == []


def own_repository(rights: Rights) -> str:
    return rights.template.only("AWS::ECR::Repository", "")


def test_the_pipeline_may_do_all_its_steps(rights: Rights, definition: dict[str, Any]) -> None:
    passed = Request("iam:PassRole", rights.role_arn("JobsRole"), {"iam:PassedToService": "sagemaker.amazonaws.com"})
    asked = [passed]
    for step in steps_of(definition):
        match step["Type"]:
            case "Processing" | "Training" as kind:
                resource = f"{SAGEMAKER}:{JOBS[kind == 'Training']}"
                asked += [Request(f"sagemaker:{verb}{kind}Job", resource) for verb in ("Create", "Describe", "Stop")]
                asked.append(Request("sagemaker:AddTags", resource))
            case "Lambda":
                asked.append(Request("lambda:InvokeFunction", step["FunctionArn"]))
            case "RegisterModel":
                asked.append(Request("sagemaker:CreateModelPackage", f"{SAGEMAKER}:model-package-group/{NAME}"))
                asked.append(Request("sagemaker:CreateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/4"))
    assert {request.action for request in asked} >= {"lambda:InvokeFunction", "sagemaker:CreateModelPackage"}
    assert rights.refused("DriverRole", asked) == []


def test_an_endpoint_may_read_its_model_and_its_image(rights: Rights) -> None:
    account, region, name = re.match(r"(\d+)\.dkr\.ecr\.([a-z0-9-]+)\.[a-z.]+/([^@]+)", SERVING_IMAGE).groups()
    asked = in_container(f"arn:aws:ecr:{region}:{account}:repository/{name}", f"Endpoints/{NAME}")
    asked += [
        Request("s3:GetObject", rights.objects("langadapt/models/abc/FineTune/model.safetensors")),
        Request("s3:ListBucket", rights.bucket), Request("kms:Decrypt", KEY),
    ]  # fmt: skip
    assert rights.refused("ServingRole", asked) == []


def test_the_schedule_may_start_the_pipeline(rights: Rights) -> None:
    assert rights.refused("ScheduleRole", [Request("sagemaker:StartPipelineExecution", PIPELINE)]) == []


# --- and nothing else

ADMIN = f"arn:aws:iam::{ACCOUNT}:role/administrator"
TO_SAGEMAKER = {"iam:PassedToService": "sagemaker.amazonaws.com"}
TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}
DATA = "BUCKET/langadapt"
# Who, what, on what. BUCKET: the bucket of data. JOB_ROLE, SERVING_ROLE: ARNs of these roles.
NOT_ALLOWED = [
    ("JobsRole", "s3:DeleteObject", f"{DATA}/models/1/model.safetensors"),
    ("JobsRole", "s3:DeleteObjectVersion", f"{DATA}/models/1/model.safetensors"),
    ("JobsRole", "s3:PutObject", f"{DATA}/inputs/corpus/a.txt"),
    ("JobsRole", "s3:PutObject", f"{DATA}/code/{'0' * 64}.zip"),
    ("JobsRole", "s3:PutBucketPolicy", "BUCKET"),
    ("JobsRole", "s3:GetObject", "arn:aws:s3:::another-bucket/secret"),
    ("JobsRole", "kms:ScheduleKeyDeletion", KEY),
    ("JobsRole", "kms:Decrypt", f"arn:aws:kms:{REGION}:{ACCOUNT}:key/another"),
    ("JobsRole", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("JobsRole", "sagemaker:CreateTrainingJob", f"{SAGEMAKER}:{JOBS[1]}"),
    ("JobsRole", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("JobsRole", "ecr:PutImage", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/any"),
    ("JobsRole", "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "others"}),
    ("JobsRole", "logs:PutLogEvents", f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/others:log-stream:a"),
    ("DriverRole", "iam:PassRole", ADMIN, TO_SAGEMAKER),
    ("DriverRole", "iam:PassRole", "JOB_ROLE", TO_EC2),
    ("DriverRole", "sagemaker:CreateTrainingJob", f"{SAGEMAKER}:training-job/of-others"),
    ("DriverRole", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("DriverRole", "sagemaker:CreateModelPackage", f"{SAGEMAKER}:model-package-group/others"),
    ("DriverRole", "sagemaker:CreateEndpoint", f"{SAGEMAKER}:endpoint/{NAME}"),
    ("DriverRole", "lambda:InvokeFunction", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:others"),
    ("DriverRole", "s3:DeleteObject", f"{DATA}/runs/a"),
    ("ResolveInputs", "s3:PutObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ResolveInputs", "s3:GetObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ResolveInputs", "sagemaker:StopPipelineExecution", EXECUTION),
    ("ResolveInputs", "sagemaker:ListPipelineExecutions", f"{SAGEMAKER}:pipeline/others"),
    ("ScheduleRole", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("ScheduleRole", "sagemaker:StopPipelineExecution", EXECUTION),
    ("NewDataStart", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("NewDataStart", "sagemaker:StopPipelineExecution", EXECUTION),
    ("NewDataStart", "s3:GetObject", f"{DATA}/incoming/corpus/a.txt"),
    ("NewDataStart", "s3:ListBucket", "BUCKET", {"s3:prefix": "langadapt/models/"}),
    ("NewDataStart", "sns:Publish", f"arn:aws:sns:{REGION}:{ACCOUNT}:any"),
    ("ApprovalDeploy", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("ApprovalDeploy", "sagemaker:DeleteEndpoint", f"{SAGEMAKER}:endpoint/{NAME}"),
    ("ApprovalDeploy", "sagemaker:UpdateEndpoint", f"{SAGEMAKER}:endpoint/others"),
    ("ApprovalDeploy", "sagemaker:CreateModel", f"{SAGEMAKER}:model/others"),
    ("ApprovalDeploy", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("ApprovalDeploy", "iam:PassRole", "SERVING_ROLE", TO_EC2),
    ("ApprovalDeploy", "sagemaker:StartPipelineExecution", PIPELINE),
    ("NotificationsNotify", "sagemaker:UpdateModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("NotificationsNotify", "sns:Publish", f"arn:aws:sns:{REGION}:{ACCOUNT}:others"),
    ("NotificationsNotify", "sagemaker:StopPipelineExecution", EXECUTION),
    ("BudgetStop", "sagemaker:StartPipelineExecution", PIPELINE),
    ("BudgetStop", "sagemaker:StopPipelineExecution", f"{SAGEMAKER}:pipeline/others/execution/a"),
    ("BudgetStop", "sagemaker:StopTrainingJob", f"{SAGEMAKER}:{JOBS[1]}"),
    ("MonitoringSilence", "cloudwatch:PutMetricData", "*"),
    ("ServingRole", "s3:GetObject", f"{DATA}/inputs/corpus/a.txt"),
    ("ServingRole", "s3:PutObject", f"{DATA}/models/1/model.safetensors"),
    ("ServingRole", "ecr:BatchGetImage", f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/others"),
    ("Operators", "s3:DeleteObject", f"{DATA}/models/1/model.safetensors"),
    ("Operators", "s3:DeleteBucket", "BUCKET"),
    ("Operators", "sagemaker:DeletePipeline", PIPELINE),
    ("Operators", "sagemaker:DeleteModelPackage", f"{SAGEMAKER}:model-package/{NAME}/1"),
    ("Operators", "sagemaker:CreateTrainingJob", f"{SAGEMAKER}:{JOBS[1]}"),
    ("Operators", "iam:PassRole", "JOB_ROLE", TO_SAGEMAKER),
    ("Operators", "iam:CreateRole", ADMIN),
    ("Operators", "sts:AssumeRole", "JOB_ROLE"),
    ("Operators", "kms:PutKeyPolicy", KEY),
    ("Operators", "sagemaker:StartPipelineExecution", f"{SAGEMAKER}:pipeline/others"),
    ("Operators", "lambda:UpdateFunctionCode", f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:any"),
]  # fmt: skip


@pytest.mark.parametrize("entry", NOT_ALLOWED, ids=lambda entry: f"{entry[0]}-{entry[1]}")
def test_what_is_not_needed_is_not_allowed(rights: Rights, entry: tuple[Any, ...]) -> None:
    who, action, resource, *context = entry
    for name, stands_for in (("BUCKET", rights.bucket), ("JOB_ROLE", rights.role_arn("JobsRole")),
                             ("SERVING_ROLE", rights.role_arn("ServingRole"))):  # fmt: skip
        resource = resource.replace(name, stands_for)
    assert not rights.may(who, Request(action, resource, context[0] if context else {}))


def test_nothing_is_read_or_written_without_tls(rights: Rights) -> None:
    key = rights.objects("langadapt/models/a")
    assert rights.may("JobsRole", Request("s3:GetObject", key))
    assert not rights.may("JobsRole", Request("s3:GetObject", key, {"aws:SecureTransport": "false"}))


def test_roles_are_passed_to_sagemaker_alone(rights: Rights) -> None:
    """Of all policies of the template."""
    passing = [
        statement
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for policy in rights.template.of_type(kind).values()
        for statement in policy["PolicyDocument"]["Statement"]
        if "iam:PassRole" in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
    ]
    assert len(passing) >= 2
    assert {json.dumps(statement["Condition"]) for statement in passing} == {
        json.dumps({"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}})
    }


def test_services_assume_roles_for_this_account_alone(rights: Rights) -> None:
    """All but Lambda, which documents no such condition, and looks at who may pass the role."""
    for logical_id, role in rights.template.of_type("AWS::IAM::Role").items():
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            service = statement["Principal"]["Service"]
            if service not in ("lambda.amazonaws.com", "vpc-flow-logs.amazonaws.com"):
                assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": ACCOUNT}, logical_id
