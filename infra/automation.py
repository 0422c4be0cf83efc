"""THE AUTOMATION, top to bottom: what of an environment's options starts, deploys, tells, watches and stops."""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.approval import Approval
from infra.constructs.budget import Budget
from infra.constructs.handler_function import HandlerFunction
from infra.constructs.looking import Looking
from infra.constructs.monitoring import Monitoring
from infra.constructs.network import Network
from infra.constructs.new_data import NewData
from infra.constructs.notifications import Notifications
from infra.constructs.schedule import Schedule
from infra.constructs.storage import Storage
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.environment import EnvironmentConfig
from pipeline.references import parameter_values
from steps.contract import ConfigError


class Automation(Construct):
    """What goes on between executions. An option that the environment leaves out has no resource here."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentConfig,
        pipeline_arn: str,
        storage: Storage,
        looking: Looking,
        container_policy: iam.IManagedPolicy,
        network: Network | None,
        workloads: Workloads,
    ) -> None:
        """container_policy: what any container of SageMaker needs, for those that serve."""
        super().__init__(scope, construct_id)
        if not is_wanted(environment):
            return
        self.environment, self.pipeline_arn, self.storage, self.workloads = (
            environment, pipeline_arn, storage, workloads,
        )  # fmt: skip
        self.watching = Watching(self, "Watching", looking=looking)
        # What the monitoring looks at, as it comes.
        self.functions: list[HandlerFunction] = []
        self.dead_letters = [self.watching.dead_letters]
        self._start_executions()
        if tells_people(environment):
            self._tell_people(container_policy, network)
        else:
            self.watching.acknowledge_dead_letters()

    def _start_executions(self) -> None:
        """By time and for new data."""
        environment = self.environment
        if environment.schedule:
            Schedule(self, "Schedule", name=environment.name, pipeline_arn=self.pipeline_arn,
                     option=environment.schedule, watching=self.watching)  # fmt: skip
        if environment.new_data:
            new_data = NewData(
                self, "NewData", name=environment.name, pipeline_arn=self.pipeline_arn, option=environment.new_data,
                storage=self.storage, watching=self.watching, workloads=self.workloads,
            )  # fmt: skip
            self.functions.append(new_data.function)
            self.dead_letters.append(new_data.events.dead_letters)

    def _tell_people(self, container_policy: iam.IManagedPolicy, network: Network | None) -> None:
        """What has happened, of the endpoint that follows the approvals, of money, of silence."""
        environment, name = self.environment, self.environment.name
        approval = environment.approval
        notifications = Notifications(
            self, "Notifications", name=name, pipeline_arn=self.pipeline_arn, key=self.storage.key,
            mails=environment.mails, tells_approved=approval is not None and approval.action == "notify",
            watching=self.watching, workloads=self.workloads,
        )  # fmt: skip
        self.functions.append(notifications.function)
        endpoint = None
        if approval and approval.action == "deploy":
            assert environment.serving_image_uri is not None, "checked with the environment"
            deployed = Approval(
                self, "Approval", name=name, option=approval, serving_image_uri=environment.serving_image_uri,
                storage=self.storage, container_policy=container_policy, network=network,
                notifications=notifications, watching=self.watching, workloads=self.workloads,
            )  # fmt: skip
            endpoint = deployed.endpoint
            self.functions.append(deployed.function)
            self.dead_letters.append(deployed.events.dead_letters)
        if environment.budget:
            budget = Budget(
                self, "Budget", name=name, pipeline_arn=self.pipeline_arn, option=environment.budget,
                notifications=notifications, watching=self.watching, workloads=self.workloads,
            )  # fmt: skip
            self.functions += [budget.function] if budget.function else []
        if environment.monitoring:
            Monitoring(
                self, "Monitoring", name=name, option=environment.monitoring, notifications=notifications,
                watching=self.watching, workloads=self.workloads, functions=self.functions,
                dead_letters=self.dead_letters, endpoint=endpoint,
            )  # fmt: skip


def tells_people(environment: EnvironmentConfig) -> bool:
    """Whether there is a topic: somebody is named, or an option has something to tell."""
    return bool(environment.mails or environment.approval or environment.budget or environment.monitoring)


def is_wanted(environment: EnvironmentConfig) -> bool:
    return bool(tells_people(environment) or environment.schedule or environment.new_data)


def check_parameters(environment: EnvironmentConfig, declared: list[dict[str, Any]]) -> None:
    """Raises ConfigError for a parameter that executions of a schedule or of new data are to get and that the
    definition does not have, or for a value that it does not take."""
    for option in ("schedule", "new_data"):
        section = getattr(environment, option)
        try:
            parameter_values(declared, section.parameters if section else {})
        except ConfigError as error:
            subject = f"{option}.parameters.{error.subject.removeprefix('--param ')}"
            raise ConfigError(subject, error.value, limit=error.limit, remedy=error.remedy) from error
