"""`langadapt report`: a run on one page, or two side by side."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.command_options import (
    AsJson,
    expanded,
    for_a_reader,
    named_place,
    print_json,
)

if TYPE_CHECKING:
    from pipeline.report.facts import Facts

Reported = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's folder, the record of one of its executions, or an execution's ARN."),
]
Beside = Annotated[str | None, typer.Argument(metavar="RUN_B", help="A second one, to lay beside the first.")]
PLACE_OF_ARN = re.compile(r"arn:[^:]+:sagemaker:")


def report(
    run: Reported,
    run_b: Beside = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            parser=named_place,
            help="File to write; default: report.html in the run's folder, of two runs or an ARN here.",
        ),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Write report.md in the place of the page.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a run's report: one HTML file that needs no network, or Markdown; of two runs, a comparison."""
    from pipeline.report.comparison import comparison_of
    from pipeline.report.contents import report_of
    from pipeline.report.files import HTML_NAME, MARKDOWN_NAME, write_markdown, write_page
    from steps.contract import ConfigError

    output = expanded(output)
    if output is not None and output.is_dir():
        raise ConfigError("--output", f"{output} is a folder", remedy="Name a file.")
    as_markdown = as_markdown or (output is not None and output.suffix == ".md")
    facts = facts_named(run)
    made = report_of(facts) if run_b is None else comparison_of(facts, facts_named(run_b))
    name = MARKDOWN_NAME if as_markdown else HTML_NAME
    folder = Path() if run_b is not None or PLACE_OF_ARN.match(run) else facts.result.run_folder
    name = name if run_b is None else name.replace("report", "comparison")
    path = folder / name if output is None else output
    (write_markdown if as_markdown else write_page)(made, path)
    with for_a_reader():
        if as_json:
            told = {"output": str(path), "verdict": made.verdicts[0].text, "bytes": path.stat().st_size}
            print_json({**told, "figures": {figure.name: figure.value for figure in made.figures}})
        else:
            print("\n".join([*(verdict.text for verdict in made.verdicts), str(path)]))
    return 0


def facts_named(named: str) -> Facts:
    """The facts of a run folder, of an execution's record in one, or of an ARN. Raises StepError, AwsError."""
    from pipeline.report.reading import read_record, read_run

    if PLACE_OF_ARN.match(named):
        from pipeline.report.remote_reading import read_execution

        return read_execution(named)
    path = expanded(named_place(named))
    assert path is not None
    return read_record(path) if path.suffix == ".json" else read_run(path)
