"""`langadapt explain-cache`: for each step hit or miss, on SageMaker and here, and which argument changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import AsJson, ConfigFile, Overrides, Preset, expanded, for_a_reader, print_json

if TYPE_CHECKING:
    from pipeline.cache_explanation import Explanation, Side
    from pipeline.config import PipelineConfig
    from pipeline.remote.account import Account

SIDE_HELP = "A definition's JSON, a run's folder or one of its records, or an execution on SageMaker by its ARN or id."


def explain_cache(
    old: Annotated[str, typer.Argument(help=SIDE_HELP)],
    new: Annotated[str | None, typer.Argument(help=f"{SIDE_HELP} Default: the preset, compiled.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """Tell for each step whether a change makes it run again, on SageMaker and here, and which argument changed."""
    from pipeline.cache_explanation import explain
    from pipeline.config import load_config
    from steps.contract import ConfigError

    if new is not None and (preset or config or overrides) and not is_execution(old) and not is_execution(new):
        remedy = "Name NEW, or a configuration to compile."
        raise ConfigError("explain-cache", new, limit="NEW or --preset, --config and --set", remedy=remedy)
    settings = load_config(preset, expanded(config), overrides or ())
    one = named_side(old, settings)
    other = named_side(new, settings) if new is not None else compiled_side(settings, one)
    explanations = explain(one, other)
    with for_a_reader():
        if as_json:
            print_json({"old": one.name, "new": other.name, "steps": [each.as_json() for each in explanations]})
        else:
            print("\n".join(explanation_lines(explanations)))
    return 0


def is_execution(word: str) -> bool:
    """Whether a word names an execution on SageMaker: by its ARN, or by an id that is no file here."""
    from pipeline.remote.executions import EXECUTION_ARN, EXECUTION_ID

    return bool(EXECUTION_ARN.fullmatch(word) or (EXECUTION_ID.fullmatch(word) and not Path(word).exists()))


def named_side(word: str, settings: PipelineConfig) -> Side:
    """The execution on SageMaker that a word names, or what lies at a path.

    settings: where executions are looked for by their id. Raises as read_side does, AwsError.
    """
    if not is_execution(word):
        path = expanded(Path(word))
        assert path is not None
        return read_side(path)
    from pipeline.remote.account import Account
    from pipeline.remote.executions import EXECUTION_ARN, find_execution

    account = Account(word.split(":")[3] if EXECUTION_ARN.fullmatch(word) else settings.aws.region)
    return execution_side(account, find_execution(account, settings.aws.pipeline_name, word))


def execution_side(account: Account, arn: str) -> Side:
    """An execution on SageMaker: its definition, its parameters and what its functions have given. Raises AwsError."""
    from pipeline.remote.executions import execution_id, started_with, step_rows
    from pipeline.remote.step_outputs import function_outputs
    from pipeline.step_graph import build_graph

    definition, parameters = started_with(account, arn)
    side = definition_side(execution_id(arn), definition)
    functions = {name: node.definition for name, node in build_graph(definition).items() if node.type == "Lambda"}
    rows = step_rows(account, arn)
    outputs = {name: function_outputs(functions[name], row) for name, row in rows.items() if name in functions}
    # A step that has not come to its end tells nothing.
    told = {name: values for name, values in outputs.items() if values}
    return replace(side, parameters=parameters, outputs=told)


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


def compiled_side(settings: PipelineConfig, old: Side) -> Side:
    """A configuration as it would be compiled now, with the URIs of the data that the old side was given."""
    import json

    from pipeline.cache_explanation import Side
    from pipeline.compile import compile_definition
    from pipeline.local.run import INPUTS

    definition = json.loads(compile_definition(settings))
    own = default_parameters(definition)
    data = {parameter for parameter, _ in INPUTS.values()}
    given = {name: value for name, value in old.parameters.items() if name in own and name in data}
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
