"""`langadapt check`: the findings of a compiled definition, ours or any other, before the service sees it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.command_options import AsJson, ConfigFile, Overrides, Preset, expanded, for_a_reader, print_json

if TYPE_CHECKING:
    from pipeline.lint import Finding


def check(
    file: Annotated[
        Path | None, typer.Argument(help="A definition's JSON, - for standard input; default: the preset, compiled.")
    ] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """Check a definition against the service's shapes, limits and rules. Exits with 1 where anything is found."""
    name, findings = definition_findings(expanded(file), preset, expanded(config), overrides)
    with for_a_reader():
        if as_json:
            print_json({"definition": name, "findings": [found.as_json() for found in findings], "ok": not findings})
        else:
            print("\n".join([*map(str, findings), f"{name}: {_count(findings)}"]))
    return 1 if findings else 0


def definition_findings(
    file: Path | None, preset: str | None, config: Path | None, overrides: list[str] | None
) -> tuple[str, list[Finding]]:
    """The name of what was checked, and what was found. Raises ConfigError for what is no definition at all."""
    import json

    from pipeline.compile import compile_document
    from pipeline.config import load_config
    from pipeline.lint import lint_definition
    from steps.contract import ConfigError

    if file is None:
        settings = load_config(preset, config, overrides or ())
        return settings.preset, lint_definition(json.dumps(compile_document(settings)))
    if preset or config or overrides:
        remedy = "Name a file, or a configuration to compile."
        raise ConfigError("check", str(file), limit="a file or --preset, --config and --set", remedy=remedy)
    if file.suffix in (".yaml", ".yml"):
        value = f"{file} is a configuration by its name"
        raise ConfigError("check", value, limit="a definition's JSON", remedy=f"Check it with --config {file}.")
    return str(file), lint_definition(definition_text(file, "check"), str(file))


def definition_text(file: Path, subject: str) -> str:
    """What a file, a pipe or, for `-`, standard input holds. Raises ConfigError for what cannot be read as text."""
    from steps.contract import ConfigError

    if str(file) != "-" and (not file.exists() or file.is_dir()):
        value = f"{file} is a folder" if file.is_dir() else f"{file} does not exist"
        raise ConfigError(subject, value, remedy="Name the JSON of a definition, or - for standard input.")
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(subject, f"{file} is not UTF-8", remedy="Save it as UTF-8.") from error


def _count(findings: list[Finding]) -> str:
    return "no finding" if not findings else f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
