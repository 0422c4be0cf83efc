"""The group of the Model Registry that the pipeline registers its versions in."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from infra.policies import arn


class ModelPackageGroup(Construct):
    """A new group, or one that an earlier stack has left."""

    def __init__(self, scope: Construct, construct_id: str, *, name: str, adopt: bool, removal: RemovalPolicy) -> None:
        super().__init__(scope, construct_id)
        self.name = name
        self.arn = arn(self, service="sagemaker", resource=f"model-package-group/{name}")
        # Versions have a type of resource of their own, named by their group and number.
        self.versions_arn = arn(self, service="sagemaker", resource=f"model-package/{name}/*")
        self.resource: sagemaker.CfnModelPackageGroup | None = None
        if not adopt:
            self.resource = sagemaker.CfnModelPackageGroup(
                self, "Group", model_package_group_name=name,
                model_package_group_description="langadapt: models that the gate let through",
            )  # fmt: skip
            self.resource.apply_removal_policy(removal)
