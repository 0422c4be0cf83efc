"""The commands of this machine: run, compile, sample and doctor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    Force,
    FromStep,
    IsQuiet,
    MaxParallel,
    OnlySteps,
    Overrides,
    Parameters,
    Preset,
    Registry,
    RunFolder,
    expanded,
    for_a_reader,
    named_folder,
    named_place,
    print_json,
)
from pipeline.model_commands import check_registry


def run(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    param: Parameters = None,
    run_dir: RunFolder = None,
    registry: Registry = None,
    force: Force = False,
    from_step: FromStep = None,
    only: OnlySteps = None,
    max_parallel: MaxParallel = 2,
    quiet: IsQuiet = False,
    as_json: AsJson = False,
) -> int:
    """Run the whole DAG on this machine: no Docker, no AWS, no network."""
    from pipeline.config import load_config
    from pipeline.local.run import DEFAULT_REGISTRY, run_folder_for, run_locally
    from pipeline.local.stopping import leave_at_once
    from pipeline.progress import Quiet, progress_for
    from pipeline.report.files import written_report
    from pipeline.summary import summary_lines, tokenizer_lines

    settings = load_config(preset, expanded(config), overrides or ())
    registry_folder = expanded(registry) or DEFAULT_REGISTRY
    check_registry(registry_folder)
    result = run_locally(
        settings,
        run_folder=run_folder_for(settings, expanded(run_dir)),
        registry_folder=registry_folder,
        parameters=param or (),
        force=force,
        from_step=from_step,
        only=only or (),
        max_parallel=max_parallel,
        progress=Quiet() if quiet else progress_for(),
    )
    report_line = "" if result.left_working else written_report(result)
    with for_a_reader():
        if as_json:
            print_json(result.as_json())
        else:
            if quiet and result.failure:
                print(f"error: {result.failure}", file=sys.stderr)
            above = [] if quiet else ["", *tokenizer_lines(result)]
            *lines, last = summary_lines(result, registry_folder)
            print("\n".join([*above, *lines, *filter(None, [report_line]), last]))
    if result.left_working:
        leave_at_once(result.exit_code or 0)
    return result.exit_code or 0


def compile_command(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    output: Annotated[
        Path | None, typer.Option(help="File to write; default: standard output.", metavar="PATH", parser=named_place)
    ] = None,
    as_json: AsJson = False,
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
        # JSON already.
        sys.stdout.write(text)
        return 0
    write_atomically(output, text)
    steps, size = len(json.loads(text)["Steps"]), len(text.encode())
    if as_json:
        print_json({"output": str(output), "steps": steps, "bytes": size})
    else:
        print(f"{output}: {steps} steps, {size:,} bytes")
    return 0


def sample(
    folder: Annotated[
        Path,
        typer.Argument(
            help="New folder for corpus, conversations and base model.", metavar="FOLDER", parser=named_folder
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Write the demonstration corpus, conversations and base model into a folder."""
    from pipeline.local.run import sample_folder
    from pipeline.progress import progress_for

    written = str(sample_folder(progress_for(), folder=expanded(folder)))
    if as_json:
        print_json({"folder": written})
    else:
        print(written)
    return 0


def doctor(
    run_dir: Annotated[
        Path | None, typer.Option(help="Run folder to look at; default: runs.", metavar="PATH", parser=named_folder)
    ] = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Look at this machine: what a run needs, what is missing, what it would bring."""
    from pipeline.doctor import examine, finding_lines

    findings = examine(expanded(run_dir), expanded(registry))
    with for_a_reader():
        if as_json:
            ok = not any(finding.stops for finding in findings)
            print_json({"findings": [finding.as_json() for finding in findings], "ok": ok})
        else:
            print("\n".join(finding_lines(findings)))
    return 1 if any(finding.stops for finding in findings) else 0
