"""An AWS account on loopback for the tests of pipeline/remote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn, account_stand_in


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
