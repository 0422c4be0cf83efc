"""A function of infra/handlers/: its settings, the topic it writes to, the queue it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.constructs.watching import RETENTION_DAYS
from infra.constructs.workloads import Workloads
from infra.policies import allow

# Lambda asks that a message stays hidden for six times the function's time limit.
TIMEOUT_SECONDS = 50
HIDDEN_SECONDS = 300
# All messages of a queue come one after the other.
MESSAGE_GROUP = "all"


class HandlerFunction(Construct):
    """function, role and policy as of PythonFunction."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        handler: str,
        description: str,
        workloads: Workloads,
        settings: Mapping[str, Any],
        statements: Sequence[iam.PolicyStatement] = (),
        looks_by: iam.IManagedPolicy | None = None,
        topic: sns.ITopic | None = None,
        topic_key: kms.IKey | None = None,
        dead_letters: sqs.IQueue | None = None,
    ) -> None:
        """handler: name of the module. settings: what it reads from SETTINGS, besides the topic's ARN. topic_key: that
        the topic is encrypted with. dead_letters: where an event ends that the function failed to answer thrice."""
        super().__init__(scope, construct_id)
        own = list(statements)
        told = dict(settings)
        if topic is not None and topic_key is not None:
            told["topic_arn"] = topic.topic_arn
            own += publish_statements(topic, topic_key)
        if dead_letters is not None:
            own.append(allow(actions=["sqs:SendMessage"], resources=[dead_letters.queue_arn]))
        made = PythonFunction(
            self, "Python", module=f"infra.handlers.{handler}", description=f"langadapt: {description}",
            workloads=workloads, statements=own, timeout_seconds=TIMEOUT_SECONDS,
            environment={"SETTINGS": Stack.of(self).to_json_string(told)},
        )  # fmt: skip
        self.function, self.role, self.policy = made.function, made.role, made.policy
        if looks_by is not None:
            self.role.add_managed_policy(looks_by)
        if dead_letters is not None:
            resource = self.function.node.default_child
            assert isinstance(resource, lambda_.CfnFunction)
            resource.dead_letter_config = lambda_.CfnFunction.DeadLetterConfigProperty(
                target_arn=dead_letters.queue_arn
            )


class EventQueue(Construct):
    """Events in order, one at a time, given to a function until it keeps none of them; then to `dead_letters`."""

    def __init__(
        self, scope: Construct, construct_id: str, *, delay_seconds: int = 0, max_receives: int, batch_size: int
    ) -> None:
        """delay_seconds: that every event waits, at most 900. max_receives: how often an event is given to the
        function, every five minutes."""
        super().__init__(scope, construct_id)
        self.batch_size = batch_size
        shared: dict[str, Any] = {
            "fifo": True, "encryption": sqs.QueueEncryption.SQS_MANAGED, "enforce_ssl": True,
            "retention_period": Duration.days(RETENTION_DAYS),
        }  # fmt: skip
        self.dead_letters = sqs.Queue(self, "DeadLetters", **shared)
        self.queue = sqs.Queue(
            self, "Queue", **shared, content_based_deduplication=True,
            delivery_delay=Duration.seconds(delay_seconds), visibility_timeout=Duration.seconds(HIDDEN_SECONDS),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=max_receives),
        )  # fmt: skip

    def read_statement(self) -> iam.PolicyStatement:
        """What the role of the function needs, that Lambda reads the queue with."""
        actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
        return allow(actions=actions, resources=[self.queue.queue_arn])

    def give_to(self, function: HandlerFunction) -> None:
        mapping = lambda_.EventSourceMapping(
            self, "Mapping", target=function.function, event_source_arn=self.queue.queue_arn,
            batch_size=self.batch_size, report_batch_item_failures=True,
        )  # fmt: skip
        # Lambda looks at the role when the mapping is made.
        assert function.policy is not None
        mapping.node.add_dependency(function.policy)

    def receive(
        self, construct_id: str, *, description: str, pattern: events.EventPattern, dead_letters: sqs.IQueue
    ) -> None:
        """Lets events of a pattern come into the queue."""
        rule = events.Rule(self, construct_id, description=f"langadapt: {description}", event_pattern=pattern)
        rule.add_target(targets.SqsQueue(self.queue, message_group_id=MESSAGE_GROUP, dead_letter_queue=dead_letters))


def publish_statements(topic: sns.ITopic, key: kms.IKey) -> list[iam.PolicyStatement]:
    """What writing to an encrypted topic needs."""
    via_sns = {"StringEquals": {"kms:ViaService": f"sns.{Aws.REGION}.amazonaws.com"}}
    return [
        allow(actions=["sns:Publish"], resources=[topic.topic_arn]),
        allow(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key.key_arn], conditions=via_sns),
    ]
