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
        name, approval = environment.name, environment.approval
        watching = Watching(self, "Watching", looking=looking)
        functions: list[HandlerFunction] = []
        queues = [watching.dead_letters]

        if environment.schedule:
            Schedule(self, "Schedule", name=name, pipeline_arn=pipeline_arn, option=environment.schedule,
                     watching=watching)  # fmt: skip
        if environment.new_data:
            new_data = NewData(
                self, "NewData", name=name, pipeline_arn=pipeline_arn, option=environment.new_data, storage=storage,
                watching=watching, workloads=workloads,
            )  # fmt: skip
            functions.append(new_data.function)
            queues.append(new_data.events.dead_letters)
        if not tells_people(environment):
            return
        notifications = Notifications(
            self, "Notifications", name=name, pipeline_arn=pipeline_arn, key=storage.key, mails=environment.mails,
            tells_approved=approval is not None and approval.action == "notify", watching=watching,
            workloads=workloads,
        )  # fmt: skip
        functions.append(notifications.function)
        endpoint = None
        if approval and approval.action == "deploy":
            assert environment.serving_image_uri is not None, "checked with the environment"
            deployed = Approval(
                self, "Approval", name=name, option=approval, serving_image_uri=environment.serving_image_uri,
                storage=storage, container_policy=container_policy, network=network, notifications=notifications,
                watching=watching, workloads=workloads,
            )  # fmt: skip
            endpoint = deployed.endpoint
            functions.append(deployed.function)
            queues.append(deployed.events.dead_letters)
        if environment.budget:
            budget = Budget(
                self, "Budget", name=name, pipeline_arn=pipeline_arn, option=environment.budget,
                notifications=notifications, watching=watching, workloads=workloads,
            )  # fmt: skip
            functions += [budget.function] if budget.function else []
        if environment.monitoring:
            Monitoring(
                self, "Monitoring", name=name, option=environment.monitoring, notifications=notifications,
                watching=watching, workloads=workloads, functions=functions, dead_letters=queues, endpoint=endpoint,
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
