"""What the functions that answer events have in common: what they may look at, and where events end that fail."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Duration, Validations
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.looking import Looking

RETENTION_DAYS = 14


class Watching(Construct):
    """policy: looking at executions and model versions, changing nothing. dead_letters: what could not be answered."""

    def __init__(self, scope: Construct, construct_id: str, *, looking: Looking) -> None:
        super().__init__(scope, construct_id)
        self.policy = looking.policy
        self.dead_letters = sqs.Queue(
            self, "DeadLetters", encryption=sqs.QueueEncryption.SQS_MANAGED, enforce_ssl=True,
            retention_period=Duration.days(RETENTION_DAYS),
        )  # fmt: skip

    def acknowledge_dead_letters(self) -> None:
        """Where no function has them as its own: cdk-nag knows a dead-letter queue by functions and queues alone."""
        queue = self.dead_letters.node.default_child
        assert queue is not None
        reason = "It is a dead-letter queue itself, of Scheduler and of EventBridge's rules."
        Validations.of(queue).acknowledge(Acknowledgment(id="AwsSolutions-SQS3", reason=reason))
