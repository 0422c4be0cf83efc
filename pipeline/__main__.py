"""The command line `langadapt`. What is slow to import stays inside the commands."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from pipeline.cache_command import explain_cache
from pipeline.chat.command import chat
from pipeline.check_command import check
from pipeline.command_options import check_words, for_a_reader, print_json
from pipeline.error_lines import error_as_json
from pipeline.mask_command import inspect_mask
from pipeline.model_commands import models
from pipeline.plan.command import plan
from pipeline.preflight_command import preflight
from pipeline.remote.push_command import push
from pipeline.remote_commands import executions, retry, schedule, start, stop, upsert
from pipeline.report.command import report
from pipeline.run_commands import compile_command, doctor, run, sample
from pipeline.status_command import logs, status
from pipeline.streams import OUTPUT, OutputError, flush, leave_terminal, open_streams, silence, tell

# Of steps.contract, which the help does not import.
EXIT_TERMINATED = 143

# typer carries a click of its own, whose errors it does not name; the one that it does name leads to their base.
UsageProblem: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


class Commands(TyperGroup):
    """Ctrl-C comes out as what it is: typer would end with 130 as if the command had answered so."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


app = typer.Typer(
    cls=Commands,
    help="Adapt an open foundation model to a new language: one DAG for SageMaker Pipelines, whole on a laptop too.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(models, name="models")
app.add_typer(push, name="push")
app.add_typer(schedule, name="schedule")


app.command()(run)
app.command("compile")(compile_command)
app.command()(sample)
app.command()(doctor)
app.command()(check)
app.command()(plan)
app.command()(upsert)
app.command()(preflight)
app.command()(start)
app.command()(status)
app.command()(logs)
app.command()(report)
app.command()(stop)
app.command()(retry)
app.command()(executions)
app.command("explain-cache")(explain_cache)
app.command()(chat)
app.command("inspect-mask")(inspect_mask)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits: 0 done, 1 user error (usage too), 2 gate closed, 70 our bug, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    open_streams()
    # As an exception, so that what was begun is ended; a run has its own way while steps are at work.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_TERMINATED))
    # Ignored under nohup, and then it stays so.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, hung_up)
    code = command_code(arguments, as_json="--json" in arguments)
    try:
        flush()
    except OutputError as error:
        tell(f"error: {error}")
        code = code or 1
    sys.exit(code)


def hung_up(number: int, frame: object) -> None:
    """The terminal was closed or the connection dropped: as SIGTERM, with nobody to tell."""
    leave_terminal()
    sys.exit(EXIT_TERMINATED)


def command_code(arguments: list[str], as_json: bool) -> int:
    """Runs a command and returns its exit code, every error told."""
    try:
        os.getcwd()
    except FileNotFoundError:
        parts: dict[str, object] = {
            "subject": "current folder", "value": "does not exist any more", "remedy": "Change to another one."
        }  # fmt: skip
        return print_error("{subject}: {value}. {remedy}".format_map(parts), 1, as_json, parts)
    try:
        check_words(arguments)
        return app(args=arguments or ["--help"], prog_name="langadapt", standalone_mode=False) or 0
    except UsageProblem as error:
        parts = usage_parts(error)
        return print_error(f"{usage_line(error)} {parts['remedy']}", 1, as_json, parts)
    except (typer.Abort, KeyboardInterrupt):
        return print_error("interrupted", 130, as_json)
    except OutputError as error:
        silence(OUTPUT)
        return print_error(str(error), 1, as_json=False)
    except BrokenPipeError:
        # Of commands that can only end well: the others print `for_a_reader`.
        return 0
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):
            # click's way of ending where nobody reads.
            return 0
        # As Python itself ends: without a code well, with a text not.
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return (
            print_error("stopped by SIGTERM or a closed terminal", code, as_json) if code == EXIT_TERMINATED else code
        )
    except Exception as error:
        # Imported here, as is all that the help does not need: it brings pydantic.
        from steps.contract import EXIT_BUG
        from steps.contract.faults import mendable_error

        known = mendable_error(error)
        if known is None:
            traceback.print_exc()
            return print_error(f"{type(error).__name__}: {error}", EXIT_BUG, as_json, silent=not as_json)
        parts = {"subject": known.subject, "value": known.value, "limit": known.limit, "remedy": known.remedy}
        return print_error(str(known), 1, as_json, parts)


def usage_line(error: Any) -> str:
    """What a misused command line is told, as a sentence."""
    line = error.format_message()
    return line if line.endswith((".", "?")) else f"{line}."


def usage_parts(error: Any) -> dict[str, object]:
    """Subject, value and remedy of a misused command line: the option or argument at fault, where it is known."""
    param, ctx = getattr(error, "param", None), getattr(error, "ctx", None)
    subject = getattr(error, "option_name", None) or getattr(error, "param_hint", None)
    if subject is None and param is not None:
        subject = max(param.opts, key=len)
    command = ctx.command_path if ctx is not None else "langadapt"
    return {"subject": subject or command, "value": error.message or "not given", "remedy": f"See {command} --help."}


def print_error(
    line: str, code: int, as_json: bool, parts: dict[str, object] | None = None, *, silent: bool = False
) -> int:
    """One line on standard error, or one JSON object on standard output; returns the code."""
    line = " ".join(line.split())
    if as_json:
        try:
            with for_a_reader():
                print_json(error_as_json(line, code, **(parts or {})))
        except (OutputError, OSError):
            tell(f"error: {line}")
    elif not silent and code not in (130, 143):
        tell(f"error: {line}")
    return code


if __name__ == "__main__":
    main()
