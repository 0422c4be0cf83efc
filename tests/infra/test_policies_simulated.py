"""Every call that people, functions, the pipeline and its jobs make is allowed to them, and many others are not.

The calls are recorded while commands and handlers run against accounts on loopback and inside the process, those of
jobs read from the definition in the template. IAM is moto's (tests/helpers/policy_simulation.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from account_stand_in import REGION as MOTO_REGION
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
from policy_simulation import KEY, REGION, Request, Rights
from recorded_actions import requests_of
from recorded_commands import commands_of_people

import pipeline.resolve_inputs
from infra.handlers import deploy_approved_model, measure_silence, notify, start_for_new_data, stop_over_budget

NAME = FULL["name"]
SAGEMAKER = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}"
PIPELINE = f"{SAGEMAKER}:pipeline/{NAME}"
JOBS = "processing-job/pipelines-abcdefabcdef-PrepareCorpus-x1", "training-job/pipelines-abcdefabcdef-FineTune-x1"


@pytest.fixture(scope="module")
def rights(stack_templates: dict[str, Any]) -> Rights:
    return Rights(stack_templates[NAME])


# --- people at the command line

# Not for all people: it decides what the jobs run.
OF_MAINTAINERS = {
    "upsert": {"sagemaker:CreatePipeline", "iam:PassRole"},
    "upsert of a change": {"sagemaker:UpdatePipeline", "sagemaker:AddTags", "iam:PassRole"},
}
# What the stack owns, an option of the environment: a role would have to be passed to Scheduler, too.
OF_THE_STACK = {
    "schedule set": {"scheduler:CreateSchedule", "iam:PassRole"},
    "schedule remove": {"scheduler:DeleteSchedule"},
}


@pytest.fixture(scope="module")
def commands(rights: Rights, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Request]]:
    return commands_of_people(rights, tmp_path_factory.mktemp("commands"))


def test_people_may_all_that_the_command_line_asks(rights: Rights, commands: dict[str, list[Request]]) -> None:
    refused = {command: rights.refused("Operators", requests) for command, requests in commands.items()
               if command not in OF_THE_STACK | OF_MAINTAINERS}  # fmt: skip
    assert [line for lines in refused.values() for line in lines] == []
    assert {"start", "status", "logs", "stop", "retry", "push", "preflight", "models approve"} <= set(refused)
    assert len({request.action for requests in commands.values() for request in requests}) >= 25


def test_maintainers_may_change_the_definition_and_operators_may_not(
    rights: Rights, commands: dict[str, list[Request]]
) -> None:
    for command, expected in OF_MAINTAINERS.items():
        assert {line.split()[0] for line in rights.refused("Operators", commands[command])} == expected, command
        assert rights.refused("Maintainers", commands[command]) == [], command


@pytest.mark.parametrize("who", ["Operators", "Maintainers"])
def test_people_may_not_change_the_schedule_of_the_stack(
    rights: Rights, commands: dict[str, list[Request]], who: str
) -> None:
    for command, expected in OF_THE_STACK.items():
        assert {line.split()[0] for line in rights.refused(who, commands[command])} == expected, command


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
        prefix = rights.settings("start_for_new_data")["prefix"]
        account.objects[f"{prefix}a.txt"] = (b"text", datetime(2020, 1, 1, tzinfo=UTC))
        account.add_execution(1, "Failed")
        batch(start_for_new_data, object_event(f"{prefix}a.txt"))
        assert account.sent("StartPipelineExecution")

    def stop(account: AutomatedAccount) -> None:
        account.add_execution(1, "Executing")
        settings = rights.settings("stop_over_budget")
        topic, message = settings["budget_topic_arn"].replace(REGION, MOTO_REGION), f"Budget Name: {settings['budget']}"
        stop_over_budget.handler({"Records": [{"Sns": {"TopicArn": topic, "Message": message}}]}, None)

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
        given = rights.settings(handler)
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


@pytest.mark.parametrize("who", ["ApprovalDeploy", "NewDataStart"])
def test_lambda_may_read_a_functions_queue(rights: Rights, who: str) -> None:
    queues = {key: rights.template.arn(key) for key in rights.template.of_type("AWS::SQS::Queue")}
    (own,) = [arn for key, arn in queues.items() if f"{who[:7]}" in key and "EventsQueue" in key]
    actions = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
    assert rights.refused(who, [Request(f"sqs:{action}", own) for action in actions]) == []
    for others in set(queues.values()) - {own}:
        assert not rights.may(who, Request("sqs:ReceiveMessage", others))


@pytest.mark.parametrize("who", ["NotificationsNotify", "BudgetStop", "MonitoringSilence", "ScheduleRole"])
def test_what_fails_may_be_kept(rights: Rights, who: str) -> None:
    queue = rights.template.arn(rights.template.only("AWS::SQS::Queue", "WatchingDeadLetters"))
    assert rights.refused(who, [Request("sqs:SendMessage", queue)]) == []


def test_every_function_may_write_its_log_and_no_other(rights: Rights) -> None:
    functions = rights.template.of_type("AWS::Lambda::Function").values()
    for made in functions:
        who, logs = made["Role"].rpartition("/")[2], f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:"
        for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
            assert rights.may(who, Request(action, f"{logs}/langadapt/{NAME}:log-stream:2026/11/30/a")), who
            assert not rights.may(who, Request(action, f"{logs}/aws/sagemaker/TrainingJobs:log-stream:a")), who
    assert len(functions) >= 8


def test_code_is_placed_and_the_image_built(rights: Rights) -> None:
    """What infra/handlers/place_code.py and build_image.py call, by their own tests, and what the build does."""
    (placed,) = rights.template.of_type("Custom::CodeArchives").values()
    archives = [rights.objects(f"langadapt/code/{name}") for name in placed["Names"]]
    assert len(archives) >= 6
    asked = [Request(f"s3:{action}", archive) for archive in archives for action in ("PutObject", "GetObject")]
    asked += [Request("kms:GenerateDataKey", KEY), Request("kms:Decrypt", KEY)]
    assert rights.refused("CodePlace", asked) == []
    assert not rights.may("CodePlace", Request("s3:PutObject", rights.objects(f"langadapt/code/{'0' * 64}.zip")))
    repository = rights.template.arn(own_repository(rights))
    project = rights.template.arn(rights.template.only("AWS::CodeBuild::Project", ""))
    asked = [Request("codebuild:StartBuild", project), Request("codebuild:BatchGetBuilds", project)]
    assert rights.refused("ImageBuild", [*asked, Request("ecr:DescribeImages", repository)]) == []
    pushed = [
        Request(f"ecr:{action}", repository)
        for action in (
            "BatchCheckLayerAvailability",
            "InitiateLayerUpload",
            "UploadLayerPart",
            "CompleteLayerUpload",
            "PutImage",
        )
    ]
    assert rights.refused("ImageRole", [*pushed, Request("ecr:GetAuthorizationToken", "*")]) == []
    assert not rights.may("ImageRole", Request("ecr:DeleteRepository", repository))


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
