"""`langadapt upsert | start | stop | retry | executions | schedule`: the pipeline in an AWS account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    FromStep,
    OnlySteps,
    Overrides,
    Parameters,
    Preset,
    expanded,
    for_a_reader,
    print_json,
)

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig
    from pipeline.remote.writes import Writes

DryRun = Annotated[bool, typer.Option("--dry-run", help="Send nothing: print the requests as JSON.")]
ExecutionName = Annotated[
    str | None, typer.Argument(help="Id, name or ARN; default: the newest execution.", metavar="EXECUTION")
]
ScheduleName = Annotated[str | None, typer.Option("--name", help="Its name; default: the pipeline's.")]

schedule = typer.Typer(help="Executions by EventBridge Scheduler.", rich_markup_mode=None)


def upsert(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Compile and check the definition, send it and its code to the account; says what has changed there."""
    from pipeline.remote.upsert import upsert as send

    settings, writes = opened(preset, config, overrides, dry_run)
    result = send(settings, writes)
    lines = [f"pipeline {result.pipeline}: {result.outcome}", *(f"  {line}" for line in result.changes)]
    lines += [f"  sent {uri}" for uri in result.archives]
    return answer(writes, vars(result), lines, as_json)


def start(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    param: Parameters = None,
    name: Annotated[
        str | None, typer.Option(help="Its name; the same command with the same name starts it once.")
    ] = None,
    from_step: FromStep = None,
    only: OnlySteps = None,
    source: Annotated[
        str | None, typer.Option(help="Execution that other steps' results come from; default: the newest ended.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show it until it ends, as status does.")] = False,
    preflight: Annotated[
        bool, typer.Option("--preflight", help="Look at the account first; start only where nothing is missing.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Start an execution of the pipeline and print its ARN."""
    from pipeline.local.run import split_parameters
    from pipeline.remote.start import deployed_definition, required_pipeline, start_request
    from pipeline.remote.start import start as send

    settings, writes = opened(preset, config, overrides, dry_run)
    given = split_parameters(param or ())
    request = start_request(
        writes.account, settings.aws.pipeline_name, given,
        name=name, from_step=from_step, only=only or (), source=source,
    )  # fmt: skip
    if preflight:
        from pipeline.preflight_command import looked_at

        definition = deployed_definition(required_pipeline(writes.account, settings.aws.pipeline_name))
        # What is sent or shown is one JSON object.
        quiet = as_json or dry_run
        if not looked_at(settings, definition, writes.account, given, as_json=as_json, quiet=quiet):
            return 1
    arn = send(writes, request)
    name = request["PipelineExecutionDisplayName"]
    if follow and not dry_run:
        from pipeline.status_command import show_execution

        if not as_json:
            with for_a_reader():
                print(arn)
        return show_execution(writes.account, arn, follow=True, as_json=as_json)
    return answer(writes, {"arn": arn, "name": name}, [arn], as_json)


def stop(
    execution: ExecutionName = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Stop an execution: its jobs get SIGTERM and may write a checkpoint."""
    from pipeline.remote.executions import find_execution, stop_execution

    settings, writes = opened(preset, config, overrides, dry_run)
    arn = find_execution(writes.account, settings.aws.pipeline_name, execution)
    before = stop_execution(writes, arn)
    told = "stopping" if before == "Executing" else f"{before} already"
    return answer(writes, {"arn": arn, "status_before": before}, [f"{arn}: {told}"], as_json)


def retry(
    execution: ExecutionName = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Let a failed or stopped execution go on: what succeeded is kept, training goes on from its checkpoint."""
    from pipeline.remote.executions import GOING_ON, find_execution, retry_execution

    settings, writes = opened(preset, config, overrides, dry_run)
    arn = find_execution(writes.account, settings.aws.pipeline_name, execution)
    before = retry_execution(writes, arn)
    told = f"{before} already" if before in GOING_ON else "goes on"
    return answer(writes, {"arn": arn, "status_before": before}, [f"{arn}: {told}"], as_json)


def executions(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, the newest first.")] = 20,
    as_json: AsJson = False,
) -> int:
    """List executions of the pipeline, the newest first."""
    from pipeline.remote.executions import first_executions

    settings, writes = opened(preset, config, overrides)
    rows = first_executions(writes.account, settings.aws.pipeline_name, limit)
    width = max((len(row["name"]) for row in rows), default=0)
    lines = [
        f"{row['id']}  {row['name']:<{width}}  {row['status']:<22}  {row['started']}  {row['failure']}".rstrip()
        for row in rows
    ]
    return answer(writes, rows, lines or [f"pipeline {settings.aws.pipeline_name} has no execution"], as_json)


@schedule.command("set")
def schedule_set(
    expression: Annotated[str, typer.Argument(help="cron(0 3 ? * SUN *), rate(7 days) or at(2027-01-31T03:00:00).")],
    time_zone: Annotated[str, typer.Option(help="Time zone of a cron expression, such as Asia/Baku.")] = "UTC",
    name: ScheduleName = None,
    param: Parameters = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Start executions at these times, with these parameters; one schedule of a name."""
    from pipeline.local.run import split_parameters
    from pipeline.remote.schedule import check_schedule, schedule_request, set_schedule
    from pipeline.remote.start import required_pipeline

    settings, writes = opened(preset, config, overrides, dry_run)
    given, name = split_parameters(param or ()), settings.aws.pipeline_name if name is None else name
    role_arn = check_schedule(name, expression, time_zone, settings.aws.scheduler_role_arn)
    deployed = required_pipeline(writes.account, settings.aws.pipeline_name)
    request = schedule_request(name, expression, time_zone, role_arn, deployed, given)
    outcome = set_schedule(writes, request)
    told = f"schedule {request['Name']}: {outcome}, {expression} {time_zone}"
    return answer(writes, {"name": request["Name"], "outcome": outcome}, [told], as_json)


@schedule.command("list")
def schedule_list(
    preset: Preset = None, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False
) -> int:
    """List the schedules that start the pipeline."""
    from pipeline.remote.schedule import list_schedules
    from pipeline.remote.start import required_pipeline

    settings, writes = opened(preset, config, overrides)
    rows = list(list_schedules(writes.account, settings.aws.pipeline_name))
    if not rows:
        # A pipeline that has gone may have left schedules.
        required_pipeline(writes.account, settings.aws.pipeline_name)
    lines = [
        " ".join([f"{row['name']}  {row['expression']} {row['time_zone']}  {row['state']} ",
                  *(f"{name}={value}" for name, value in row["parameters"].items())]).rstrip()
        for row in rows
    ]  # fmt: skip
    return answer(writes, rows, lines or [f"pipeline {settings.aws.pipeline_name} has no schedule"], as_json)


@schedule.command("remove")
def schedule_remove(
    name: ScheduleName = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Remove a schedule; executions that it has started go on."""
    from pipeline.remote.schedule import check_name, remove_schedule

    settings, writes = opened(preset, config, overrides, dry_run)
    name = settings.aws.pipeline_name if name is None else name
    check_name(name)
    outcome = "removed" if remove_schedule(writes, name, settings.aws.pipeline_name) else "there was none"
    return answer(writes, {"name": name, "outcome": outcome}, [f"schedule {name}: {outcome}"], as_json)


def opened(
    preset: str | None, config: Path | None, overrides: list[str] | None, dry_run: bool = False
) -> tuple[PipelineConfig, Writes]:
    """The configuration, and the account of its section aws."""
    from pipeline.config import load_config
    from pipeline.remote.account import Account
    from pipeline.remote.writes import Writes

    settings = load_config(preset, expanded(config), overrides or ())
    return settings, Writes(Account(settings.aws.region), dry_run=dry_run)


def answer(writes: Writes, value: Any, lines: list[str], as_json: bool) -> int:
    """Prints what was done; of a dry run the requests in its place, with what they would change."""
    import json

    unsent = {"changes": value.get("changes", []), "requests": writes.requests} if writes.dry_run else {}
    with for_a_reader():
        if as_json and unsent:
            print_json(unsent)
        elif unsent:
            print(json.dumps(unsent, indent=2, ensure_ascii=False))
        elif as_json:
            print_json(value)
        else:
            print("\n".join(lines))
    return 0
