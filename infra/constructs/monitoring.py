"""The dashboard of an environment, and alarms that write to the topic.

Spending is told by the budget (infra/constructs/budget.py): CloudWatch has costs in us-east-1 alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.handler_function import HandlerFunction
from infra.constructs.notifications import Notifications
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.environment_options import MonitoringOption
from infra.handlers.measure_silence import DAYS_MEMBER
from infra.handlers.served_endpoint import VARIANT

EXECUTIONS = "AWS/Sagemaker/ModelBuildingPipeline"
NAMESPACE, SILENCE = "langadapt", "DaysWithoutSuccess"
# Four measurements a day, so that each day has one.
MEASURED_EVERY_HOURS = 6


class Monitoring(Construct):
    """alarms: of executions, of silence, of functions and of what they could not answer."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        option: MonitoringOption,
        notifications: Notifications,
        watching: Watching,
        workloads: Workloads,
        functions: Sequence[HandlerFunction],
        dead_letters: Sequence[sqs.IQueue],
        endpoint: str | None,
    ) -> None:
        """name: of the pipeline. functions, dead_letters: of all that answer events. endpoint: None where nothing
        deploys one."""
        super().__init__(scope, construct_id)
        self._name, self._notifications = name, notifications
        self.silence = self._measure_silence(watching, workloads)
        executions = {
            kind: cloudwatch.Metric(
                namespace=EXECUTIONS, metric_name=f"Execution{kind}", dimensions_map={"PipelineName": name},
                statistic="Sum", period=Duration.minutes(5),
            ) for kind in ("Started", "Succeeded", "Failed", "Stopped")
        }  # fmt: skip
        errors = _sum("errors", [made.function.metric_errors() for made in (*functions, self.silence)])
        unanswered = _sum(
            "unanswered",
            [queue.metric_approximate_number_of_messages_visible(statistic="Maximum") for queue in dead_letters],
        )
        silence = cloudwatch.Metric(
            namespace=NAMESPACE, metric_name=SILENCE, dimensions_map={"PipelineName": name}, statistic="Maximum",
            period=Duration.days(1),
        )  # fmt: skip
        self.alarms = [
            self._alarm("Failed", executions["Failed"], 0, f"An execution of {name} has failed"),
            self._alarm("Errors", errors, 0, f"A function of {name} has failed"),
            self._alarm("Unanswered", unanswered, 0, f"An event for {name} could not be answered: see the queues"),
            # Where the metric is missing nothing is known, which is no good news.
            self._alarm(
                "Silence", silence, option.silent_days,
                f"No execution of {name} has succeeded for {option.silent_days} days, or nobody has looked",
                missing=cloudwatch.TreatMissingData.BREACHING,
            ),
        ]  # fmt: skip
        self._show(list(executions.values()), silence, [errors, unanswered], endpoint)

    def _measure_silence(self, watching: Watching, workloads: Workloads) -> HandlerFunction:
        made = HandlerFunction(
            self, "Silence", handler="measure_silence", description="days without a succeeded execution",
            workloads=workloads, looks_by=watching.policy, settings={"pipeline": self._name},
            dead_letters=watching.dead_letters,
        )  # fmt: skip
        rule = events.Rule(
            self, "SomeTimesADay", description="langadapt: measures for how long no execution has succeeded",
            schedule=events.Schedule.rate(Duration.hours(MEASURED_EVERY_HOURS)),
        )  # fmt: skip
        rule.add_target(targets.LambdaFunction(made.function, dead_letter_queue=watching.dead_letters))
        logs.MetricFilter(
            self, "SilenceMetric", log_group=workloads.log_group, metric_namespace=NAMESPACE, metric_name=SILENCE,
            filter_pattern=logs.FilterPattern.exists(f"$.{DAYS_MEMBER}"), metric_value=f"$.{DAYS_MEMBER}",
            dimensions={"PipelineName": "$.pipeline"},
        )  # fmt: skip
        return made

    def _alarm(
        self,
        construct_id: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self, f"{construct_id}Alarm", alarm_name=f"{self._name}-{construct_id.lower()}",
            alarm_description=description, metric=metric, threshold=threshold, evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD, treat_missing_data=missing,
        )  # fmt: skip
        alarm.add_alarm_action(actions.SnsAction(self._notifications.topic))
        return alarm

    def _show(
        self,
        executions: list[cloudwatch.IMetric],
        silence: cloudwatch.IMetric,
        troubles: list[cloudwatch.IMetric],
        endpoint: str | None,
    ) -> None:
        """The dashboard: alarms on top, then executions, what went wrong, and the endpoint."""
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=self._name)
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(title="alarms", alarms=self.alarms, width=24))
        dashboard.add_widgets(
            cloudwatch.GraphWidget(title="executions", left=executions, width=8),
            cloudwatch.GraphWidget(title="days without a success", left=[silence], width=8),
            cloudwatch.GraphWidget(title="functions and their events", left=troubles, width=8),
        )
        if endpoint is None:
            return
        shown = {"Invocations": "Sum", "Invocation5XXErrors": "Sum", "ModelLatency": "p90"}
        metrics = {
            metric: cloudwatch.Metric(
                namespace="AWS/SageMaker", metric_name=metric, statistic=statistic, period=Duration.minutes(5),
                dimensions_map={"EndpointName": endpoint, "VariantName": VARIANT},
            ) for metric, statistic in shown.items()
        }  # fmt: skip
        dashboard.add_widgets(
            cloudwatch.GraphWidget(
                title=f"endpoint {endpoint}", left=[metrics["Invocations"], metrics["Invocation5XXErrors"]], width=12
            ),
            cloudwatch.GraphWidget(title="microseconds for nine answers in ten", left=[metrics["ModelLatency"]],
                                   width=12),
        )  # fmt: skip


def _sum(label: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.MathExpression:
    """One metric of several, so that one alarm watches them all."""
    named = {f"{label}{number}": metric for number, metric in enumerate(metrics)}
    return cloudwatch.MathExpression(
        expression="+".join(f"FILL({name}, 0)" for name in named), using_metrics=named, label=label,
        period=Duration.minutes(5),
    )  # fmt: skip
