"""The options of an environment: each a section of infra/environments/*.yaml, left out where it is not wanted."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal

import pydantic
from pydantic import Field

from pipeline.config_sections import Section
from pipeline.remote.schedule_expression import check_expression, check_time_zone
from steps.contract import ConfigError

# What the pipeline and the command line write, below the pipeline's prefix.
PIPELINE_FOLDERS = ("inputs", "runs", "models", "checkpoints", "code", "definitions")
ECR_IMAGE_BY_DIGEST = r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9._/-]+@sha256:[0-9a-f]{64}$"
# Of 4,096 bytes that a function's variables may have, the names of the account besides.
MAX_PARAMETER_CHARACTERS = 2_500
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class ImageOption(Section):
    """The environment image: built in the account, or one that is there already. Exactly one of base and uri."""

    base: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*@sha256:[0-9a-f]{64}$",
        description="base that CodeBuild builds the image on, by digest (docs/containers.md)",
    )
    target: Literal["gpu", "cpu"] = Field("gpu", description="target of containers/Dockerfile")
    build_minutes: int = Field(55, ge=10, le=55, description="time limit of a build; CloudFormation waits for an hour")
    uri: str | None = Field(
        None,
        pattern=ECR_IMAGE_BY_DIGEST,
        description="an image of the environment in ECR, by digest",
    )

    @pydantic.model_validator(mode="after")
    def _one_of_both(self) -> ImageOption:
        if (self.base is None) == (self.uri is None):
            remedy = "Name image.base to have it built, or image.uri of one that is there."
            value = "neither base nor uri" if self.base is None else "base and uri"
            raise ConfigError("image", value, limit="one of base and uri", remedy=remedy)
        return self


class NetworkOption(Section):
    """A network without a way to the internet, which the jobs run in."""

    cidr: str = Field("10.20.0.0/16", pattern=r"^\d{1,3}(\.\d{1,3}){3}/(1[6-9]|2[0-4])$", description="address range")
    availability_zones: tuple[str, ...] = Field(
        min_length=1, max_length=3, description="zones of the subnets; those that offer the instance types"
    )

    @pydantic.model_validator(mode="after")
    def _can_be_made(self) -> NetworkOption:
        try:
            ipaddress.ip_network(self.cidr)
        except ValueError as error:
            remedy = "Write the first address of the range, such as 10.20.0.0/16."
            raise ConfigError("network.cidr", self.cidr, limit="a range of addresses", remedy=remedy) from error
        for zone in self.availability_zones:
            if self.availability_zones.count(zone) > 1:
                raise ConfigError("network.availability_zones", zone, limit="each zone once", remedy="Leave one out.")
        return self


class ScheduleOption(Section):
    """Executions that EventBridge Scheduler starts."""

    expression: str = Field(description="cron(six fields) or rate(number unit)")
    time_zone: str = Field("UTC", description="IANA name of the time zone that the expression is read in")
    parameters: dict[str, str] = Field({}, max_length=200, description="parameters of the pipeline, as texts")

    @pydantic.model_validator(mode="after")
    def _is_understood(self) -> ScheduleOption:
        # A single time would pass, and the template of a deployed stack with it.
        if self.expression.startswith("at("):
            remedy = "Start a single execution with `langadapt start`."
            raise ConfigError("schedule.expression", self.expression, limit="cron(six fields) or rate(number unit)",
                              remedy=remedy)  # fmt: skip
        try:
            check_time_zone(self.time_zone)
            check_expression(self.expression, self.time_zone)
        except ConfigError as error:
            # It names the command line's options.
            field = "time_zone" if error.subject == "--time-zone" else "expression"
            raise ConfigError(f"schedule.{field}", error.value, limit=error.limit, remedy=error.remedy) from error
        return self


class NewDataOption(Section):
    """An execution once new objects have come into a folder and none has followed for a while."""

    prefix: str = Field(
        "incoming/corpus/",
        pattern=r"^([A-Za-z0-9_-]+/)+$",
        description="folder that is watched and is the corpus, below the pipeline's own prefix, with its final slash",
    )
    quiet_seconds: int = Field(
        900, ge=60, le=900, description="time without a new object after which an execution is started"
    )
    parameters: dict[str, str] = Field(
        {}, max_length=199, description="parameters of the pipeline besides CorpusUri, as texts"
    )

    @pydantic.model_validator(mode="after")
    def _is_a_folder_of_its_own(self) -> NewDataOption:
        folder = self.prefix.partition("/")[0]
        if folder in PIPELINE_FOLDERS:
            remedy = "Name another folder: what is pushed is a corpus by itself, and executions write below the others."
            limit = f"a folder besides {', '.join(PIPELINE_FOLDERS)}"
            raise ConfigError("new_data.prefix", self.prefix, limit=limit, remedy=remedy)
        if "CorpusUri" in self.parameters:
            remedy = "Leave it out: it is the folder that is watched."
            raise ConfigError("new_data.parameters", "CorpusUri", remedy=remedy)
        characters = sum(len(name) + len(value) + 8 for name, value in self.parameters.items())
        if characters > MAX_PARAMETER_CHARACTERS:
            remedy = "Set them in the pipeline's configuration: a function's settings hold 4 kB."
            limit = f"{MAX_PARAMETER_CHARACTERS} characters together"
            raise ConfigError("new_data.parameters", f"{characters} characters", limit=limit, remedy=remedy)
        return self


class ApprovalOption(Section):
    """What the approval of a model version does."""

    action: Literal["deploy", "notify"] = Field(
        "notify", description="deploy: create or update the endpoint; notify: tell about it"
    )
    endpoint_name: str | None = Field(
        None, pattern=r"^[a-z0-9](-*[a-z0-9]){0,47}$", description="its endpoint; null: the environment's name"
    )
    instance_type: str = Field(
        "ml.g5.xlarge", pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$", description="instance type of the endpoint"
    )
    instance_count: int = Field(1, ge=1, le=20, description="instances of the endpoint")
    termination_wait_seconds: int = Field(
        300,
        ge=180,
        le=3600,
        description="time that the old instances stay after the traffic has moved, in which an alarm rolls back",
    )
    max_latency_seconds: float = Field(
        30, gt=0, le=60, description="time that nine answers in ten must not exceed; else an update is rolled back"
    )


class MonitoringOption(Section):
    """A dashboard, and alarms that write to the topic."""

    silent_days: int = Field(
        14, ge=1, le=365, description="days without a succeeded execution after which an alarm tells of it"
    )


class BudgetOption(Section):
    """A monthly budget of all SageMaker costs of the account: jobs of a pipeline carry no tag to tell them apart by."""

    monthly_usd: float = Field(gt=0, description="US dollars a month")
    warn_at_percent: int = Field(80, ge=1, le=100, description="share of the budget at which a mail is sent")
    stop_at_percent: int | None = Field(
        100, ge=1, le=1000, description="share at which running executions are stopped, hours late; null: never"
    )

    @pydantic.model_validator(mode="after")
    def _warns_before_it_stops(self) -> BudgetOption:
        if self.stop_at_percent is not None and self.warn_at_percent >= self.stop_at_percent:
            limit = f"below stop_at_percent, {self.stop_at_percent}"
            raise ConfigError("budget.warn_at_percent", self.warn_at_percent, limit=limit, remedy="Lower it.")
        return self
