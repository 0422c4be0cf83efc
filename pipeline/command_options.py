"""Options that several commands of `langadapt` take, and how commands answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline import completion

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
Registry = Annotated[
    Path | None,
    typer.Option("--registry", envvar="LANGADAPT_REGISTRY", help="Registry folder; default: runs/registry."),
]
Group = Annotated[
    str | None,
    typer.Option(help="Model package group, where the registry has several.", autocompletion=completion.groups),
]
Version = Annotated[int, typer.Argument(help="Version number.", autocompletion=completion.versions)]

NamedVersion = Annotated[
    str, typer.Argument(help="Version number, or GROUP/NUMBER.", autocompletion=completion.named_versions)
]


def expanded(path: Path | None) -> Path | None:
    """The path with ~ as the home folder: a shell leaves it as it is behind `=`."""
    return None if path is None else path.expanduser()


@contextmanager
def for_a_reader() -> Iterator[None]:
    """Within it a command tells how it ended. A reader who has gone, as `head` goes, changes nothing of that."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: Any) -> None:
    """One line of JSON on standard output, in letters that its encoding has."""
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf8")
    print(json.dumps(value, ensure_ascii=not is_unicode))
