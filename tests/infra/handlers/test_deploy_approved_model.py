"""Approvals lead to one deployment each, whatever comes twice, late or in another order."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from account_stand_in import REGION
from answered_calls import ACCOUNT, RefusedError
from automated_account import NAME, TOPIC_ARN, AutomatedAccount, package_arn, package_event

from infra.handlers.deploy_approved_model import handler
from infra.handlers.events import EventError
from infra.handlers.served_endpoint import Settings, deployment_config

ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/langadapt-dev-serving"
SETTINGS = {
    "topic_arn": TOPIC_ARN, "group": NAME, "endpoint": NAME, "role_arn": ROLE_ARN, "instance_type": "ml.g5.xlarge",
    "instance_count": 1, "alarms": ["langadapt-dev-errors", "langadapt-dev-latency"],
}  # fmt: skip


class Queue:
    """The queue before the handler: a message comes again until the handler keeps it no longer."""

    def __init__(self, account: AutomatedAccount) -> None:
        self.account = account

    def once(self, event: Any) -> bool:
        """Whether the message is done with."""
        record = {"messageId": "m-1", "body": event if isinstance(event, str) else json.dumps(event)}
        return handler({"Records": [record]}, None) == {"batchItemFailures": []}

    def until_done(self, event: dict[str, Any], failure: str = "") -> None:
        for _ in range(5):
            if self.once(event):
                return
            self.account.end_deployment(failure)
        raise AssertionError("the message comes again and again")


@pytest.fixture
def queue(account: AutomatedAccount, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setenv("SETTINGS", json.dumps(SETTINGS))
    return Queue(account)


def deployments(account: AutomatedAccount) -> int:
    return len(account.sent("CreateEndpoint")) + len(account.sent("UpdateEndpoint"))


def test_the_first_approval_makes_an_endpoint(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    assert account.served_version() == 1
    (model,) = account.sent("CreateModel")
    assert model["Containers"] == [{"ModelPackageName": package_arn(1)}]
    assert (model["ExecutionRoleArn"], model["EnableNetworkIsolation"]) == (ROLE_ARN, True)
    (variant,) = account.sent("CreateEndpointConfig")[0]["ProductionVariants"]
    assert (variant["InstanceType"], variant["InitialInstanceCount"]) == ("ml.g5.xlarge", 1)
    assert [subject for subject, _ in account.told] == [f"Endpoint {NAME} serves version 1 of {NAME}"]


def test_the_same_event_ten_times_gives_one_deployment(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    event = account.decide(1, "Approved")
    for _ in range(10):
        queue.until_done(event)
    assert (deployments(account), len(account.models), len(account.configs), len(account.told)) == (1, 1, 1, 1)


def test_the_same_event_ten_times_while_the_endpoint_is_made(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    event = account.decide(1, "Approved")
    assert [queue.once(event) for _ in range(10)] == [False] * 10
    assert deployments(account) == 1


def test_a_newer_version_takes_over_beside_the_old_one(account: AutomatedAccount, queue: Queue) -> None:
    for version in (1, 2):
        account.register(version)
        queue.until_done(account.decide(version, "Approved"))
    assert account.served_version() == 2
    (update,) = account.sent("UpdateEndpoint")
    config = update["DeploymentConfig"]
    assert config["AutoRollbackConfiguration"]["Alarms"] == [
        {"AlarmName": "langadapt-dev-errors"}, {"AlarmName": "langadapt-dev-latency"}
    ]  # fmt: skip
    routing = config["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    assert routing == {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 600}


def test_several_instances_get_a_canary_first() -> None:
    settings = Settings(NAME, NAME, ROLE_ARN, "ml.g5.xlarge", 4, ("errors",))
    routing = deployment_config(settings)["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    assert (routing["Type"], routing["CanarySize"]) == ("CANARY", {"Type": "INSTANCE_COUNT", "Value": 1})


def test_events_out_of_order_end_with_the_newest_version(account: AutomatedAccount, queue: Queue) -> None:
    for version in (1, 2, 3):
        account.register(version)
    events = [account.decide(version, "Approved") for version in (1, 2, 3)]
    shuffled = events * 3
    random.Random(7).shuffle(shuffled)
    for event in shuffled:
        queue.until_done(event)
    assert (account.served_version(), deployments(account)) == (3, 1)


def test_a_stale_approval_of_a_version_rejected_since_deploys_nothing(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    approved, rejected = account.decide(1, "Approved"), account.decide(1, "Rejected")
    for event in (rejected, approved):
        queue.until_done(event)
    assert (deployments(account), account.told) == (0, [])


def test_rejecting_what_is_served_goes_back_to_the_newest_approved(account: AutomatedAccount, queue: Queue) -> None:
    for version in (1, 2):
        account.register(version)
        queue.until_done(account.decide(version, "Approved"))
    rejected = account.decide(2, "Rejected")
    for _ in range(3):
        queue.until_done(rejected)
    assert (account.served_version(), deployments(account)) == (1, 3)
    assert account.told[-1][0] == f"Endpoint {NAME} serves version 1 of {NAME}"
    queue.until_done(account.decide(2, "Approved"))
    assert (account.served_version(), deployments(account), len(account.configs)) == (2, 4, 2)


def test_without_an_approved_version_the_endpoint_stays_and_a_person_is_told_once(
    account: AutomatedAccount, queue: Queue
) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    rejected = account.decide(1, "Rejected")
    for _ in range(3):
        queue.until_done(rejected)
    assert (account.served_version(), deployments(account), len(account.told)) == (1, 1, 2)
    assert "delete-endpoint" in account.told[-1][1]


def test_a_failed_update_is_rolled_back_and_told_once(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    account.register(2)
    approved = account.decide(2, "Approved")
    for _ in range(10):
        queue.until_done(approved, failure="an alarm went off")
    assert (account.served_version(), deployments(account)) == (1, 2)
    assert [subject for subject, _ in account.told[1:]] == [f"Endpoint {NAME}: the update to version 2 was rolled back"]
    assert "an alarm went off" in account.told[1][1]
    account.decide(2, "Rejected")
    queue.until_done(account.decide(2, "Approved"))
    assert (account.served_version(), deployments(account)) == (2, 3)


def test_an_endpoint_that_could_not_be_made_is_left_to_a_person(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    approved = account.decide(1, "Approved")
    for _ in range(3):
        queue.until_done(approved, failure="CannotPullContainerError: no such image")
    assert (deployments(account), len(account.told)) == (1, 1)
    assert "is Failed: CannotPullContainerError" in account.told[0][0]
    assert "delete-endpoint" in account.told[0][1]


def test_approvals_while_an_update_goes_on_wait_for_it(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    for version in (2, 3):
        account.register(version)
    assert not queue.once(account.decide(2, "Approved"))
    third = account.decide(3, "Approved")
    assert not queue.once(third)
    account.end_deployment()
    queue.until_done(third)
    assert (account.served_version(), deployments(account)) == (3, 3)


def test_a_list_that_lags_behind_does_not_matter(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    account.hidden_from_lists.add(package_arn(1))
    queue.until_done(account.decide(1, "Approved"))
    assert account.served_version() == 1


def test_an_endpoint_that_somebody_took_away_comes_back_by_an_approval_alone(
    account: AutomatedAccount, queue: Queue
) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    account.endpoint = None
    account.register(2)
    for status in ("PendingManualApproval", "Rejected"):
        queue.until_done(account.decide(2, status))
    assert account.endpoint is None
    queue.until_done(account.decide(2, "Approved"))
    assert account.served_version() == 2


def test_what_somebody_gave_the_endpoint_by_hand_stays_until_the_next_approval(
    account: AutomatedAccount, queue: Queue
) -> None:
    account.register(1)
    approved = account.decide(1, "Approved")
    queue.until_done(approved)
    account.models["by-hand"], account.configs["by-hand"] = account.sent("CreateModel")[0], {"ModelName": "by-hand"}
    account.endpoint["EndpointConfigName"] = "by-hand"
    for _ in range(3):
        queue.until_done(approved)
    assert (account.endpoint["EndpointConfigName"], deployments(account), len(account.told)) == ("by-hand", 1, 2)
    assert account.told[-1][0] == f"Endpoint {NAME} was changed by hand: it serves by-hand, not version 1"
    account.decide(1, "Rejected")
    queue.until_done(account.decide(1, "Approved"))
    assert account.endpoint["EndpointConfigName"].startswith(f"{NAME}-v1-")


def test_a_version_that_is_registered_changes_nothing(
    account: AutomatedAccount, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the settings have changed meanwhile, which the next decision brings to the endpoint."""
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    monkeypatch.setenv("SETTINGS", json.dumps(SETTINGS | {"instance_type": "ml.g6e.xlarge"}))
    account.register(2)
    queue.until_done(package_event(2, "PendingManualApproval"))
    assert deployments(account) == 1
    queue.until_done(account.decide(2, "Rejected"))
    assert (deployments(account), account.served_version()) == (2, 1)
    assert account.configs[account.endpoint["EndpointConfigName"]]["InstanceType"] == "ml.g6e.xlarge"


def test_an_approval_that_is_taken_back_counts_as_a_rejection(account: AutomatedAccount, queue: Queue) -> None:
    for version in (1, 2):
        account.register(version)
        queue.until_done(account.decide(version, "Approved"))
    queue.until_done(account.decide(2, "PendingManualApproval"))
    assert account.served_version() == 1


def test_a_deployment_that_broke_off_goes_on(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    event = account.decide(1, "Approved")
    for operation in ("CreateEndpointConfig", "CreateEndpoint"):
        account.faults[operation] = [RefusedError("ThrottlingException", "Rate exceeded")]
        with pytest.raises(Exception, match="Rate exceeded"):
            queue.once(event)
    queue.until_done(event)
    assert (account.served_version(), len(account.models), len(account.configs)) == (1, 1, 1)


def test_an_action_that_is_not_allowed_is_no_missing_resource(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    account.faults["DescribeEndpoint"] = [RefusedError("AccessDeniedException", "not authorized", 403)]
    with pytest.raises(Exception, match="not authorized"):
        queue.once(account.decide(1, "Approved"))
    assert deployments(account) == 0


def test_a_version_that_was_deleted_is_deployed_no_more(account: AutomatedAccount, queue: Queue) -> None:
    queue.until_done(package_event(9, "Approved"))
    assert deployments(account) == 0


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ("no json", "message: no JSON: Expecting value"),
        ("[]", "message: a list; limit an event"),
        ({}, "event detail-type: missing; limit a text"),
        ({"detail-type": "Object Created"}, "event detail-type: Object Created; limit SageMaker Model Package State"),
        (package_event(1, "Approved") | {"detail": {}}, "event detail.ModelPackageGroupName: missing; limit a text"),
        (package_event(1, "Approved") | {"detail": {"ModelPackageGroupName": "other"}},
         "event detail.ModelPackageGroupName: other; limit langadapt-dev"),
        (package_event(1, "Approved") | {"detail": {"ModelPackageGroupName": NAME, "ModelPackageArn": "x"}},
         "event detail.ModelPackageArn: x; limit a model package's ARN"),
    ],
)  # fmt: skip
def test_what_is_no_event_of_the_group_is_told(account: AutomatedAccount, queue: Queue, event: Any, line: str) -> None:
    with pytest.raises(EventError) as raised:
        queue.once(event)
    assert str(raised.value).startswith(line)
    assert account.calls == []


def test_names_keep_to_the_services_limit(account: AutomatedAccount, queue: Queue) -> None:
    account.register(1)
    queue.until_done(account.decide(1, "Approved"))
    (name,) = account.configs
    assert name.startswith(f"{NAME}-v1-")
    assert len(name) == len(NAME) + len("-v1-") + 12
    assert REGION in account.endpoint["EndpointArn"]
