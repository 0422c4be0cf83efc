"""An AWS account on loopback for the tests of pipeline/remote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn, account_stand_in
from sagemaker_stub import SageMakerStub, sagemaker_stub

from pipeline.__main__ import command_code


@pytest.fixture(scope="session")
def moto_server() -> Iterator[AccountStandIn]:
    with account_stand_in() as server:
        yield server


@pytest.fixture
def stand_in(moto_server: AccountStandIn, monkeypatch: pytest.MonkeyPatch) -> AccountStandIn:
    """The account as this process and its children find it, no request noted yet."""
    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    moto_server.seen.clear()
    moto_server.in_the_way = lambda request: None
    return moto_server


@pytest.fixture
def bucket(stand_in: AccountStandIn, request: pytest.FixtureRequest) -> str:
    """An empty bucket of the test's own."""
    name = f"bucket-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]}"
    boto3.client("s3", region_name=REGION).create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    stand_in.seen.clear()
    return name


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[SageMakerStub]:
    """SageMaker's executions, each request tried once."""
    with sagemaker_stub() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        yield served


@pytest.fixture
def langadapt(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process; gives its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command_code(list(arguments), as_json="--json" in arguments)
        output, errors = capsys.readouterr()
        assert code != 70, errors
        return code, output, errors

    return run
