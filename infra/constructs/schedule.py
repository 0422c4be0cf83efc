"""Executions at set times, by EventBridge Scheduler."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.watching import Watching
from infra.environment_options import ScheduleOption
from infra.policies import allow, arn, service_trust
from pipeline.remote.schedule import MAX_EVENT_AGE_SECONDS, MAX_RETRIES


class Schedule(Construct):
    """A group with one schedule, and the role that starts the pipeline, and nothing else."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        pipeline_arn: str,
        option: ScheduleOption,
        watching: Watching,
    ) -> None:
        """name: of the pipeline, and of group and schedule."""
        super().__init__(scope, construct_id)
        group = scheduler.CfnScheduleGroup(self, "Group", name=name)
        self.role = iam.Role(
            self, "Role", description="langadapt: starts the pipeline at set times",
            # Scheduler names the group as the source, not the schedule.
            assumed_by=service_trust(
                "scheduler.amazonaws.com", source_arn=arn(self, service="scheduler", resource=f"schedule-group/{name}")
            ),
        )  # fmt: skip
        policy = iam.Policy(
            self, "Policy", roles=[self.role],
            statements=[
                allow(actions=["sagemaker:StartPipelineExecution"], resources=[pipeline_arn]),
                allow(actions=["sqs:SendMessage"], resources=[watching.dead_letters.queue_arn]),
            ],
        )  # fmt: skip
        parameters = [
            scheduler.CfnSchedule.SageMakerPipelineParameterProperty(name=key, value=value)
            for key, value in sorted(option.parameters.items())
        ]
        self.resource = scheduler.CfnSchedule(
            self, "Schedule", name=name, group_name=group.ref, description=f"Starts pipeline {name}.",
            schedule_expression=option.expression, schedule_expression_timezone=option.time_zone, state="ENABLED",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=pipeline_arn, role_arn=self.role.role_arn,
                sage_maker_pipeline_parameters=scheduler.CfnSchedule.SageMakerPipelineParametersProperty(
                    pipeline_parameter_list=parameters
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=watching.dead_letters.queue_arn),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=MAX_EVENT_AGE_SECONDS, maximum_retry_attempts=MAX_RETRIES
                ),
            ),
        )  # fmt: skip
        self.resource.node.add_dependency(policy)
