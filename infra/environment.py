"""EnvironmentConfig: one deployment of the pipeline into an account, from a YAML file of infra/environments/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from infra.environment_options import (
    ECR_IMAGE_BY_DIGEST,
    MAIL,
    ApprovalOption,
    BudgetOption,
    ImageOption,
    MonitoringOption,
    NetworkOption,
    NewDataOption,
    ScheduleOption,
)
from pipeline.config import PipelineConfig, load_config
from pipeline.config_sections import Section
from pipeline.config_text import read_yaml
from steps.contract import ConfigError, nearest_name

# Begins of names of regions in which model package groups are no resource of CloudFormation.
ELSEWHERE = ("cn-", "us-iso", "eu-iso")


class EnvironmentConfig(Section):
    """What an environment is made of. An option that is left out is not deployed."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$",
        max_length=32,
        description="name of the stack, the pipeline and the model package group",
    )
    account: str = Field(pattern=r"^\d{12}$", description="the AWS account, twelve digits in quotes")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region")
    preset: str | None = Field(None, description="preset of the pipeline")
    config: str | None = Field(None, description="configuration file of the pipeline, in the place of a preset")
    set: tuple[str, ...] = Field((), description="section.field=value on top of it, as --set takes them")
    image: ImageOption
    serving_image_uri: str | None = Field(
        None,
        pattern=ECR_IMAGE_BY_DIGEST,
        description="image in ECR that serves, by digest (docs/serving.md); null: that of the jobs, which cannot",
    )
    network: NetworkOption | None = Field(None, description="a network of its own; null: the service's")
    schedule: ScheduleOption | None = Field(None, description="retraining by time; null: none")
    new_data: NewDataOption | None = Field(None, description="retraining by new data; null: none")
    approval: ApprovalOption | None = Field(None, description="what an approval does; null: nothing")
    mails: tuple[str, ...] = Field((), max_length=20, description="addresses that the topic writes to")
    monitoring: MonitoringOption | None = Field(None, description="dashboard and alarms; null: none")
    budget: BudgetOption | None = Field(None, description="monthly budget; null: none")
    permissions_boundary: str | None = Field(
        None, pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+$", description="boundary of every role; null: none"
    )
    adopt_model_package_group: bool = Field(
        False, description="take the model package group that an earlier stack of this name has left, and make none"
    )
    removal: Literal["retain", "delete"] = Field(
        "retain", description="what becomes of data and model versions when the stack is deleted"
    )
    tags: dict[str, str] = Field({}, max_length=40, description="tags of every resource")

    @pydantic.model_validator(mode="after")
    def _options_agree(self) -> EnvironmentConfig:
        if (self.preset is None) == (self.config is None):
            value = "neither preset nor config" if self.preset is None else "preset and config"
            raise ConfigError("preset", value, limit="one of preset and config", remedy="Name one of them.")
        self._check_region()
        self._check_tags()
        for mail in self.mails:
            if not MAIL.fullmatch(mail):
                raise ConfigError("mails", mail, limit="name@host", remedy="Write whole addresses.")
            if self.mails.count(mail) > 1:
                raise ConfigError("mails", mail, limit="each address once", remedy="Leave one out.")
        boundary = self.permissions_boundary
        if boundary is not None and boundary.split(":")[4] not in (self.account, "aws"):
            limit = f"a policy of account {self.account}"
            raise ConfigError("permissions_boundary", boundary, limit=limit, remedy="Name one of the account's own.")
        for zone in self.network.availability_zones if self.network else ():
            if not zone.startswith(self.region) or len(zone) != len(self.region) + 1:
                limit = f"a zone of {self.region}, such as {self.region}a"
                raise ConfigError("network.availability_zones", zone, limit=limit, remedy="Name zones of the region.")
        for field, image in (("image.uri", self.image.uri), ("serving_image_uri", self.serving_image_uri)):
            # ACCOUNT.dkr.ecr.REGION.amazonaws.com/...
            if image is not None and image.split(".")[3] != self.region:
                limit = f"an image in {self.region}, where SageMaker looks for it"
                raise ConfigError(field, image, limit=limit, remedy="Copy it into a repository of the region.")
        if self.approval and self.approval.action == "deploy" and self.serving_image_uri is None:
            remedy = "Name serving_image_uri, or set approval.action to notify."
            limit = "an image that serves with approval.action deploy"
            raise ConfigError("serving_image_uri", "not set", limit=limit, remedy=remedy)
        return self

    def _check_region(self) -> None:
        """Raises ConfigError where CloudFormation knows a resource not (by the service's own specification)."""
        if self.region.startswith(ELSEWHERE):
            remedy = "There SageMaker has no model package groups that CloudFormation makes."
            raise ConfigError(
                "region", self.region, limit="a region outside China and the iso partitions", remedy=remedy
            )
        if self.region.startswith("us-gov-") and self.budget is not None:
            remedy = "Leave it out: there CloudFormation makes no budgets."
            raise ConfigError("budget", "given", limit=f"none in {self.region}", remedy=remedy)

    def _check_tags(self) -> None:
        for name, value in self.tags.items():
            if not 1 <= len(name) <= 128 or name.lower().startswith("aws:") or len(value) > 256:
                limit = "names of 1 to 128 characters that do not begin with aws:, values of at most 256"
                raise ConfigError("tags", f"{name[:64]}={value[:64]}", limit=limit, remedy="Change this tag.")


def load_environment(file: Path) -> EnvironmentConfig:
    """The environment of a YAML file, its pipeline's configuration checked as well.

    Raises ConfigError that names the file and the field at fault.
    """
    if not file.is_file():
        raise ConfigError("environment", f"{file} is no file", remedy="Name a YAML file of infra/environments/.")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("environment", f"{file} is not UTF-8", remedy="Save it as UTF-8.") from error
    values = read_yaml(text, str(file))
    if isinstance(values.get("config"), str):
        # Beside the file, so that it does not matter where the app is started.
        values["config"] = str(file.parent / values["config"])
    environment = validate_environment(values)
    load_pipeline_config(environment)
    return environment


def load_pipeline_config(environment: EnvironmentConfig) -> PipelineConfig:
    """The configuration of the environment's pipeline, with the environment's own names in it, checked.

    Raises ConfigError that names the field at fault.
    """
    names = {"region": environment.region, "pipeline_name": environment.name, "model_package_group": environment.name}
    settings = [*environment.set, *(f"aws.{field}={value}" for field, value in names.items())]
    if environment.serving_image_uri is not None:
        settings.append(f"serving.image_uri={environment.serving_image_uri}")
    try:
        return load_config(environment.preset, Path(environment.config) if environment.config else None, settings)
    except ConfigError as error:
        # It names the command line's options, which are fields here.
        field = error.subject.removeprefix("--")
        raise ConfigError(field, error.value, limit=error.limit, remedy=error.remedy) from error


def endpoint_name(environment: EnvironmentConfig) -> str | None:
    """Name of the endpoint that an approval deploys to, None where none does."""
    option = environment.approval
    return (option.endpoint_name or environment.name) if option and option.action == "deploy" else None


def validate_environment(values: Mapping[str, Any]) -> EnvironmentConfig:
    """The checked environment. Raises ConfigError for the first field at fault."""
    try:
        return EnvironmentConfig.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigError(where, "no such field", remedy=_field_meant(first["loc"])) from error
        if first["type"] == "missing":
            raise ConfigError(where, "missing", limit="a value", remedy=f"Add {where}.") from error
        if first["type"] == "string_type":
            raise ConfigError(where, repr(first["input"]), limit="a text", remedy="Write it in quotes.") from error
        if first["type"] == "string_pattern_mismatch":
            limit = f"the form {first['ctx']['pattern']}"
        else:
            limit = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ").split(", unable to")[0]
        raise ConfigError(where, repr(first["input"]), limit=limit, remedy="Change this field.") from error


def _field_meant(location: tuple[int | str, ...]) -> str:
    """A sentence that names the field nearest to a misspelt one, of its own section."""
    model: Any = EnvironmentConfig
    for part in location[:-1]:
        annotation = model.model_fields[part].annotation
        model = next(kind for kind in getattr(annotation, "__args__", (annotation,)) if hasattr(kind, "model_fields"))
    return nearest_name(str(location[-1]), model.model_fields)
