"""THE STACK, top to bottom: what is put into the account, and what knows of what."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import CfnOutput, RemovalPolicy, Stack, Tags
from aws_cdk import Environment as Account
from constructs import Construct

from infra.constructs.model_package_group import ModelPackageGroup
from infra.constructs.network import Network
from infra.constructs.resolve_inputs import ResolveInputs
from infra.constructs.roles import JobRole, PipelineRole
from infra.constructs.sagemaker_pipeline import DefinitionNames, SagemakerPipeline, with_placeholders
from infra.constructs.storage import Storage
from infra.constructs.workloads import Workloads
from infra.environment import EnvironmentConfig
from infra.policies import arn
from pipeline.config import PipelineConfig, load_config


class LangadaptStack(Stack):
    """One environment. An option that its configuration leaves out has no resource here."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: EnvironmentConfig) -> None:
        super().__init__(
            scope, construct_id, env=Account(account=environment.account, region=environment.region),
            description="langadapt: an open foundation model adapted to a new language",
        )  # fmt: skip
        config = pipeline_config(environment)
        removal = RemovalPolicy.RETAIN if environment.removal == "retain" else RemovalPolicy.DESTROY
        pipeline_arn = arn(self, service="sagemaker", resource=f"pipeline/{environment.name}")

        storage = Storage(
            self, "Storage", prefix=config.aws.prefix, cache_days=config.compute.cache_days, removal=removal
        )
        workloads = Workloads(self, "Workloads", name=environment.name)
        group = ModelPackageGroup(
            self, "Models", name=environment.name, adopt=environment.adopt_model_package_group, removal=removal
        )
        network = optional_network(self, environment)
        jobs = JobRole(self, "Jobs", storage=storage, network=network)
        resolve_inputs = ResolveInputs(
            self, "ResolveInputs", storage=storage, group=group, pipeline_arn=pipeline_arn, workloads=workloads
        )
        driver = PipelineRole(
            self, "Driver", job_role=jobs.role, resolve_inputs_arn=resolve_inputs.function.function_arn, group=group
        )
        image_uri = environment.image.uri or "not-built@sha256:" + "0" * 64
        pipeline = SagemakerPipeline(
            self, "Pipeline", config=config, role_arn=driver.role.role_arn,
            names=DefinitionNames(
                bucket=storage.bucket.bucket_name,
                job_role_arn=jobs.role.role_arn,
                resolve_inputs_arn=resolve_inputs.function.function_arn,
                image_uri=image_uri,
                key_arn=storage.key.key_arn,
                serving_image_uri=environment.serving_image_uri or image_uri,
                subnets=tuple(network.subnets) if network else (),
                security_group=network.jobs.security_group_id if network else None,
            ),
        )  # fmt: skip

        CfnOutput(self, "BucketName", value=storage.bucket.bucket_name)
        CfnOutput(self, "PipelineName", value=pipeline.name)
        for name, value in {"langadapt:environment": environment.name, **environment.tags}.items():
            Tags.of(self).add(name, value)


def optional_network(scope: Construct, environment: EnvironmentConfig) -> Network | None:
    option = environment.network
    if option is None:
        return None
    return Network(
        scope, "Network", name=environment.name, cidr=option.cidr, availability_zones=option.availability_zones
    )


def pipeline_config(environment: EnvironmentConfig) -> PipelineConfig:
    """The configuration that the environment's definition is compiled from, its names in the account placeholders."""
    file = Path(environment.config) if environment.config else None
    config = load_config(environment.preset, file, environment.set)
    aws = {"region": environment.region, "pipeline_name": environment.name, "model_package_group": environment.name}
    named = config.model_copy(update={"aws": config.aws.model_copy(update=aws)})
    subnets = len(environment.network.availability_zones) if environment.network else 0
    return with_placeholders(named, subnets=subnets, serving_image_uri=environment.serving_image_uri)
