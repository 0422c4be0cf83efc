"""Options that several commands of `langadapt` take, and how commands answer."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline import completion
from pipeline.streams import OUTPUT, flush, silence

Preset = Annotated[
    str | None,
    typer.Option(
        help="A configuration that travels with the package; default: laptop.", autocompletion=completion.presets
    ),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="A YAML file in the place of a preset.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.FIELD=VALUE", help="Set one field; may be repeated.", autocompletion=completion.fields
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, errors too.")]
Group = Annotated[
    str | None,
    typer.Option(help="Model package group, where the registry has several.", autocompletion=completion.groups),
]
Version = Annotated[int, typer.Argument(help="Version number.", autocompletion=completion.versions)]

NamedVersion = Annotated[
    str, typer.Argument(help="Version number, or GROUP/NUMBER.", autocompletion=completion.named_versions)
]


def named_folder(text: str) -> Path:
    """A folder's name as it was given. Raises typer.BadParameter for an empty one, which would mean this folder, and
    for an address such as s3://bucket."""
    if not text:
        raise typer.BadParameter("empty; name a folder, or . for this one.")
    return named_place(text)


def named_place(text: str) -> Path:
    """The path of what is written. Raises typer.BadParameter for an address: it would become a folder `s3:` here."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise typer.BadParameter(f"{text} is an address; name a place on this machine.")
    return Path(text)


Registry = Annotated[
    Path | None,
    typer.Option(
        "--registry",
        envvar="LANGADAPT_REGISTRY",
        help="Registry folder; default: runs/registry.",
        metavar="PATH",
        parser=named_folder,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Set a pipeline parameter; may be repeated.",
        autocompletion=completion.parameters,
    ),
]
RunFolder = Annotated[
    Path | None, typer.Option(help="Run folder; default: runs/<preset>.", metavar="PATH", parser=named_folder)
]
Force = Annotated[bool, typer.Option("--force", help="Run every step, whatever is cached.")]
FromStep = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="STEP",
        help="Run this step and all that depends on it, cached or not.",
        autocompletion=completion.steps,
    ),
]
OnlySteps = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEP",
        help="Run this step alone, cached or not; may be repeated.",
        autocompletion=completion.steps,
    ),
]
MaxParallel = Annotated[int, typer.Option(metavar="STEPS", min=1, help="Steps that may work at the same time.")]
IsQuiet = Annotated[bool, typer.Option("--quiet", help="Print the summary or the error alone.")]


def check_words(words: list[str]) -> None:
    """Raises ConfigError for a word of the command line that is no UTF-8: no record of a run could hold it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            from steps.contract import ConfigError

            shown = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise ConfigError("command line", shown, limit="UTF-8", remedy="Write or name it otherwise.") from error


def expanded(path: Path | None) -> Path | None:
    """The path with ~ as the home folder: a shell leaves it as it is behind `=`.

    Raises ConfigError for the home of somebody who is not known here.
    """
    from steps.contract import ConfigError

    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:
        remedy = "Name a folder that exists, or write ./~ for a name that begins so."
        raise ConfigError("path", f"{path} has no home folder", remedy=remedy) from error


@contextmanager
def for_a_reader() -> Iterator[None]:
    """Within it a command tells how it ended. A reader who has gone, as `head` goes, changes nothing of that.

    Raises OutputError where the answer cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        silence(OUTPUT)
    flush()


def print_json(value: Any) -> None:
    """One line of JSON on standard output, in letters that its encoding has."""
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf8")
    print(json.dumps(value, ensure_ascii=not is_unicode))
