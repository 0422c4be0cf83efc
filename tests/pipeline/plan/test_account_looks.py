"""langadapt plan --check-account against an account on loopback: quotas of a stub, and a price list in AWS' form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from account_stand_in import AccountStandIn, Answer, Seen, account_stand_in

from pipeline.service_shapes import request_problems

P5 = "azerbaijani-1b-p5"
Planned = Callable[..., dict[str, Any]]


def product(kind: str, component: str, usd: float, day: str = "2026-11-01T00:00:00Z") -> str:
    """An entry of the price list, as a text of JSON."""
    price = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}, "description": "an hour"}
    terms = {"OnDemand": {"A.B": {"effectiveDate": day, "priceDimensions": {"A.B.C": price}}}}
    attributes = {"instanceName": kind, "component": component, "regionCode": "us-west-2"}
    return json.dumps({"product": {"productFamily": "ML Instance", "attributes": attributes}, "terms": terms})


class PriceList:
    """GetProducts, one entry a page, and quotas; each request held against botocore's model."""

    def __init__(self) -> None:
        self.listed = {
            "ml.p5.48xlarge": [("Training", 60.0), ("Hosting", 90.0), ("Training", 0.0)],
            "ml.g5.8xlarge": [("Training", 3.0), ("Processing", 3.5)],
            "ml.m5.12xlarge": [("Processing", 2.5), ("Processing", 2.0), ("Training", 2.2)],
        }
        self.denied: str = ""
        self.quotas = {"ml.p5.48xlarge for training job usage": 0.0}
        self.regions: set[str] = set()

    def answer(self, request: Seen) -> Answer | None:
        operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
        sent = json.loads(request.content or b"{}") if operation else {}
        if operation and operation == self.denied:
            return 400, b'{"__type": "AccessDeniedException", "message": "no"}'
        if operation == "GetProducts":
            assert not request_problems("pricing", operation, sent)
            self.regions.add(request.headers["authorization"].split("/")[2])
            wanted = {entry["Field"]: entry["Value"] for entry in sent["Filters"]}
            assert (sent["ServiceCode"], wanted["regionCode"]) == ("AmazonSageMaker", "us-west-2")
            kind, start = wanted["instanceName"], int(sent.get("NextToken", "0"))
            rows = [product(kind, *row) for row in self.listed.get(kind, [])]
            more = {"NextToken": str(start + 1)} if start + 1 < len(rows) else {}
            return 200, json.dumps({"FormatVersion": "aws_v1", "PriceList": rows[start : start + 1], **more}).encode()
        if operation in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
            rows = [{"QuotaName": name, "Value": value, "QuotaCode": "L-1"} for name, value in self.quotas.items()]
            return 200, json.dumps({"Quotas": rows if operation == "ListServiceQuotas" else []}).encode()
        return None


@pytest.fixture(scope="module")
def server() -> Iterator[AccountStandIn]:
    with account_stand_in() as account:
        yield account


@pytest.fixture
def account(server: AccountStandIn, monkeypatch: pytest.MonkeyPatch) -> PriceList:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    found = PriceList()
    server.seen.clear()
    server.in_the_way = found.answer
    return found


def test_the_accounts_prices_count_before_the_tables(account: PriceList, planned: Planned) -> None:
    found = planned(P5, words=("--check-account",))
    steps = {row["step"]: row for row in found["steps"]}
    assert account.regions == {"us-east-1"}
    assert steps["ContinuedPretraining"]["usd_per_hour"] == 60.0
    assert steps["ContinuedPretraining"]["price_source"] == "AWS Price List API"
    assert steps["ContinuedPretraining"]["price_date"] == "2026-11-01"
    # By the kind of job; of several the dearest.
    assert (steps["FineTune"]["usd_per_hour"], steps["Evaluate"]["usd_per_hour"]) == (3.0, 3.5)
    assert steps["PrepareCorpus"]["usd_per_hour"] == 2.5
    # Not listed: the table's.
    assert steps["AdaptVocabulary"]["usd_per_hour"] == 0.922
    assert found["cost"]["unpriced"] == []
    told = {check["name"]: check["text"] for check in found["account"]["checks"]}
    assert told["price ml.p5.48xlarge"] == "price ml.p5.48xlarge: 60 USD an hour for Training"
    assert told["price ml.m5.4xlarge"].startswith("price ml.m5.4xlarge: the price list has none for us-west-2")


def test_quotas_are_read(account: PriceList, planned: Planned, plan: Callable[..., tuple[int, str, str]]) -> None:
    found = planned(P5, words=("--check-account",))["account"]
    told = {check["name"]: check for check in found["checks"]}
    quota = told["quota ml.p5.48xlarge for training job usage"]
    assert (quota["state"], quota["found"], found["ok"]) == ("missing", "0; 1 for ContinuedPretraining", False)
    kinds = (("m5.12xlarge", "processing", 2), ("m5.4xlarge", "processing", 1), ("g5.8xlarge", "processing", 1),
             ("g5.8xlarge", "training", 1), ("p5.48xlarge", "training", 1))  # fmt: skip
    account.quotas = {f"ml.{kind} for {usage} job usage": float(value) for kind, usage, value in kinds}
    code, output, _ = plan("--preset", P5, "--check-account")
    assert code == 0
    assert "missing              quota" not in output
    assert "ok                   quota ml.p5.48xlarge for training job usage: 1; 1 for ContinuedPretraining" in output


@pytest.mark.parametrize(
    ("operation", "action"),
    [("GetProducts", "pricing:GetProducts"), ("ListServiceQuotas", "servicequotas:ListServiceQuotas")],
)
def test_what_may_not_be_read_is_told(account: PriceList, planned: Planned, operation: str, action: str) -> None:
    account.denied = operation
    found = planned(P5, words=("--check-account",))
    denied = [check for check in found["account"]["checks"] if check["state"] == "not allowed to look"]
    assert len(denied) == 1
    assert f"Allow {action}" in denied[0]["text"]
    # The rest of the plan is made with what is known.
    price = 63.296 if operation == "GetProducts" else 60.0
    assert found["steps"][4]["usd_per_hour"] == price


def test_credentials_that_do_not_work_are_one_line(
    account: PriceList, server: AccountStandIn, plan: Callable[..., tuple[int, str, str]]
) -> None:
    server.in_the_way = lambda request: (400, b'{"__type": "ExpiredTokenException", "message": "expired"}')
    code, output, errors = plan("--preset", P5, "--check-account")
    assert (code, output) == (1, "")
    assert errors.startswith("error: AWS credentials: ")
    assert len(errors.splitlines()) == 1


def test_without_the_option_nothing_is_asked(account: PriceList, server: AccountStandIn, planned: Planned) -> None:
    assert planned(P5)["account"] is None
    assert server.seen == []
