"""New objects below a prefix start the pipeline once, after the last of them (infra/handlers/start_for_new_data.py).

Every object's event waits in the queue for as long as the folder must be quiet, so nothing has to remember when the
last one came; one message group lets one batch run at a time, so nothing starts twice. A schedule that is pushed
forward with every object would do as well, but asks for the right to pass a role on.
"""

from __future__ import annotations

from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.handler_function import EventQueue, HandlerFunction
from infra.constructs.storage import Storage
from infra.constructs.watching import Watching
from infra.constructs.workloads import Workloads
from infra.environment_options import NewDataOption
from infra.handlers.start_for_new_data import EXECUTION_ENDED, OBJECT_CREATED
from infra.policies import allow

# Every five minutes: an error that lasts for half an hour is no passing one.
MAX_RECEIVES = 6
# What SQS gives to a function at once where messages come in order.
BATCH_SIZE = 10


class NewData(Construct):
    """A queue of objects and ended executions, and the function that starts the pipeline."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        pipeline_arn: str,
        option: NewDataOption,
        storage: Storage,
        watching: Watching,
        workloads: Workloads,
    ) -> None:
        """name: of the pipeline."""
        super().__init__(scope, construct_id)
        prefix = f"{storage.prefix}/{option.prefix}"
        self.events = EventQueue(
            self, "Events", delay_seconds=option.quiet_seconds, max_receives=MAX_RECEIVES, batch_size=BATCH_SIZE
        )
        self.function = HandlerFunction(
            self, "Start", handler="start_for_new_data", description="starts the pipeline for new data",
            workloads=workloads, looks_by=watching.policy,
            settings={
                "pipeline": name, "bucket": storage.bucket.bucket_name, "prefix": prefix,
                "quiet_seconds": option.quiet_seconds, "parameters": option.parameters,
            },
            statements=[
                self.events.read_statement(),
                allow(actions=["s3:ListBucket"], resources=[storage.bucket.bucket_arn],
                      conditions={"StringEquals": {"s3:prefix": prefix}}),
                allow(actions=["sagemaker:StartPipelineExecution"], resources=[pipeline_arn]),
            ],
        )  # fmt: skip
        self.events.give_to(self.function)
        self.events.receive(
            "Objects", description=f"an object has come below {option.prefix}", dead_letters=watching.dead_letters,
            pattern=events.EventPattern(
                source=["aws.s3"], detail_type=[OBJECT_CREATED],
                detail={"bucket": {"name": [storage.bucket.bucket_name]}, "object": {"key": [{"prefix": prefix}]}},
            ),
        )  # fmt: skip
        self.events.receive(
            "Ended", description="an execution has ended by itself", dead_letters=watching.dead_letters,
            pattern=events.EventPattern(
                source=["aws.sagemaker"], detail_type=[EXECUTION_ENDED],
                detail={"pipelineArn": [pipeline_arn], "currentPipelineExecutionStatus": ["Succeeded", "Failed"]},
            ),
        )  # fmt: skip
        bucket = storage.bucket.node.default_child
        assert isinstance(bucket, s3.CfnBucket)
        # CloudFormation's own switch: CDK's would bring a function that may change any bucket's notifications.
        bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        )
