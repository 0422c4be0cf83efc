"""Who may do what: the role that drives the pipeline, and the role that its jobs run with."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.constructs.network import Network
from infra.constructs.storage import Storage
from infra.policies import acknowledge_wildcards, allow, arn, service_trust

# The service names a pipeline's jobs: pipelines-<execution id>-<step>-<random>.
JOBS_OF_PIPELINES = "pipelines-*"
PULL_ACTIONS = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
SAGEMAKER = "sagemaker.amazonaws.com"


class JobRole(Construct):
    """What runs in the containers: reads the bucket, writes what steps make, and nothing else of the pipeline's.

    container_policy: what any container of SageMaker needs (image, logs, metrics), for a model that serves as well.
    own_policy: the use of the key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        storage: Storage,
        network: Network | None,
        image_repositories: Sequence[str],
    ) -> None:
        """image_repositories: ARNs of the repositories that containers are started from."""
        super().__init__(scope, construct_id)
        interfaces = arn(self, service="ec2", resource="network-interface/*")
        logs = arn(self, service="logs", resource="log-group:/aws/sagemaker/*")
        self.container_policy = iam.ManagedPolicy(
            self, "ContainerPolicy", description="langadapt: log, metrics and image of a SageMaker container",
            statements=[
                allow(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
                allow(actions=PULL_ACTIONS, resources=image_repositories),
                allow(actions=["cloudwatch:PutMetricData"], resources=["*"],
                      conditions={"StringLike": {"cloudwatch:namespace": ["/aws/sagemaker/*", "aws/sagemaker/*"]}}),
                allow(actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams",
                               "logs:PutLogEvents"], resources=[logs]),
                *(self._network_statements(network, interfaces) if network else ()),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            self.container_policy, resources=["*", logs, *([interfaces] if network else ())],
            reason="ECR's token, metrics and EC2's lists have no resources; SageMaker names streams and interfaces.",
        )  # fmt: skip
        self.role = iam.Role(
            self, "Role", description="langadapt: processing and training jobs",
            assumed_by=service_trust(SAGEMAKER, source_arn=arn(self, service="sagemaker", resource="*")),
            managed_policies=[self.container_policy],
        )  # fmt: skip
        storage.let_read(self.role, patterns=["*"])
        storage.let_write(self.role, patterns=["runs/*", "models/*", "checkpoints/*"])
        storage.let_encrypt_volumes(self.role)
        # Below it CDK keeps what `storage` has given to the role itself.
        self.own_policy = self.role.node.find_child("DefaultPolicy")

    def _network_statements(self, network: Network, interfaces: str) -> list[iam.PolicyStatement]:
        """What SageMaker does with the role to connect a container with the network."""
        places = [
            arn(self, service="ec2", resource=f"{kind}/{name}")
            for kind, name in (
                *(("subnet", subnet) for subnet in network.subnets),
                ("security-group", network.jobs.security_group_id),
            )
        ]
        return [
            allow(actions=["ec2:CreateNetworkInterface"], resources=[interfaces, *places]),
            allow(
                actions=["ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface",
                         "ec2:DeleteNetworkInterfacePermission"],
                resources=[interfaces],
                conditions={"ArnEquals": {"ec2:Vpc": arn(self, service="ec2", resource=f"vpc/{network.vpc.vpc_id}")}},
            ),
            allow(
                actions=["ec2:DescribeDhcpOptions", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups",
                         "ec2:DescribeSubnets", "ec2:DescribeVpcs"],
                resources=["*"],
            ),
        ]  # fmt: skip


class PipelineRole(Construct):
    """What drives the pipeline: starts its jobs with the job role, asks ResolveInputs, registers model versions.

    policy: that. own_policy: the use of the key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job_role: iam.Role,
        resolve_inputs_arn: str,
        group: ModelPackageGroup,
        storage: Storage,
    ) -> None:
        super().__init__(scope, construct_id)
        self.role = iam.Role(
            self, "Role", description="langadapt: drives the pipeline",
            assumed_by=service_trust(SAGEMAKER, source_arn=arn(self, service="sagemaker", resource="*")),
        )  # fmt: skip
        # The pipeline itself reads the gate's numbers from the steps' files, and registers what it can see.
        storage.let_read(self.role, patterns=["runs/*", "models/*"])
        storage.let_encrypt_volumes(self.role)
        self.own_policy = self.role.node.find_child("DefaultPolicy")
        processing, training = (
            arn(self, service="sagemaker", resource=f"{kind}/{JOBS_OF_PIPELINES}")
            for kind in ("processing-job", "training-job")
        )
        self.policy = iam.Policy(
            self, "Policy", roles=[self.role],
            statements=[
                allow(actions=["sagemaker:CreateProcessingJob", "sagemaker:DescribeProcessingJob",
                               "sagemaker:StopProcessingJob"], resources=[processing]),
                allow(actions=["sagemaker:CreateTrainingJob", "sagemaker:DescribeTrainingJob",
                               "sagemaker:StopTrainingJob"], resources=[training]),
                # Without it no job is created that carries tags, and the service puts tags of its own on them.
                allow(actions=["sagemaker:AddTags"], resources=[processing, training, group.versions_arn]),
                allow(actions=["sagemaker:CreateModelPackage"], resources=[group.arn, group.versions_arn]),
                allow(actions=["sagemaker:DescribeModelPackage"], resources=[group.versions_arn]),
                allow(actions=["lambda:InvokeFunction"], resources=[resolve_inputs_arn]),
                allow(actions=["iam:PassRole"], resources=[job_role.role_arn],
                      conditions={"StringEquals": {"iam:PassedToService": SAGEMAKER}}),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            self.policy, resources=[processing, training, group.versions_arn],
            reason="The service names jobs and numbers model versions at run time.",
        )  # fmt: skip
