"""A monthly budget; where it is spent, running executions are stopped (infra/handlers/stop_over_budget.py).

AWS computes costs some times a day, so a stop comes 8 to 12 hours late or more. The hard limit of a job is its
max_runtime_seconds.
"""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.handler_function import HandlerFunction
from infra.constructs.notifications import EncryptedTopic, Notifications
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.environment_options import BudgetOption
from infra.policies import acknowledge_wildcards, allow


class Budget(Construct):
    """All SageMaker costs of the account: jobs of a pipeline do not carry its tags, so no tag tells them apart."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        pipeline_arn: str,
        option: BudgetOption,
        notifications: Notifications,
        watching: Watching,
        workloads: Workloads,
    ) -> None:
        """name: of the pipeline."""
        super().__init__(scope, construct_id)
        told = [_notification("ACTUAL", option.warn_at_percent, notifications.topic.topic_arn),
                _notification("FORECASTED", 100, notifications.topic.topic_arn)]  # fmt: skip
        topic = None
        if option.stop_at_percent is not None:
            writers = {"budgets.amazonaws.com": f"arn:{Aws.PARTITION}:budgets::{Aws.ACCOUNT_ID}:*"}
            topic = EncryptedTopic(
                self, "Spent", key=notifications.key, writers=writers, description=f"{name} budget"
            ).topic  # fmt: skip
            told.append(_notification("ACTUAL", option.stop_at_percent, topic.topic_arn))
        # CloudFormation gives it a name: to change whom it tells is to make another one, before this one goes.
        self.resource = budgets.CfnBudget(
            self, "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST", time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=option.monthly_usd, unit="USD"),
                cost_filters={"Service": ["Amazon SageMaker"]},
            ),
            notifications_with_subscribers=told,
        )  # fmt: skip
        self.function: HandlerFunction | None = None
        if topic is not None:
            self.function = self._stopping(name, pipeline_arn, topic, notifications, watching, workloads)

    def _stopping(
        self,
        name: str,
        pipeline_arn: str,
        topic: sns.Topic,
        notifications: Notifications,
        watching: Watching,
        workloads: Workloads,
    ) -> HandlerFunction:
        """The function that stops executions. topic: whose messages say that the budget is spent."""
        executions = f"{pipeline_arn}/execution/*"
        function = HandlerFunction(
            self, "Stop", handler="stop_over_budget", description="stops executions when the budget is spent",
            workloads=workloads, looks_by=watching.policy, topic=notifications.topic, topic_key=notifications.key,
            dead_letters=watching.dead_letters,
            settings={"pipeline": name, "budget": self.resource.ref, "budget_topic_arn": topic.topic_arn},
            statements=[allow(actions=["sagemaker:StopPipelineExecution"], resources=[executions])],
        )  # fmt: skip
        assert function.policy is not None
        acknowledge_wildcards(
            function.policy, resources=[executions], reason="The service names executions at run time."
        )
        topic.add_subscription(
            subscriptions.LambdaSubscription(function.function, dead_letter_queue=watching.dead_letters)
        )
        return function


def _notification(kind: str, percent: float, topic_arn: str) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            notification_type=kind, comparison_operator="GREATER_THAN", threshold=percent, threshold_type="PERCENTAGE"
        ),
        subscribers=[budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic_arn)],
    )
