"""An approved version goes to the endpoint, by infra/handlers/deploy_approved_model.py; what serves it, and as whom."""

from __future__ import annotations

import re

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.handler_function import EventQueue, HandlerFunction
from infra.constructs.network import Network
from infra.constructs.notifications import Notifications
from infra.constructs.storage import Storage
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.environment_options import ApprovalOption
from infra.handlers.deploy_approved_model import DETAIL_TYPE
from infra.handlers.served_endpoint import VARIANT, name_start
from infra.policies import acknowledge_wildcards, allow, arn, service_trust

# Every five minutes, for four hours: longer than any update may take.
MAX_RECEIVES = 48
# Of answers with a fault of the server in a minute.
MAX_FAULTS = 5
# Minutes in a row: less than the shortest time that both fleets stand side by side.
ALARM_MINUTES = 2
SAGEMAKER = "sagemaker.amazonaws.com"
IN_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.[a-z0-9.-]+/([^@:]+)")


class ServingRole(Construct):
    """What the endpoint's containers run as: they read models, their image, and write their log."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        storage: Storage,
        container_policy: iam.IManagedPolicy,
        image_uri: str,
        alarms: list[str],
    ) -> None:
        """alarms: ARNs of those that roll an update back, which the endpoint's role looks at."""
        super().__init__(scope, construct_id)
        found = IN_ECR.match(image_uri)
        assert found is not None, "an image that serves lies in ECR"
        repository = f"arn:{Aws.PARTITION}:ecr:{found[2]}:{found[1]}:repository/{found[3]}"
        self.role = iam.Role(
            self, "Role", description="langadapt: containers that serve a model",
            assumed_by=service_trust(SAGEMAKER, source_arn=arn(self, service="sagemaker", resource="*")),
            managed_policies=[container_policy],
        )  # fmt: skip
        storage.let_read(self.role, patterns=["models/*"])
        self.policy = iam.Policy(
            self, "Policy", roles=[self.role],
            statements=[
                allow(actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
                      resources=[repository]),
                allow(actions=["cloudwatch:DescribeAlarms"], resources=alarms),
            ],
        )  # fmt: skip


class Approval(Construct):
    """A queue of decisions of the registry, the function that brings the endpoint up to date, alarms of the endpoint.

    There is no endpoint before the first approval. It, its models and its configurations are the function's: they are
    left when the stack is deleted.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        option: ApprovalOption,
        serving_image_uri: str,
        storage: Storage,
        container_policy: iam.IManagedPolicy,
        network: Network | None,
        notifications: Notifications,
        watching: Watching,
        workloads: Workloads,
    ) -> None:
        """name: of the model package group, and of the endpoint where the option names none."""
        super().__init__(scope, construct_id)
        self.group, self.endpoint = name, option.endpoint_name or name
        self.alarms = self._alarms(option, notifications)
        alarm_arns = [alarm.alarm_arn for alarm in self.alarms]
        serving = ServingRole(
            self, "Serving", storage=storage, container_policy=container_policy, image_uri=serving_image_uri,
            alarms=alarm_arns,
        )  # fmt: skip
        self.events = EventQueue(self, "Events", max_receives=MAX_RECEIVES, batch_size=1)
        self.function = HandlerFunction(
            self, "Deploy", handler="deploy_approved_model", description="brings the endpoint up to date",
            workloads=workloads, looks_by=watching.policy, topic=notifications.topic, topic_key=notifications.key,
            settings={
                "group": name, "endpoint": self.endpoint, "role_arn": serving.role.role_arn,
                "instance_type": option.instance_type, "instance_count": option.instance_count,
                "alarms": [alarm.alarm_name for alarm in self.alarms],
                "bake_seconds": option.termination_wait_seconds,
                "subnets": list(network.subnets) if network else [],
                "security_groups": [network.jobs.security_group_id] if network else [],
            },
            statements=[self.events.read_statement(), *self._statements(serving.role, alarm_arns)],
        )  # fmt: skip
        assert self.function.policy is not None
        acknowledge_wildcards(
            self.function.policy, resources=list(self._deployments()),
            reason="The function names what it makes by version and digest, below the endpoint's name; versions have "
            "numbers.",
        )  # fmt: skip
        self.function.function.node.add_dependency(serving.policy)
        self.events.give_to(self.function)
        self.events.receive(
            "Decisions", description="a model version was decided on", dead_letters=watching.dead_letters,
            pattern=events.EventPattern(
                source=["aws.sagemaker"], detail_type=[DETAIL_TYPE], detail={"ModelPackageGroupName": [name]}
            ),
        )  # fmt: skip

    def _deployments(self) -> tuple[str, str, str]:
        """ARNs of models and of endpoint configurations that the function makes, and of versions that it makes them
        from."""
        start = name_start(self.endpoint)
        return (
            arn(self, service="sagemaker", resource=f"model/{start}*"),
            arn(self, service="sagemaker", resource=f"endpoint-config/{start}*"),
            arn(self, service="sagemaker", resource=f"model-package/{self.group}/*"),
        )

    def _statements(self, serving_role: iam.Role, alarm_arns: list[str]) -> list[iam.PolicyStatement]:
        models, configurations, versions = self._deployments()
        endpoint = arn(self, service="sagemaker", resource=f"endpoint/{self.endpoint}")
        return [
            # A model that is made from a version asks for the version, too.
            allow(actions=["sagemaker:CreateModel"], resources=[models, versions]),
            allow(actions=["sagemaker:DescribeModel"], resources=[models]),
            allow(actions=["sagemaker:CreateEndpointConfig", "sagemaker:DescribeEndpointConfig"],
                  resources=[configurations]),
            allow(actions=["sagemaker:CreateEndpoint", "sagemaker:UpdateEndpoint"],
                  resources=[endpoint, configurations]),
            allow(actions=["sagemaker:AddTags", "sagemaker:DescribeEndpoint", "sagemaker:ListTags"],
                  resources=[endpoint]),
            allow(actions=["cloudwatch:DescribeAlarms"], resources=alarm_arns),
            allow(actions=["iam:PassRole"], resources=[serving_role.role_arn],
                  conditions={"StringEquals": {"iam:PassedToService": SAGEMAKER}}),
        ]  # fmt: skip

    def _alarms(self, option: ApprovalOption, notifications: Notifications) -> list[cloudwatch.Alarm]:
        """Any of them rolls an update back, and is told."""
        faults = self._alarm(
            "Faults", "Invocation5XXErrors", "Sum", MAX_FAULTS, f"more than {MAX_FAULTS} faults a minute"
        )
        latency = self._alarm(
            "Latency", "ModelLatency", "p90", option.max_latency_seconds * 1e6,
            f"one answer in ten takes longer than {option.max_latency_seconds:g} s",
        )  # fmt: skip
        for alarm in (faults, latency):
            alarm.add_alarm_action(actions.SnsAction(notifications.topic))
        return [faults, latency]

    def _alarm(
        self, construct_id: str, metric: str, statistic: str, threshold: float, description: str
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self, construct_id, alarm_name=f"{self.endpoint}-{construct_id.lower()}",
            alarm_description=f"Endpoint {self.endpoint}: {description}",
            metric=cloudwatch.Metric(
                namespace="AWS/SageMaker", metric_name=metric, statistic=statistic, period=Duration.minutes(1),
                dimensions_map={"EndpointName": self.endpoint, "VariantName": VARIANT},
            ),
            threshold=threshold, evaluation_periods=ALARM_MINUTES,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )  # fmt: skip
