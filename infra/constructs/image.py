"""The environment image: built by CodeBuild, as whoever deploys may have no Docker, and named by its digest."""

from __future__ import annotations

import json

from aws_cdk import Acknowledgment, CustomResource, Duration, RemovalPolicy, Stack, Validations
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.constructs.roles import PULL_ACTIONS
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.function_code import staged_folder
from infra.image_build import arns_in_ecr, build_specification, context_files, image_tag
from infra.policies import acknowledge_wildcards, allow, arn, service_trust

KEPT_IMAGES = 10
BUILD_IMAGE = "aws/codebuild/standard:7.0"
PUSH_ACTIONS = (
    "ecr:BatchCheckLayerAvailability", "ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage",
    "ecr:UploadLayerPart",
)  # fmt: skip


class Image(Construct):
    """uri: of the image, by digest, known once it is built. repository: where it lies."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        base: str,
        target: str,
        build_minutes: int,
        storage: Storage,
        workloads: Workloads,
    ) -> None:
        """name: of the project. base: IMAGE@sha256:DIGEST. target: of containers/Dockerfile."""
        super().__init__(scope, construct_id)
        files = context_files()
        self.repository = ecr.Repository(
            self, "Repository",
            image_tag_mutability=ecr.TagMutability.IMMUTABLE, image_scan_on_push=True, empty_on_delete=True,
            removal_policy=RemovalPolicy.DESTROY,
            lifecycle_rules=[ecr.LifecycleRule(max_image_count=KEPT_IMAGES, description="old environments")],
        )  # fmt: skip
        with staged_folder(files) as folder:
            context = assets.Asset(self, "Context", path=folder)
        role = self._role(name, base, context, storage, workloads)
        project = self._project(name, base, target, build_minutes, context, role, storage, workloads)
        self.function = PythonFunction(
            self, "Build", module="infra.handlers.build_image", workloads=workloads,
            description="langadapt: builds the environment image and tells its digest",
            environment={
                "PROJECT_NAME": name,
                "REPOSITORY_NAME": self.repository.repository_name,
                "REPOSITORY_URI": self.repository.repository_uri,
            },
            statements=[
                allow(actions=["codebuild:StartBuild", "codebuild:BatchGetBuilds"], resources=[project.attr_arn]),
                allow(actions=["ecr:DescribeImages"], resources=[self.repository.repository_arn]),
            ],
        )  # fmt: skip
        ended = events.Rule(
            self, "Ended", description="langadapt: an image build has ended",
            event_pattern=events.EventPattern(
                source=["aws.codebuild"], detail_type=["CodeBuild Build State Change"],
                detail={"project-name": [name],
                        "build-status": ["SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT"]},
            ),
            targets=[targets.LambdaFunction(self.function.function)],
        )  # fmt: skip
        image = CustomResource(
            self, "Image", service_token=self.function.function.function_arn, resource_type="Custom::EnvironmentImage",
            properties={"Tag": image_tag(files, base, target)}, service_timeout=Duration.hours(1),
        )  # fmt: skip
        # Whoever answers when the build ends must listen before it begins.
        # What it may do must be so before it begins, too, and in an update before the next build does.
        image.node.add_dependency(ended, role, self.policy)
        self.uri = image.get_att_string("ImageUri")

    def _role(self, name: str, base: str, context: assets.Asset, storage: Storage, workloads: Workloads) -> iam.Role:
        """What the build may do: read its context, push into this repository, pull a base that lies in ECR."""
        source_arn = arn(self, service="codebuild", resource=f"project/{name}")
        role = iam.Role(
            self, "Role", description="langadapt: builds the environment image",
            assumed_by=service_trust("codebuild.amazonaws.com", source_arn=source_arn),
            managed_policies=[workloads.policy],
        )  # fmt: skip
        partition = Stack.of(self).partition
        context_arn = f"arn:{partition}:s3:::{context.s3_bucket_name}/{context.s3_object_key}"
        self.policy = iam.Policy(
            self, "Policy", roles=[role],
            statements=[
                allow(actions=["s3:GetObject", "s3:GetObjectVersion"], resources=[context_arn]),
                # CodeBuild asks for its group to be made, also where it is there.
                allow(actions=["logs:CreateLogGroup"], resources=[workloads.log_group.log_group_arn]),
                allow(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
                allow(actions=PUSH_ACTIONS, resources=[self.repository.repository_arn]),
                allow(actions=["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], resources=[storage.key.key_arn]),
                *(allow(actions=PULL_ACTIONS, resources=[base_arn]) for base_arn in arns_in_ecr(partition, base)),
            ],
        )  # fmt: skip
        acknowledge_wildcards(
            self.policy,
            resources=["*"],
            reason="ECR's token is for the whole registry, and opens no repository by itself.",
        )
        return role

    def _project(
        self,
        name: str,
        base: str,
        target: str,
        build_minutes: int,
        context: assets.Asset,
        role: iam.Role,
        storage: Storage,
        workloads: Workloads,
    ) -> codebuild.CfnProject:
        variables = {
            "REPOSITORY": self.repository.repository_uri,
            "BASE": base,
            "BASE_ARGUMENT": f"{target.upper()}_BASE",
            "TARGET": target,
        }
        project = codebuild.CfnProject(
            self, "Project",
            name=name, description="langadapt: the environment image", service_role=role.role_arn,
            source={"type": "S3", "location": f"{context.s3_bucket_name}/{context.s3_object_key}",
                    "buildSpec": json.dumps(build_specification(base))},
            artifacts={"type": "NO_ARTIFACTS"},
            # Docker runs in no other mode there.
            environment={"type": "LINUX_CONTAINER", "computeType": "BUILD_GENERAL1_LARGE", "image": BUILD_IMAGE,
                         "privilegedMode": True,
                         "environmentVariables": [{"name": key, "value": value} for key, value in variables.items()]},
            encryption_key=storage.key.key_arn, timeout_in_minutes=build_minutes, queued_timeout_in_minutes=5,
            logs_config={"cloudWatchLogs": {"status": "ENABLED", "groupName": workloads.log_group.log_group_name,
                                            "streamName": "image"}},
        )  # fmt: skip
        Validations.of(project).acknowledge(
            Acknowledgment(
                id="AwsSolutions-CB3",
                reason="Docker needs privileged mode to build an image; the build runs our own files alone.",
            )
        )
        return project
