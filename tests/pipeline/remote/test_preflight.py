"""langadapt preflight against an account on loopback that has everything, and one thing after the other not."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn, Answer, Seen

from pipeline.__main__ import command_code
from pipeline.config import load_config
from pipeline.local.run import STEP_MODULES
from pipeline.plan.prices import package_prices
from pipeline.plan.whole_plan import make_plan
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.code_upload import upload_code
from pipeline.remote.preflight import is_ready, preflight
from pipeline.remote.preflight_checks import MISSING, NOT_ALLOWED, NOT_PRICED, OK, Check, trusts
from pipeline.remote.preflight_needs import QuotaNeed, needs_of
from pipeline.remote.preflight_price import price_check
from pipeline.remote.writes import Writes

ACCOUNT = "123456789012"
TRUST = {"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
]}  # fmt: skip
BUCKET = "bucket-of-preflight"
MEDIA_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
USAGES = ("training job", "spot training job", "processing job")


class Quotas:
    """ListServiceQuotas, two a page; what the account was given by name, what all have."""

    def __init__(self) -> None:
        types = ("ml.g5.xlarge", "ml.m5.large")
        self.own = {f"{kind} for {usage} usage": 2.0 for kind in types for usage in USAGES}
        self.defaults: dict[str, float] = {}

    def answer(self, request: Seen) -> Answer | None:
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        if operation not in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
            return None
        table = self.own if operation == "ListServiceQuotas" else self.defaults
        start = int(json.loads(request.content).get("NextToken", "0"))
        rows = [{"QuotaName": name, "Value": value, "QuotaCode": "L-1234"} for name, value in table.items()]
        more = {"NextToken": str(start + 2)} if start + 2 < len(rows) else {}
        return 200, json.dumps({"Quotas": rows[start : start + 2], **more}).encode()


@pytest.fixture
def quotas(stand_in: AccountStandIn) -> Quotas:
    found = Quotas()
    stand_in.in_the_way = found.answer
    return found


@pytest.fixture(scope="module")
def made(moto_server: AccountStandIn) -> list[str]:
    """Overrides that name what the account has: bucket, role, function, images; code and data in the bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in moto_server.environment.items():
            patch.setenv(variable, value)
        clients = {name: boto3.client(name, region_name=REGION) for name in ("s3", "iam", "lambda", "ecr")}
        place = {"LocationConstraint": REGION}
        clients["s3"].create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)
        for kind in ("corpus", "conversations", "base_model"):
            clients["s3"].put_object(Bucket=BUCKET, Key=f"langadapt/inputs/{kind}/file", Body=b"content")
        role = clients["iam"].create_role(RoleName="jobs", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("index.py", "")
        function = clients["lambda"].create_function(
            FunctionName="resolve", Runtime="python3.12", Role=role, Handler="index.handler",
            Code={"ZipFile": archive.getvalue()},
        )["FunctionArn"]  # fmt: skip
        clients["ecr"].create_repository(repositoryName="steps")
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA_TYPE,
            "config": {"digest": f"sha256:{'a' * 64}"},
            "layers": [],
        }
        image = clients["ecr"].put_image(repositoryName="steps", imageManifest=json.dumps(manifest), imageTag="one")
        uri = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/steps@{image['image']['imageId']['imageDigest']}"
        found = {"aws.bucket": BUCKET, "aws.role_arn": role, "aws.resolve_inputs_function_arn": function,
                 "aws.image_uri": uri, "serving.image_uri": uri}  # fmt: skip
        settings = [f"{key}={value}" for key, value in found.items()]
        upload_code(load_config("laptop", overrides=settings), STEP_MODULES, Account(REGION), Writes(Account(REGION)))
        return settings


@pytest.fixture
def settings(made: list[str], quotas: Quotas) -> list[str]:
    return made


@pytest.fixture
def look(compiled_text: Callable[..., str], settings: list[str]) -> Callable[..., dict[str, Check]]:
    """The checks by name, for parameters; others: what stands in the place of settings, by their names."""

    def checks(others: dict[str, str] | None = None, **given: str) -> dict[str, Check]:
        text = compiled_text("laptop", *settings)
        own = dict(setting.split("=", 1) for setting in settings)
        for name, value in (others or {}).items():
            text = text.replace(json.dumps(own[name])[1:-1], value)
        config = load_config("laptop", overrides=settings)
        return {check.name: check for check in preflight(config, json.loads(text), Account(REGION), given)}

    return checks


def names(found: dict[str, Check], state: str) -> list[str]:
    return [name for name, check in found.items() if check.state == state]


def test_an_account_that_has_everything_is_ready(look: Any, settings: list[str], stand_in: AccountStandIn) -> None:
    stand_in.seen.clear()
    found = look()
    assert names(found, MISSING) == names(found, NOT_ALLOWED) == []
    assert names(found, NOT_PRICED) == []
    # 4 hours of ml.m5.large at 0.115 USD and 6 of ml.g5.xlarge at 1.408, by the preset's limits.
    assert found["price of the run"].found.startswith(
        "less than 0.01 USD, at most 8.91, by prices of 2026-09-01 to 2026-1"
    )
    kinds = [name.split()[0] for name in names(found, OK)]
    counted = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    assert counted == {
        "bucket": 1, "role": 1, "function": 1, "image": 1, "code": 7, "data": 3, "instance": 2, "quota": 3, "price": 1
    }  # fmt: skip
    assert is_ready([*found.values()])
    # TokenizeCorpus and AdaptVocabulary work side by side.
    assert found["quota ml.m5.large for processing job usage"].found == (
        "2; 2 for TokenizeCorpus and AdaptVocabulary side by side"
    )
    assert not [request for request in stand_in.seen if request.method in ("PUT", "DELETE")]


def test_what_is_missing_is_told_with_its_remedy(look: Any, settings: list[str], quotas: Quotas, bucket: str) -> None:
    quotas.own["ml.m5.large for processing job usage"] = 1.0
    del quotas.own["ml.g5.xlarge for training job usage"]
    quotas.defaults["ml.g5.xlarge for training job usage"] = 0.0
    del quotas.own["ml.g5.xlarge for processing job usage"]
    prefix = f"s3://{bucket}/langadapt/inputs/corpus/{'0' * 64}/"
    conversations = "langadapt/inputs/conversations/"
    for key in (f"{prefix.removeprefix(f's3://{bucket}/')}half.txt", f"{conversations}{'1' * 64}/a.jsonl"):
        boto3.client("s3", region_name=REGION).put_object(Bucket=bucket, Key=key, Body=b"text")
    image = f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/there@sha256:{'1' * 64}"
    other = {"aws.bucket": bucket,
             "serving.image_uri": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/none@sha256:{'1' * 64}",
             "aws.role_arn": f"arn:aws:iam::{ACCOUNT}:role/none",
             "aws.resolve_inputs_function_arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:none"}  # fmt: skip
    found = look(other, CorpusUri=prefix, ImageUri=image)
    told = {name: check.text for name, check in found.items() if check.state == MISSING}
    expected = [
        "role arn:aws:iam::123456789012:role/none: there is none of this name. Make it, or set aws.role_arn.",
        f"function arn:aws:lambda:{REGION}:{ACCOUNT}:function:none: there is none of this name. Deploy it,",
        f"image {image}: in region eu-west-1. Push it to ECR in us-west-2.",
        f"image {other['serving.image_uri']}: there is no such repository. Make it and push the image",
        f"data {prefix}: pushed in part. Give the same langadapt push again: it goes on.",
        f"data s3://{bucket}/{conversations}: holds 1 pushed; limit one of them. Give the parameter ",
        f"data s3://{bucket}/langadapt/inputs/base_model/: nothing there for TrainTokenizer, AdaptVocabulary, ",
        "quota ml.m5.large for processing job usage: 1; 2 for TokenizeCorpus and AdaptVocabulary side by side. "
        "Ask for 2 (Service Quotas, Amazon SageMaker, L-1234), or set aws.max_parallel_steps to 1.",
        "quota ml.g5.xlarge for training job usage: 0; 1 for ContinuedPretraining. Ask for 1",
        "quota ml.g5.xlarge for processing job usage: not listed; 1 for Evaluate.",
    ]
    for line in expected:
        assert [text for text in told.values() if text.startswith(line)], line
    assert len([name for name in told if name.startswith("code ")]) == 7


def test_what_may_not_be_looked_at_is_told_and_stops_nothing(
    look: Any, settings: list[str], stand_in: AccountStandIn, quotas: Quotas
) -> None:
    def deny(request: Seen) -> Answer | None:
        if "GetRole" in request.content.decode():
            told = (
                "User: arn:aws:sts::1:assumed-role/dev/me is not authorized to perform: iam:GetRole on resource: role x"
            )
            error = f"<Error><Code>AccessDenied</Code><Message>{told}</Message></Error>"
            return 403, f"<ErrorResponse>{error}</ErrorResponse>".encode()
        if "ListServiceQuotas" in request.headers.get("x-amz-target", ""):
            return 400, b'{"__type": "AccessDeniedException", "message": "no"}'
        return quotas.answer(request)

    stand_in.in_the_way = deny
    found = look()
    assert is_ready([*found.values()])
    denied = [found[name].text for name in names(found, NOT_ALLOWED)]
    assert len(denied) == 2
    assert denied[0].endswith("Allow iam:GetRole in its policies.")
    assert "arn:aws:sts::1:assumed-role/dev/me may not iam:GetRole" in denied[0]
    assert denied[1].endswith("Allow servicequotas:ListServiceQuotas in its policies.")


def test_credentials_that_do_not_work_end_it(look: Any, stand_in: AccountStandIn) -> None:
    stand_in.in_the_way = lambda request: (400, b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>")
    with pytest.raises(AwsError, match="AWS credentials: ExpiredToken"):
        look()


def test_the_command_exits_with_1_where_something_is_missing(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert command_code(["preflight", *words], as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "preflight: 20 ok"
    nowhere = f"CorpusUri=s3://{BUCKET}/nowhere/"
    assert command_code(["preflight", *words, "--param", nowhere, "--json"], as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert [check["name"] for check in answer["checks"] if check["state"] == MISSING] == [
        f"data s3://{BUCKET}/nowhere/"
    ]


def test_placeholders_are_missing_and_nothing_is_asked(
    stand_in: AccountStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_code(["preflight"], as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "missing              aws.bucket: langadapt-placeholder-bucket is a placeholder. Set aws.bucket"
    )
    assert lines[-1] == "preflight: 5 missing"
    assert stand_in.seen == []


@pytest.mark.parametrize(
    ("instances", "parallel", "expected"),
    [(1, None, 2), (1, 1, 1), (3, None, 4), (3, 2, 4), (3, 1, 3)],
)
def test_quotas_count_the_instances_that_work_side_by_side(
    compiled_text: Callable[..., str], instances: int, parallel: int | None, expected: int
) -> None:
    definition = json.loads(compiled_text("laptop"))
    steps = {step["Name"]: step["Arguments"] for step in definition["Steps"]}
    steps["TokenizeCorpus"]["ProcessingResources"]["ClusterConfig"]["InstanceCount"] = instances
    steps["FineTune"]["EnableManagedSpotTraining"] = True
    found = {(need.instance_type, need.usage): need.instances for need in needs_of(definition, {}, parallel).quotas}
    assert found == {
        ("ml.m5.large", "processing job"): expected, ("ml.g5.xlarge", "processing job"): 1,
        ("ml.g5.xlarge", "training job"): 1, ("ml.g5.xlarge", "spot training job"): 1,
    }  # fmt: skip


def test_parameters_change_what_is_needed(compiled_text: Callable[..., str]) -> None:
    given = {"FineTuneInstanceType": "ml.g6.xlarge", "ContinuedPretrainingInstanceCount": "4"}
    needs = needs_of(json.loads(compiled_text("laptop")), given, None)
    assert QuotaNeed("ml.g6.xlarge", "training job", 1, ("FineTune",)) in needs.quotas
    assert QuotaNeed("ml.g5.xlarge", "training job", 4, ("ContinuedPretraining",)) in needs.quotas


def test_the_price_is_that_of_the_plan_with_the_instances_of_the_start(compiled_text: Callable[..., str]) -> None:
    config = load_config("azerbaijani-1b-p4d")
    definition = json.loads(compiled_text("azerbaijani-1b-p4d"))
    costs = make_plan(config, package_prices()).costs
    told = price_check(config, definition, {})
    assert (told.state, told.remedy) == (NOT_PRICED, "See langadapt plan --check-account.")
    assert told.found.startswith(f"about {costs.usd:,.2f} USD, at most {costs.at_most_usd:,.2f}, by prices of 2026-")
    assert told.found.endswith("; without ml.m5.12xlarge")
    # 48 hours of two more of 25.251 USD each.
    more = price_check(config, definition, {"ContinuedPretrainingInstanceCount": "4"}).found
    assert f"at most {costs.at_most_usd + 2 * 48 * 25.251:,.2f}" in more
    other = price_check(config, definition, {"FineTuneInstanceType": "ml.g4dn.xlarge"}).found
    assert other.endswith("; without ml.m5.12xlarge, ml.g4dn.xlarge")
    there = load_config("laptop", overrides=["aws.region=eu-west-1"])
    assert price_check(there, definition, {}).found.startswith("no price for ml.m5.large, ml.p4d.24xlarge")
    unknown = load_config("laptop", overrides=["data.base_model=s3://own/model/"])
    assert price_check(unknown, definition, {}).found == "plan.base_model_shape: missing"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ({"Effect": "Allow", "Principal": {"Service": ["lambda.amazonaws.com", "sagemaker.amazonaws.com"]},
          "Action": ["sts:AssumeRole"]}, True),
        ({"Effect": "Allow", "Principal": "*", "Action": "sts:*"}, True),
        ({"Effect": "Deny", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}, False),
        ({"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::1:root"}, "Action": "sts:AssumeRole"}, False),
        ({"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:TagSession"}, False),
    ],
)  # fmt: skip
def test_a_trust_policy_names_the_service_and_the_action(statement: dict[str, Any], expected: bool) -> None:
    assert trusts({"Statement": [statement]}, "sagemaker.amazonaws.com") is expected
    assert trusts({"Statement": statement}, "sagemaker.amazonaws.com") is expected


def test_start_with_preflight_starts_only_where_nothing_is_missing(
    settings: list[str], quotas: Quotas, stand_in: AccountStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    assert command_code(["upsert", *words], as_json=False) == 0
    capsys.readouterr()
    quotas.own["ml.g5.xlarge for training job usage"] = 0.0
    stand_in.seen.clear()
    # What is deployed counts, not the placeholders of this configuration.
    start = ["start", "--preflight", "--json"]
    assert command_code(start, as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    asked = [request.headers.get("x-amz-target", "").rpartition(".")[2] for request in stand_in.seen]
    assert "ListServiceQuotas" in asked
    assert "StartPipelineExecution" not in asked
    quotas.own["ml.g5.xlarge for training job usage"] = 1.0
    assert command_code(start, as_json=True) == 0
    assert "/execution/" in json.loads(capsys.readouterr().out)["arn"]
