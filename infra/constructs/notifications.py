"""The topic that people read, and the function that writes to it what waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.handler_function import HandlerFunction
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.handlers.notify import APPROVED, EXECUTION_CHANGED, PACKAGE_CHANGED, PENDING
from infra.policies import arn


class EncryptedTopic(Construct):
    """A topic that is encrypted with a key of the account, over TLS alone, that named services may write to."""

    def __init__(
        self, scope: Construct, construct_id: str, *, key: kms.Key, writers: dict[str, str], description: str
    ) -> None:
        """writers: principals of services, with the ARN pattern of those of their resources that write."""
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", display_name=description, master_key=key, enforce_ssl=True)
        for service, source_arn in writers.items():
            # The confused deputy: the service writes for this account's own resources alone.
            conditions = {
                "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}, "ArnLike": {"aws:SourceArn": source_arn}
            }  # fmt: skip
            principals = [iam.ServicePrincipal(service)]
            self.topic.add_to_resource_policy(iam.PolicyStatement(
                actions=["sns:Publish"], resources=[self.topic.topic_arn], principals=principals, conditions=conditions,
            ))  # fmt: skip
            key.add_to_resource_policy(iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=["*"], principals=principals,
                conditions=conditions,
            ))  # fmt: skip


class Notifications(Construct):
    """topic: what people read. key: that it is encrypted with."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        pipeline_arn: str,
        key: kms.Key,
        mails: Sequence[str],
        tells_approved: bool,
        watching: Watching,
        workloads: Workloads,
    ) -> None:
        """name: of pipeline and model package group. tells_approved: as nothing else answers an approval."""
        super().__init__(scope, construct_id)
        self.key = key
        alarms = arn(self, service="cloudwatch", resource="alarm:*")
        budgets = f"arn:{Aws.PARTITION}:budgets::{Aws.ACCOUNT_ID}:*"
        self.topic = EncryptedTopic(
            self, "People", key=key, description=name,
            writers={"cloudwatch.amazonaws.com": alarms, "budgets.amazonaws.com": budgets},
        ).topic  # fmt: skip
        for mail in mails:
            self.topic.add_subscription(subscriptions.EmailSubscription(mail))
        self.function = HandlerFunction(
            self, "Notify", handler="notify", description="tells of failures, closed gates and versions that wait",
            workloads=workloads, looks_by=watching.policy, topic=self.topic, topic_key=key,
            dead_letters=watching.dead_letters,
            settings={"pipeline": name, "group": name, "tells_approved": tells_approved},
        )  # fmt: skip
        self._answer("Failed", "an execution has failed", watching, events.EventPattern(
            source=["aws.sagemaker"], detail_type=[EXECUTION_CHANGED],
            detail={"pipelineArn": [pipeline_arn], "currentPipelineExecutionStatus": ["Failed"]},
        ))  # fmt: skip
        statuses = [PENDING, *([APPROVED] if tells_approved else [])]
        self._answer("Versions", "a model version waits for a person", watching, events.EventPattern(
            source=["aws.sagemaker"], detail_type=[PACKAGE_CHANGED],
            detail={"ModelPackageGroupName": [name], "ModelApprovalStatus": statuses},
        ))  # fmt: skip

    def _answer(self, construct_id: str, description: str, watching: Watching, pattern: events.EventPattern) -> None:
        rule = events.Rule(self, construct_id, description=f"langadapt: {description}", event_pattern=pattern)
        rule.add_target(targets.LambdaFunction(self.function.function, dead_letter_queue=watching.dead_letters))
