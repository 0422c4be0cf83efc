"""`langadapt status` and `langadapt logs`: an execution while it goes on, and what its jobs print."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline import completion
from pipeline.command_options import AsJson, ConfigFile, Overrides, Preset, expanded, for_a_reader, print_json

if TYPE_CHECKING:
    from pipeline.execution_record import RunResult
    from pipeline.progress import Progress
    from pipeline.remote.account import Account

WAIT_SECONDS = 5.0

Watched = Annotated[
    str | None,
    typer.Argument(
        help="Id, name or ARN, or a local run's folder; default: the newest execution.", metavar="EXECUTION"
    ),
]
Interval = Annotated[
    float, typer.Option(min=0.1, max=3_600, help="Seconds between two looks, while something happens.")
]


def status(
    execution: Watched = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Until it ends, or once.")] = True,
    interval: Interval = WAIT_SECONDS,
    as_json: AsJson = False,
) -> int:
    """Show an execution as a run is shown, until it ends, and exit as the run would: 0, 1, 2 for a closed gate."""
    from pipeline.config import load_config
    from pipeline.execution_record import is_run
    from pipeline.remote.account import Account
    from pipeline.remote.executions import find_execution

    folder = None if execution is None else expanded(Path(execution))
    if folder is not None and is_run(folder):
        return show_recorded(folder, as_json=as_json)
    settings = load_config(preset, expanded(config), overrides or ())
    account = Account(settings.aws.region)
    arn = find_execution(account, settings.aws.pipeline_name, execution)
    return show_execution(account, arn, follow=follow, interval=interval, as_json=as_json)


def logs(
    step: Annotated[str, typer.Argument(help="A step that runs a job.", autocompletion=completion.steps)],
    execution: Annotated[
        str | None, typer.Option(metavar="EXECUTION", help="Id, name or ARN; default: the newest execution.")
    ] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    follow: Annotated[bool, typer.Option("--follow", help="Until the step has ended.")] = False,
    interval: Interval = WAIT_SECONDS,
    as_json: AsJson = False,
) -> int:
    """Print what a step's job prints; of several hosts, each line with its host."""
    from pipeline.config import load_config
    from pipeline.progress import Output, printable
    from pipeline.remote.account import Account
    from pipeline.remote.executions import find_execution
    from pipeline.remote.job_logs import followed_lines

    settings = load_config(preset, expanded(config), overrides or ())
    account = Account(settings.aws.region)
    arn = find_execution(account, settings.aws.pipeline_name, execution)
    lines = followed_lines(account, arn, step, follow=follow, wait_seconds=interval)
    if as_json:
        with for_a_reader():
            print_json({"step": step, "execution_arn": arn, "lines": [line.as_json() for line, _ in lines]})
        return 0
    output = Output(sys.stdout)
    for line, hosts in lines:
        output.write(f"{f'{line.host}  ' if hosts > 1 else ''}{printable(line.text)}\n")
    return 0


def show_recorded(folder: Path, *, as_json: bool) -> int:
    """The newest execution of a run folder, as it is recorded; its exit code."""
    from pipeline.recorded_run import recorded_run
    from pipeline.summary import shown

    result = recorded_run(folder)
    if not as_json:
        progress = shown_rows()
        progress.start(result.steps, {})
        progress.stop()
    return print_end(result, f"run folder {shown(folder)}", result.as_json() if as_json else None)


def show_execution(
    account: Account, arn: str, *, follow: bool, interval: float = WAIT_SECONDS, as_json: bool = False
) -> int:
    """An execution on SageMaker, once or until it ends; its exit code, 0 where it goes on, 130 after ctrl-C."""
    import tempfile

    from pipeline.error_lines import error_as_json
    from pipeline.progress import Quiet
    from pipeline.remote.execution_view import ExecutionView
    from pipeline.remote.executions import execution_id
    from pipeline.remote.follow import follow as until_it_ends
    from steps.contract import EXIT_INTERRUPTED

    progress: Progress = Quiet() if as_json else shown_rows()
    with tempfile.TemporaryDirectory(prefix="langadapt-status-") as folder:
        try:
            if follow:
                view = until_it_ends(lambda: ExecutionView(account, arn, Path(folder)), progress, interval)
            else:
                view = ExecutionView(account, arn, Path(folder))
                view.look()
                progress.start(view.result.steps, {})
                progress.stop()
                for note in view.notes:
                    progress.line(note)
        except KeyboardInterrupt:
            name = execution_id(arn)
            ways = f"langadapt status {name} shows it, langadapt stop {name} ends it"
            line = f"interrupted: the execution goes on; {ways}"
            print(line, file=sys.stderr)
            if as_json:
                with for_a_reader():
                    print_json(error_as_json(line, EXIT_INTERRUPTED))
            return EXIT_INTERRUPTED
        return print_end(view.result, arn, execution_as_json(view.result, arn, view.notes) if as_json else None)


def shown_rows() -> Progress:
    """Rows on standard output: they are the answer here."""
    from pipeline.progress import progress_for

    return progress_for(sys.stdout)


def execution_as_json(result: RunResult, arn: str, notes: list[str]) -> dict[str, Any]:
    """As execution.json, without places of this machine."""
    value = {name: item for name, item in result.as_json().items() if name not in ("run_folder", "definition")}
    for step in value["steps"].values():
        for name in ("outputs", "log", "started_after_seconds", "job_seconds", "key_members", "cache_key"):
            step.pop(name, None)
    return {**value, "execution_arn": arn, "notes": notes}


def print_end(result: RunResult, place: str, value: dict[str, Any] | None) -> int:
    """What stands below the rows, or the JSON in the place of all."""
    from pipeline.status_lines import status_lines

    with for_a_reader():
        if value is not None:
            print_json(value)
        else:
            print("\n".join(["", *status_lines(result, place)]))
    return result.exit_code or 0
