"""What the template has for each option, and that rules, queues, settings and handlers fit together."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from account_stand_in import REGION as OTHER_REGION
from automated_account import BUCKET, execution_event, object_event, package_event
from automated_account import NAME as OTHER_NAME
from environments import ACCOUNT, FULL, resources
from moto.events.models import EventPattern
from policy_simulation import REGION, ResolvedTemplate

from infra.automation import check_parameters
from infra.environment import validate_environment
from infra.function_code import function_files
from infra.handlers import notify, served_endpoint, start_for_new_data, stop_over_budget
from infra.handlers.notify import failed_conditions
from infra.handlers.served_endpoint import VARIANT
from steps.contract import ConfigError

NAME = FULL["name"]
PIPELINE_ARN = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:pipeline/{NAME}"
HANDLERS = ("deploy_approved_model", "measure_silence", "notify", "start_for_new_data", "stop_over_budget")
ONLY_WITH_AN_OPTION = (
    "AWS::Budgets::Budget", "AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "AWS::Events::Rule",
    "AWS::Lambda::EventSourceMapping", "AWS::SNS::Topic", "AWS::SQS::Queue", "AWS::Scheduler::Schedule",
)  # fmt: skip


@pytest.fixture(scope="module")
def full(stack_templates: dict[str, Any]) -> ResolvedTemplate:
    return ResolvedTemplate(stack_templates[NAME])


def function(template: ResolvedTemplate, handler: str) -> dict[str, Any]:
    (found,) = [properties for properties in template.of_type("AWS::Lambda::Function").values()
                if properties["Handler"].endswith(f"{handler}.handler")]  # fmt: skip
    return found


def settings(template: ResolvedTemplate, handler: str) -> dict[str, Any]:
    return json.loads(function(template, handler)["Environment"]["Variables"]["SETTINGS"])


def rule(template: ResolvedTemplate, part: str) -> dict[str, Any]:
    (found,) = [properties for key, properties in template.of_type("AWS::Events::Rule").items() if part in key]
    return found


def test_an_environment_without_options_has_none_of_it(stack_templates: dict[str, Any]) -> None:
    bare = stack_templates["langadapt-bare"]
    assert {kind: len(resources(bare, kind)) for kind in ONLY_WITH_AN_OPTION} == dict.fromkeys(ONLY_WITH_AN_OPTION, 0)


@pytest.mark.parametrize("handler", HANDLERS)
def test_each_handler_has_a_role_of_its_own_and_loses_no_event(full: ResolvedTemplate, handler: str) -> None:
    made = function(full, handler)
    others = [properties["Role"] for properties in full.of_type("AWS::Lambda::Function").values()]
    assert others.count(made["Role"]) == 1
    assert (made["Architectures"], made["Runtime"][:8]) == (["arm64"], "python3.")
    assert made["LoggingConfig"]["LogGroup"]
    mappings = full.of_type("AWS::Lambda::EventSourceMapping").values()
    is_fed_by_a_queue = handler in ("deploy_approved_model", "start_for_new_data")
    assert ("DeadLetterConfig" in made) != is_fed_by_a_queue
    assert sum(mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for mapping in mappings) == 2


@pytest.mark.parametrize("handler", HANDLERS)
def test_each_function_needs_boto3_alone(handler: str) -> None:
    files = function_files(f"infra.handlers.{handler}")
    for content in files.values():
        for node in ast.walk(ast.parse(content)):
            names = [entry.name for entry in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                is_given = name.split(".")[0] in {*sys.stdlib_module_names, "boto3", "botocore"}
                assert is_given or f"{name.replace('.', '/')}.py" in files, name


def test_queues_are_encrypted_take_tls_alone_and_end_in_another(full: ResolvedTemplate) -> None:
    queues = full.of_type("AWS::SQS::Queue")
    assert len(queues) == 5
    assert all(queue["SqsManagedSseEnabled"] for queue in queues.values())
    denied = [
        statement for policy in full.of_type("AWS::SQS::QueuePolicy").values()
        for statement in policy["PolicyDocument"]["Statement"] if statement["Effect"] == "Deny"
    ]  # fmt: skip
    assert len(denied) == 5
    first = {key: queue for key, queue in queues.items() if "RedrivePolicy" in queue}
    assert {(queue["FifoQueue"], queue["ContentBasedDeduplication"]) for queue in first.values()} == {(True, True)}
    for handler in ("deploy_approved_model", "start_for_new_data"):
        # Lambda asks for six times the time limit.
        assert all(queue["VisibilityTimeout"] >= 6 * function(full, handler)["Timeout"] for queue in first.values())
    assert sorted(queue.get("DelaySeconds", 0) for queue in first.values()) == [0, 900]


def test_topics_are_encrypted_and_written_by_this_account_alone(full: ResolvedTemplate) -> None:
    assert all(topic["KmsMasterKeyId"] for topic in full.of_type("AWS::SNS::Topic").values())
    statements = [
        statement for policy in full.of_type("AWS::SNS::TopicPolicy").values()
        for statement in policy["PolicyDocument"]["Statement"]
    ]  # fmt: skip
    assert [statement["Condition"] for statement in statements if statement["Effect"] == "Deny"] == [
        {"Bool": {"aws:SecureTransport": "false"}}
    ] * 2
    writers = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert sorted(statement["Principal"]["Service"] for statement in writers) == [
        "budgets.amazonaws.com", "budgets.amazonaws.com", "cloudwatch.amazonaws.com"
    ]  # fmt: skip
    assert {statement["Condition"]["StringEquals"]["aws:SourceAccount"] for statement in writers} == {ACCOUNT}


def of_full(event: dict[str, Any], bucket: str) -> dict[str, Any]:
    """An event of the other tests' account, as one of this environment."""
    text = json.dumps(event).replace(BUCKET, bucket).replace(OTHER_NAME, NAME)
    return json.loads(text.replace(OTHER_REGION, REGION))


EXECUTION = {"PipelineExecutionArn": f"{PIPELINE_ARN}/execution/started00001"}


@pytest.mark.parametrize(
    ("part", "event", "matches"),
    [
        ("NotificationsFailed", execution_event({**EXECUTION, "PipelineExecutionStatus": "Failed"}), True),
        ("NotificationsFailed", execution_event({**EXECUTION, "PipelineExecutionStatus": "Succeeded"}), False),
        ("NotificationsVersions", package_event(3, "PendingManualApproval"), True),
        ("NotificationsVersions", package_event(3, "Approved"), False),
        ("ApprovalEventsDecisions", package_event(3, "Approved"), True),
        ("ApprovalEventsDecisions", package_event(3, "Rejected"), True),
        ("NewDataEventsEnded", execution_event({**EXECUTION, "PipelineExecutionStatus": "Succeeded"}), True),
        ("NewDataEventsEnded", execution_event({**EXECUTION, "PipelineExecutionStatus": "Stopped"}), False),
        ("NewDataEventsObjects", object_event("langadapt/incoming/corpus/a.txt"), True),
        ("NewDataEventsObjects", object_event("langadapt/runs/a.txt"), False),
        ("NewDataEventsObjects", object_event("langadapt/incoming/corpus/a.txt", bucket="other"), False),
    ],
)  # fmt: skip
def test_rules_pass_on_what_the_handlers_answer(
    full: ResolvedTemplate, part: str, event: dict[str, Any], matches: bool
) -> None:
    pattern = EventPattern.load(json.dumps(rule(full, part)["EventPattern"]))
    event = of_full(event, settings(full, "start_for_new_data")["bucket"])
    assert pattern.matches_event(event) == matches
    others = json.loads(json.dumps(event).replace(NAME, "other").replace("Object Created", "Object Deleted"))
    assert not pattern.matches_event(others)


def test_the_bucket_tells_of_its_objects(full: ResolvedTemplate) -> None:
    told = [bucket.get("NotificationConfiguration") for bucket in full.of_type("AWS::S3::Bucket").values()]
    assert {"EventBridgeConfiguration": {"EventBridgeEnabled": True}} in told


@pytest.mark.parametrize(
    ("handler", "made"),
    [
        ("deploy_approved_model", served_endpoint.Settings),
        ("notify", notify.Settings),
        ("start_for_new_data", start_for_new_data.Settings),
        ("stop_over_budget", stop_over_budget.Settings),
    ],
)  # fmt: skip
def test_settings_are_those_of_the_handler(full: ResolvedTemplate, handler: str, made: Callable[..., Any]) -> None:
    given = settings(full, handler)
    given.pop("topic_arn", None)
    made(**given)


def test_an_update_is_rolled_back_by_alarms_that_there_are(full: ResolvedTemplate) -> None:
    given = settings(full, "deploy_approved_model")
    alarms = full.of_type("AWS::CloudWatch::Alarm")
    watched = [alarm for alarm in alarms.values() if alarm["AlarmName"] in (f"{NAME}-faults", f"{NAME}-latency")]
    assert given["alarms"] == [f"{NAME}-faults", f"{NAME}-latency"]
    assert len(watched) == 2
    for alarm in watched:
        seconds = alarm["Period"] * alarm["EvaluationPeriods"]
        assert seconds < given["bake_seconds"]
        dimensions = {entry["Name"]: entry["Value"] for entry in alarm["Dimensions"]}
        assert dimensions == {"EndpointName": NAME, "VariantName": VARIANT}


def test_alarms_tell_people_and_a_missing_metric_is_one(full: ResolvedTemplate) -> None:
    alarms = {alarm["AlarmName"]: alarm for alarm in full.of_type("AWS::CloudWatch::Alarm").values()}
    topic = settings(full, "notify")["topic_arn"]
    assert {name: alarm["AlarmActions"] for name, alarm in alarms.items()} == {name: [topic] for name in alarms}
    assert {name for name, alarm in alarms.items() if alarm["TreatMissingData"] == "breaching"} == {f"{NAME}-silence"}
    failed = alarms[f"{NAME}-failed"]
    assert (failed["Namespace"], failed["MetricName"]) == ("AWS/Sagemaker/ModelBuildingPipeline", "ExecutionFailed")
    (metric,) = full.of_type("AWS::Logs::MetricFilter").values()
    made = metric["MetricTransformations"][0]
    assert (made["MetricNamespace"], made["MetricName"]) == (
        alarms[f"{NAME}-silence"]["Namespace"], alarms[f"{NAME}-silence"]["MetricName"]
    )  # fmt: skip
    assert made["MetricValue"] == "$.days_without_success"


def test_the_schedule_starts_the_pipeline_with_its_parameters(full: ResolvedTemplate) -> None:
    (made,) = full.of_type("AWS::Scheduler::Schedule").values()
    assert (made["ScheduleExpression"], made["ScheduleExpressionTimezone"], made["State"]) == (
        "cron(0 3 ? * SUN *)", "Asia/Baku", "ENABLED"
    )  # fmt: skip
    target = made["Target"]
    assert target["Arn"] == PIPELINE_ARN
    assert target["DeadLetterConfig"]["Arn"].startswith(f"arn:aws:sqs:{REGION}:{ACCOUNT}:")
    parameters = target["SageMakerPipelineParameters"]["PipelineParameterList"]
    assert parameters == [{"Name": "MinImprovement", "Value": "0.02"}]
    (trust,) = full.of_type("AWS::IAM::Role")[full.only("AWS::IAM::Role", "ScheduleRole")][
        "AssumeRolePolicyDocument"
    ]["Statement"]  # fmt: skip
    assert trust["Condition"]["ArnLike"]["aws:SourceArn"] == (
        f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/{NAME}"
    )


def test_a_spent_budget_stops_and_a_part_of_it_warns(full: ResolvedTemplate) -> None:
    (made,) = full.of_type("AWS::Budgets::Budget").values()
    assert made["Budget"]["BudgetLimit"] == {"Amount": 20000, "Unit": "USD"}
    told = {(entry["Notification"]["NotificationType"], entry["Notification"]["Threshold"]):
            entry["Subscribers"][0]["Address"] for entry in made["NotificationsWithSubscribers"]}  # fmt: skip
    people, stop = settings(full, "notify")["topic_arn"], settings(full, "stop_over_budget")["budget_topic_arn"]
    assert told == {("ACTUAL", 80): people, ("FORECASTED", 100): people, ("ACTUAL", 100): stop}
    assert people != stop


def test_the_gates_own_message_is_understood(stack_templates: dict[str, Any]) -> None:
    """The message of the deployed definition, with numbers that break every condition."""
    (pipeline,) = ResolvedTemplate(stack_templates[NAME]).of_type("AWS::SageMaker::Pipeline").values()
    definition = json.loads(pipeline["PipelineDefinition"]["PipelineDefinitionBody"])
    (gate,) = [step for step in definition["Steps"] if step["Type"] == "Condition"]
    (closed,) = [step for step in gate["Arguments"]["ElseSteps"] if step["Type"] == "Fail"]
    parts = closed["Arguments"]["ErrorMessage"]["Std:Join"]["Values"]
    breaking = {"<=": ("9.5", "1.5"), ">=": ("-9.5", "1.5"), ">": ("-9.5", "0.0")}
    texts = []
    for number, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
        elif "Std:JsonGet" in part:
            comparison = re.search(r"limit (<=|>=|>) $", parts[number + 1])
            assert comparison is not None
            texts.append(breaking[comparison[1]][0])
        else:
            texts.append("true" if "champion_present" in json.dumps(part) else "1.5")
    failed = failed_conditions("".join(texts))
    assert len(failed) == sum("limit" in part for part in parts if isinstance(part, str)) >= 4
    assert failed[0] == "bits_per_byte.candidate 9.5, limit <= 1.5"


@pytest.mark.parametrize(
    ("option", "values", "line"),
    [
        ("schedule", {"expression": "rate(7 days)", "parameters": {"MaxBitPerByte": "1"}},
         "schedule.parameters.MaxBitPerByte: no such parameter. Did you mean MaxBitsPerByte?"),
        ("new_data", {"parameters": {"MaxBitsPerByte": "low"}},
         "new_data.parameters.MaxBitsPerByte: low; limit a finite number. Change this value."),
    ],
)  # fmt: skip
def test_parameters_that_the_pipeline_does_not_take_are_refused(option: str, values: dict[str, Any], line: str) -> None:
    declared = [{"Name": "MaxBitsPerByte", "Type": "Float", "DefaultValue": 1.0}]
    environment = validate_environment({**FULL, "schedule": None, "new_data": None, option: values})
    with pytest.raises(ConfigError) as raised:
        check_parameters(environment, declared)
    assert str(raised.value) == line


@pytest.mark.parametrize(
    ("values", "start"),
    [
        ({"prefix": "inputs/corpus/"}, "new_data.prefix: inputs/corpus/; limit a folder besides inputs, runs"),
        ({"parameters": {"CorpusUri": "s3://a/b/"}}, "new_data.parameters: CorpusUri. Leave it out"),
    ],
)  # fmt: skip
def test_folders_of_the_pipeline_are_not_watched(values: dict[str, Any], start: str) -> None:
    with pytest.raises(ConfigError) as raised:
        validate_environment({**FULL, "new_data": values})
    assert str(raised.value).startswith(start)
