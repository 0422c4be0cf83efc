"""What AWS refuses is one line that says what to mend."""

import socket

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from pipeline.remote.account import MAX_ATTEMPTS, Account
from pipeline.remote.aws_errors import AwsError, aws_error

REGION = "eu-central-1"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, no configuration, and a port of this machine where nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def answered(code: str, message: str, status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Any")  # type: ignore[arg-type]


def refused(service: str = "sts", operation: str = "GetCallerIdentity", **request: str) -> AwsError:
    with pytest.raises(AwsError) as caught:
        Account(REGION).call(service, operation, **request)
    return caught.value


def test_no_credentials_no_profile_and_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused().kind == "credentials"
    assert str(refused()) == (
        "AWS credentials: Unable to locate credentials. Sign in (`aws sso login`, `aws configure`), or set AWS_PROFILE."
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stand-in")
    assert refused().kind == "credentials"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-shown")
    unreachable = refused()
    assert (unreachable.kind, unreachable.may_pass) == ("unreachable", True)
    assert "Check the network, the proxy, AWS_ENDPOINT_URL and aws.region eu-central-1." in str(unreachable)
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    assert str(refused()) == (
        "AWS credentials: The config profile (nobodys) could not be found. Name an existing profile in AWS_PROFILE."
    )


def test_an_address_that_is_none_and_a_page_in_the_place_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:4566")
    assert str(refused()) == (
        "AWS configuration: Invalid endpoint: localhost:4566. Correct AWS_ENDPOINT_URL, or what else names it."
    )
    page = aws_error(answered("502", "<html>" + "proxy " * 5_000, 502), "sts", "Any", REGION)
    assert (page.kind, len(str(page)) < 1_200) == ("fault", True)


def test_attempts_are_bounded_where_the_user_has_set_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stand-in")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stand-in")
    retries = [Account(REGION).client("sts").meta.config.retries]
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    retries.append(Account(REGION).client("sts").meta.config.retries)
    assert [(entry["total_max_attempts"], entry["mode"]) for entry in retries] == [
        (1, "standard"), (MAX_ATTEMPTS, "standard")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("service", "operation", "message", "line"),
    [
        ("s3", "HeadObject", "Forbidden",
         "s3 HeadObject: arn:me may not s3:GetObject. Allow s3:GetObject, and s3:ListBucket: without it a missing "
         "object is answered so, too."),
        ("s3", "PutObject", "Access Denied",
         "s3 PutObject: arn:me may not s3:PutObject. Allow s3:PutObject in its policies."),
        ("sagemaker", "CreatePipeline",
         "User: arn:aws:iam::1:user/a is not authorized to perform: iam:PassRole on resource: arn:aws:iam::1:role/r "
         "because no identity-based policy allows the iam:PassRole action",
         "sagemaker CreatePipeline: arn:aws:iam::1:user/a may not iam:PassRole on arn:aws:iam::1:role/r. Allow "
         "iam:PassRole in its policies."),
        ("sagemaker", "StopPipelineExecution",
         "User: arn:u is not authorized to perform: sagemaker:StopPipelineExecution on resource: arn:p with an "
         "explicit deny in a service control policy",
         "sagemaker StopPipelineExecution: arn:u may not sagemaker:StopPipelineExecution on arn:p. A policy denies "
         "sagemaker:StopPipelineExecution explicitly: take that statement out."),
    ],
)  # fmt: skip
def test_a_missing_permission_names_action_and_caller(service: str, operation: str, message: str, line: str) -> None:
    error = aws_error(answered("AccessDenied", message, 403), service, operation, REGION, caller="arn:me")
    assert str(error) == line
    assert error.kind == "permission"


@pytest.mark.parametrize(
    ("code", "message", "status", "kind", "words"),
    [
        ("ExpiredToken", "The provided token has expired.", 400, "credentials", "Sign in again"),
        ("UnrecognizedClientException", "The security token is invalid", 400, "credentials", "Check the keys"),
        ("SlowDown", "Please reduce your request rate", 503, "throttled", "Try again in a minute."),
        ("ResourceNotFound", "Pipeline x does not exist", 400, "not_found", "aws.region eu-central-1"),
        ("ValidationException", "Could not find pipeline with PipelineName x.", 400, "not_found", "Check the name"),
        ("404", "Not Found", 404, "not_found", "Check the name"),
        ("InternalError", "We encountered an internal error", 500, "fault", "A fault of the service"),
        ("ResourceLimitExceeded", "The account-level limit is 0", 400, "refused", "Correct what it names."),
    ],
)
def test_each_kind_of_answer_has_its_remedy(code: str, message: str, status: int, kind: str, words: str) -> None:
    error = aws_error(answered(code, message, status), "sagemaker", "Any", REGION)
    assert (error.kind, error.code) == (kind, code)
    assert words in str(error)
    assert error.may_pass == (kind in ("throttled", "fault"))


def test_a_reading_that_stalls_may_pass() -> None:
    error = aws_error(ReadTimeoutError(endpoint_url="https://x"), "s3", "GetObject", REGION)
    assert (error.kind, error.code) == ("unreachable", "ReadTimeoutError")
