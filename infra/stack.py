"""THE STACK, top to bottom: what is put into the account, and what knows of what."""

from __future__ import annotations

from aws_cdk import Aws, CfnOutput, RemovalPolicy, Stack, Tags
from aws_cdk import Environment as Account
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.automation import Automation, check_parameters
from infra.constructs.code_archives import CodeArchives
from infra.constructs.image import Image
from infra.constructs.looking import Looking
from infra.constructs.maintainers import Maintainers
from infra.constructs.model_package_group import ModelPackageGroup
from infra.constructs.network import Network
from infra.constructs.operators import Operators
from infra.constructs.resolve_inputs import ResolveInputs
from infra.constructs.roles import JobRole, PipelineRole
from infra.constructs.sagemaker_pipeline import DefinitionNames, SagemakerPipeline, with_placeholders
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.environment import EnvironmentConfig, endpoint_name, load_pipeline_config
from infra.image_build import arns_in_ecr
from infra.policies import arn
from pipeline.config_sections import ServingSection
from pipeline.local.run import STEP_MODULES


class LangadaptStack(Stack):
    """One environment. An option that its configuration leaves out has no resource here."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: EnvironmentConfig) -> None:
        super().__init__(
            scope, construct_id, env=Account(account=environment.account, region=environment.region),
            description="langadapt: an open foundation model adapted to a new language",
        )  # fmt: skip
        know_zones(self, environment)
        bound_roles(self, environment)
        subnets = len(environment.network.availability_zones) if environment.network else 0
        config = with_placeholders(load_pipeline_config(environment), subnets=subnets)
        # What a first deployment has made goes when that fails: what it left would stand in the next one's way.
        kept = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        removal = kept if environment.removal == "retain" else RemovalPolicy.DESTROY
        pipeline_arn = arn(self, service="sagemaker", resource=f"pipeline/{environment.name}")

        storage = Storage(
            self, "Storage", prefix=config.aws.prefix, cache_days=config.compute.cache_days, removal=removal
        )
        workloads = Workloads(self, "Workloads", name=environment.name)
        group = ModelPackageGroup(
            self, "Models", name=environment.name, adopt=environment.adopt_model_package_group, removal=removal
        )
        network = optional_network(self, environment)
        image_uri, image_repository = environment_image(self, environment, storage, workloads)
        repositories = [image_repository]
        repositories += arns_in_ecr(self.partition, config.serving.image_uri) if is_given(config.serving) else []
        jobs = JobRole(self, "Jobs", storage=storage, network=network, image_repositories=repositories)
        looking = Looking(self, "Looking", pipeline_arn=pipeline_arn, group=group)
        resolve_inputs = ResolveInputs(self, "ResolveInputs", storage=storage, looking=looking, workloads=workloads)
        driver = PipelineRole(
            self, "Driver", job_role=jobs.role, resolve_inputs_arn=resolve_inputs.function.function_arn, group=group,
            storage=storage,
        )  # fmt: skip
        code = CodeArchives(self, "Code", steps=STEP_MODULES, storage=storage, workloads=workloads)
        names = DefinitionNames(
            bucket=storage.bucket.bucket_name, key_arn=storage.key.key_arn,
            job_role_arn=jobs.role.role_arn, pipeline_role_arn=driver.role.role_arn,
            resolve_inputs_arn=resolve_inputs.function.function_arn, image_uri=image_uri,
            serving_image_uri=config.serving.image_uri if is_given(config.serving) else image_uri,
            subnets=tuple(network.subnets) if network else (),
            security_group=network.jobs.security_group_id if network else None,
        )  # fmt: skip
        pipeline = SagemakerPipeline(self, "Pipeline", config=config, names=names)
        # Whoever starts it as soon as it is there finds all that it needs.
        pipeline.node.add_dependency(code.placed, driver.policy, driver.own_policy, jobs.own_policy, storage.policy)
        check_parameters(environment, pipeline.parameters)
        Automation(
            self, "Automation", environment=environment, pipeline_arn=pipeline_arn, storage=storage, looking=looking,
            container_policy=jobs.container_policy, network=network, workloads=workloads,
        )  # fmt: skip
        Operators(
            self, "Operators", pipeline_arn=pipeline_arn, group=group, storage=storage, names=names,
            image_repositories=repositories, endpoint_name=endpoint_name(environment),
        )  # fmt: skip
        Maintainers(self, "Maintainers", pipeline_arn=pipeline_arn, pipeline_role_arn=driver.role.role_arn)
        CfnOutput(self, "CommandLine", value=command_line(environment, names),
                  description="what langadapt's commands take to work with this pipeline")  # fmt: skip
        tag_resources(self, environment)


def environment_image(
    scope: Construct, environment: EnvironmentConfig, storage: Storage, workloads: Workloads
) -> tuple[str, str]:
    """The environment image by digest, a given one or one that is built in the account, and its repository's ARN."""
    option = environment.image
    if option.base is None:
        assert option.uri is not None, "checked with the environment"
        return option.uri, arns_in_ecr(Aws.PARTITION, option.uri)[0]
    image = Image(
        scope, "Image", name=f"{environment.name}-image", base=option.base, target=option.target,
        build_minutes=option.build_minutes, storage=storage, workloads=workloads,
    )  # fmt: skip
    return image.uri, image.repository.repository_arn


def is_given(serving: ServingSection) -> bool:
    """Whether an image that serves is named, by the environment or by the pipeline's configuration."""
    return serving.image_uri != ServingSection().image_uri


def command_line(environment: EnvironmentConfig, names: DefinitionNames) -> str:
    """Options of `langadapt start` and the other commands. names: what the stack has made."""
    settings = {
        "aws.region": environment.region,
        "aws.pipeline_name": environment.name,
        "aws.model_package_group": environment.name,
        "aws.bucket": names.bucket,
        "aws.kms_key_id": names.key_arn,
        "aws.role_arn": names.job_role_arn,
        "aws.pipeline_role_arn": names.pipeline_role_arn,
        "aws.resolve_inputs_function_arn": names.resolve_inputs_arn,
        "aws.image_uri": names.image_uri,
        "serving.image_uri": names.serving_image_uri,
    }
    if names.security_group:
        settings["aws.subnets"] = f"[{','.join(names.subnets)}]"
        settings["aws.security_group_ids"] = f"[{names.security_group}]"
    source = f"--preset {environment.preset}" if environment.preset else "--config FILE"
    own = [f"--set {setting}" for setting in environment.set]
    return " ".join([source, *own, *(f"--set {name}={value}" for name, value in settings.items())])


def tag_resources(stack: Stack, environment: EnvironmentConfig) -> None:
    for name, value in {"langadapt:environment": environment.name, **environment.tags}.items():
        Tags.of(stack).add(name, value)


def bound_roles(stack: Stack, environment: EnvironmentConfig) -> None:
    """Gives every role of the stack the boundary that the environment names."""
    if environment.permissions_boundary is not None:
        boundary = iam.ManagedPolicy.from_managed_policy_arn(stack, "Boundary", environment.permissions_boundary)
        iam.PermissionsBoundary.of(stack).apply(boundary)


def know_zones(stack: Stack, environment: EnvironmentConfig) -> None:
    """Tells CDK the zones that the environment names: a VPC would else have them looked up, with credentials."""
    if environment.network is not None:
        key = f"availability-zones:account={environment.account}:region={environment.region}"
        stack.node.set_context(key, list(environment.network.availability_zones))


def optional_network(scope: Construct, environment: EnvironmentConfig) -> Network | None:
    option = environment.network
    if option is None:
        return None
    return Network(
        scope, "Network", name=environment.name, cidr=option.cidr, availability_zones=option.availability_zones
    )
