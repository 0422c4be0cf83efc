"""docs/aws-smoke.md: every command in it exists, with its options, and its bounds are the preset's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from pipeline.__main__ import app
from pipeline.config import load_config
from pipeline.plan.prices import package_prices
from pipeline.plan.whole_plan import make_plan
from pipeline.service_shapes import service_model

PAGE = (Path(__file__).parents[2] / "docs" / "aws-smoke.md").read_text("utf-8")
ACCOUNT = re.search(r'^    ACCOUNT="(.+)"$', PAGE, flags=re.MULTILINE)
# Of the AWS command line itself, on top of what the services take.
OWN_OPTIONS = {("lambda", "create-function"): {"zip-file"}}
SERVICES = {"s3api": "s3"}


def commands(program: str) -> list[str]:
    return re.findall(rf"^    ({program} .+)$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("command", commands("langadapt"))
def test_every_command_of_langadapt_exists_with_its_options(command: str) -> None:
    assert ACCOUNT is not None
    words = shlex.split(command.replace("$ACCOUNT", ACCOUNT[1]))[1:]
    command_of_click = typer.main.get_command(app)
    while hasattr(command_of_click, "commands"):
        command_of_click = command_of_click.commands[words.pop(0)]
    # Reads the words as a call does, and calls nothing.
    command_of_click.make_context("langadapt", words)


def test_the_account_is_set_by_fields_that_there_are() -> None:
    assert ACCOUNT is not None
    words = shlex.split(ACCOUNT[1])
    names = [word.partition("=")[0] for word in words if "." in word.partition("=")[0]]
    assert names == [
        "aws.region", "aws.bucket", "aws.role_arn", "aws.resolve_inputs_function_arn", "aws.image_uri",
        "serving.image_uri",
    ]  # fmt: skip
    config = load_config("aws-smoke")
    assert all(hasattr(getattr(config, section), field) for section, field in (name.split(".") for name in names))


@pytest.mark.parametrize("command", [command for command in commands("aws") if not command.startswith("aws s3 ")])
def test_every_command_of_aws_is_an_operation_with_these_members(command: str) -> None:
    _, service, name, *words = shlex.split(command)
    model = service_model(SERVICES.get(service, service))
    operation = "".join(part.capitalize() for part in name.split("-"))
    shape = model.operation_model(operation).input_shape
    known = {re.sub(r"(?<!^)(?=[A-Z])", "-", member).lower() for member in shape.members}
    given = {word.removeprefix("--") for word in words if word.startswith("--")}
    assert given <= known | OWN_OPTIONS.get((service, name), set())
    required = {re.sub(r"(?<!^)(?=[A-Z])", "-", member).lower() for member in shape.required_members}
    assert required - {"code"} <= given


def test_the_bound_of_what_is_billed_is_the_presets() -> None:
    compute = load_config("aws-smoke").compute
    hours: dict[str, float] = {}
    for step in type(compute).model_fields:
        job = getattr(compute, step)
        if step not in ("cache_days", "max_attempts"):
            hours[job.instance_type] = hours.get(job.instance_type, 0.0) + job.max_runtime_seconds / 3_600
    text = " and ".join(f"{value:.1f} hours of {kind}" for kind, value in sorted(hours.items(), reverse=True))
    assert f"at most {text}" in " ".join(PAGE.split())


def test_the_cost_is_the_plans() -> None:
    costs = make_plan(load_config("aws-smoke"), package_prices()).costs
    assert costs.unpriced == []
    assert f"at most {costs.at_most_usd:.2f} USD" in PAGE
