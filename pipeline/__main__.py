"""The command line `langadapt`. What is slow to import stays inside the commands."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

# typer carries a click of its own, whose errors it does not name; the one that it does name leads to their base.
UsageProblem: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

app = typer.Typer(
    help="Adapt an open foundation model to a new language: one DAG for SageMaker Pipelines, whole on a laptop too.",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
models = typer.Typer(help="Model versions of the registry.", rich_markup_mode=None)
app.add_typer(models, name="models")

Preset = Annotated[str | None, typer.Option(help="A configuration that travels with the package; default: laptop.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML file in the place of a preset.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Set one field; may be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Registry = Annotated[
    Path | None,
    typer.Option("--registry", envvar="LANGADAPT_REGISTRY", help="Registry folder; default: runs/registry."),
]
Group = Annotated[str | None, typer.Option(help="Model package group, where the registry has several.")]


@app.command()
def run(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set a pipeline parameter; may be repeated.")
    ] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Run folder; default: runs/<preset>.")] = None,
    registry: Registry = None,
    force: Annotated[bool, typer.Option("--force", help="Run every step, whatever is cached.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run the whole DAG on this machine: no Docker, no AWS, no network."""
    from pipeline.config import load_config
    from pipeline.local.run import DEFAULT_REGISTRY, run_folder_for, run_locally
    from pipeline.summary import summary_lines

    settings = load_config(preset, expanded(config), overrides or ())
    registry_folder = expanded(registry) or DEFAULT_REGISTRY
    result = run_locally(
        settings,
        run_folder=run_folder_for(settings, expanded(run_dir)),
        registry_folder=registry_folder,
        parameters=param or (),
        force=force,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    if as_json:
        print(json.dumps(result.as_json(), ensure_ascii=False))
    else:
        print("\n".join(["", *summary_lines(result, registry_folder)]))
    return result.exit_code or 0


@app.command("compile")
def compile_command(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    output: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
) -> int:
    """Compile the pipeline definition as SageMaker takes it: offline, the same bytes for the same input."""
    from pipeline.compile import compile_definition
    from pipeline.config import load_config
    from steps.contract import ConfigError, write_atomically

    output = expanded(output)
    if output is not None and output.is_dir():
        raise ConfigError("--output", f"{output} is a folder", remedy="Name a file.")
    text = compile_definition(load_config(preset, expanded(config), overrides or ()))
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
        print(f"{output}: {len(json.loads(text)['Steps'])} steps, {len(text.encode()):,} bytes")
    return 0


@app.command()
def sample(folder: Annotated[Path, typer.Argument(help="New folder for corpus, conversations and base model.")]) -> int:
    """Write the demonstration corpus, conversations and base model into a folder."""
    from pipeline.local.run import sample_folder

    print(sample_folder(folder=folder.expanduser()))
    return 0


@models.command("list")
def models_list(registry: Registry = None, as_json: AsJson = False) -> int:
    """List the registered model versions."""
    versions = open_registry(registry).list_versions()
    if as_json:
        print(json.dumps([version_row(version) for version in versions], ensure_ascii=False))
        return 0
    if not versions:
        print("no model version is registered here; langadapt run registers one when its gate is open")
    for version in versions:
        row = version_row(version)
        print(f"{row['group']}  version {row['version']}  {row['status']:<22}  {row['created_at']}")
    return 0


@models.command("show")
def models_show(
    version: Annotated[int, typer.Argument(help="Version number.")],
    group: Group = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Show one version: its evidence, where it comes from, its approval history."""
    entry = open_registry(registry).show(version, group)
    if as_json:
        print(json.dumps(entry.model_dump(mode="json"), ensure_ascii=False))
        return 0
    print(f"{entry.group} version {entry.version}: {entry.status}")
    print(f"  model    {entry.model_folder} ({entry.model_bytes:,} bytes, sha256 {entry.model_digest[:16]})")
    for name, value in entry.metadata.items():
        print(f"  {name:<32} {value}")
    for approval in entry.approvals:
        by = f" by {approval.by}" if approval.by else ""
        comment = f": {approval.comment}" if approval.comment else ""
        print(f"  {seconds_as_date(approval.at)}  {approval.status}{by}{comment}")
    return 0


@models.command("approve")
def models_approve(
    version: Annotated[int, typer.Argument(help="Version number.")],
    comment: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    group: Group = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Approve a version: it becomes the champion that later candidates are compared with."""
    entry = open_registry(registry).approve(version, comment, group=group, by=user_name())
    print_status(entry, as_json)
    return 0


@models.command("reject")
def models_reject(
    version: Annotated[int, typer.Argument(help="Version number.")],
    comment: Annotated[str, typer.Option(help="Why, for the history.")],
    group: Group = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Reject a version, with the reason."""
    entry = open_registry(registry).reject(version, comment, group=group, by=user_name())
    print_status(entry, as_json)
    return 0


def expanded(path: Path | None) -> Path | None:
    """The path with ~ as the home folder: a shell leaves it as it is behind `=`."""
    return None if path is None else path.expanduser()


def user_name() -> str:
    """The login name, or the number of a user who has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def open_registry(folder: Path | None):
    """The local registry in a folder, runs/registry by default."""
    from pipeline.local.run import DEFAULT_REGISTRY
    from pipeline.registry import LocalRegistry

    return LocalRegistry(expanded(folder) or DEFAULT_REGISTRY)


def version_row(entry) -> dict[str, Any]:
    """What a list shows of a version."""
    return {
        "group": entry.group,
        "version": entry.version,
        "status": entry.status,
        "created_at": seconds_as_date(entry.created_at),
        "model_digest": entry.model_digest,
        "model_folder": str(entry.model_folder),
        "metadata": entry.metadata,
    }


def seconds_as_date(seconds: float) -> str:
    """ISO 8601 in UTC, to the second."""
    import datetime

    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_status(entry, as_json: bool) -> None:
    if as_json:
        print(json.dumps(version_row(entry), ensure_ascii=False))
    else:
        print(f"{entry.group} version {entry.version}: {entry.status}")


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits: 0 done, 1 user error (usage too), 2 gate closed, 70 our bug, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    # As an exception, so that what was begun is ended; a run has its own way while steps are at work.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        sys.exit(app(args=arguments or ["--help"], prog_name="langadapt", standalone_mode=False) or 0)
    except UsageProblem as error:
        sys.exit(print_error(error.format_message(), as_json))
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        # Imported here, as is all that the help does not need: it brings pydantic.
        from steps.contract import EXIT_BUG, PLACE_ERRORS, UserError, place_error

        if isinstance(error, OSError) and error.errno in PLACE_ERRORS:
            error = place_error(error)
        if isinstance(error, UserError):
            parts = {"subject": error.subject, "value": str(error.value), "remedy": error.remedy}
            sys.exit(print_error(str(error), as_json, **parts))
        traceback.print_exc()
        sys.exit(EXIT_BUG)


def print_error(line: str, as_json: bool, **parts: str) -> int:
    """One line on standard error, or one JSON object on standard output."""
    line = " ".join(line.split())
    if as_json:
        print(json.dumps({"error": {"line": line, **parts}}, ensure_ascii=False))
    else:
        print(f"error: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
