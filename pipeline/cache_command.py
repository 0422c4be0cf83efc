"""`langadapt explain-cache`: for each step hit or miss, on SageMaker and here, and which argument changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import AsJson, ConfigFile, Overrides, Preset, expanded, for_a_reader, print_json

if TYPE_CHECKING:
    from pipeline.cache_explanation import Explanation, Side

SIDE_HELP = "A definition's JSON, a run's folder, or the record of one of its executions."


def explain_cache(
    old: Annotated[Path, typer.Argument(help=SIDE_HELP)],
    new: Annotated[Path | None, typer.Argument(help=f"{SIDE_HELP} Default: the preset, compiled.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """Tell for each step whether a change makes it run again, on SageMaker and here, and which argument changed."""
    from pipeline.cache_explanation import explain
    from steps.contract import ConfigError

    if new is not None and (preset or config or overrides):
        remedy = "Name NEW, or a configuration to compile."
        raise ConfigError("explain-cache", str(new), limit="NEW or --preset, --config and --set", remedy=remedy)
    one = read_side(old.expanduser())
    other = read_side(new.expanduser()) if new is not None else compiled_side(preset, expanded(config), overrides, one)
    explanations = explain(one, other)
    with for_a_reader():
        if as_json:
            print_json({"old": one.name, "new": other.name, "steps": [each.as_json() for each in explanations]})
        else:
            print("\n".join(explanation_lines(explanations)))
    return 0


def read_side(path: Path) -> Side:
    """What lies at a path: a run's folder, the record of an execution, or a definition.

    Raises ConfigError for anything else, StepError for an execution whose definition was not kept.
    """
    from pipeline.check_command import definition_text
    from pipeline.execution_record import is_run, read_records
    from pipeline.references import strict_json
    from steps.contract import ConfigError

    if path.is_dir():
        if not is_run(path):
            raise ConfigError("explain-cache", f"{path} is no run's folder", remedy="Name one, or a definition.")
        return recorded_side(str(path), path, next(read_records(path)))
    text = definition_text(path, "explain-cache")
    try:
        content = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("explain-cache", f"{path} is no JSON", remedy="Name a definition or a run.") from error
    if isinstance(content, dict) and "Steps" in content:
        return definition_side(str(path), content)
    if isinstance(content, dict) and isinstance(content.get("steps"), dict):
        # A record lies in the run's folder, or in a folder of all of them below it.
        folder = path.parent if is_run(path.parent) else path.parent.parent
        return recorded_side(str(path), folder, content)
    raise ConfigError("explain-cache", f"{path} is neither", limit="a definition, or a record of a run",
                      remedy="Name another file.")  # fmt: skip


# What a definition must keep to be compared at all: how it is built, and what it needs.
UNUSABLE = frozenset(
    {"an object", "a list", "a text", "a structure", "a map", "required", "a step's name", "no circle",
     "a step that exists", "a reference", "a reference such as Parameters.NAME", "one"}
)  # fmt: skip


def definition_side(name: str, content: dict[str, Any]) -> Side:
    """A definition of its own. Raises ConfigError for one that the service could not read."""
    import json

    from pipeline.cache_explanation import Side
    from pipeline.lint import lint_definition
    from steps.contract import ConfigError

    for found in lint_definition(json.dumps(content), name):
        if found.limit in UNUSABLE:
            remedy = f"{found.remedy} langadapt check lists all that is wrong."
            raise ConfigError(found.where, found.value, limit=found.limit, remedy=remedy)
    return Side(name, content, default_parameters(content))


def recorded_side(name: str, folder: Path, record: dict[str, Any]) -> Side:
    """An execution on this machine, from its record."""
    import json

    from pipeline.cache_explanation import Side
    from steps.contract import StepError

    kept = folder / str(record.get("definition") or "none")
    if not kept.is_file():
        raise StepError(name, "its definition was not kept", remedy="Run it again, which keeps it.")
    steps = record["steps"]
    return Side(
        name, json.loads(kept.read_text(encoding="utf-8")), record["parameters"],
        outputs={name: step["values"] for name, step in steps.items() if step.get("values")},
        key_members={name: step["key_members"] for name, step in steps.items() if step.get("key_members")},
    )  # fmt: skip


def compiled_side(preset: str | None, config: Path | None, overrides: list[str] | None, old: Side) -> Side:
    """A configuration as it would be compiled now, with the URIs that the old side was given."""
    import json

    from pipeline.cache_explanation import Side
    from pipeline.compile import compile_definition
    from pipeline.config import load_config

    settings = load_config(preset, config, overrides or ())
    definition = json.loads(compile_definition(settings))
    own = default_parameters(definition)
    given = {name: value for name, value in old.parameters.items() if name in own and name.endswith("Uri")}
    return Side(settings.preset, definition, own | given)


def default_parameters(definition: dict[str, Any]) -> dict[str, Any]:
    """The defaults of a definition's parameters, by name."""
    return {entry["Name"]: entry.get("DefaultValue", "") for entry in definition.get("Parameters", [])}


def explanation_lines(explanations: list[Explanation]) -> list[str]:
    """A line for each step, and below it what changed."""
    width = max((len(each.step) for each in explanations), default=0)
    lines = []
    for each in explanations:
        lines.append(f"{each.step:<{width}}  SageMaker {each.service:<5}  here {each.local}")
        lines += [f"  {change}" for change in each.changed]
        reasons = [("SageMaker", each.service_reason, each.service), ("here", each.local_reason, each.local)]
        lines += [f"  {where}: {reason}" for where, reason, outcome in reasons if reason and outcome != "hit"]
    return lines
