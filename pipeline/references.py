"""References of a compiled definition: Get, Std:Join and Std:JsonGet, parameters, properties and property files.

A definition holds literal values and references to values that are known only while it runs:

    {"Get": "Parameters.CorpusUri"}
    {"Get": "Execution.PipelineExecutionId"}
    {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
    {"Get": "Steps.Prepare.ProcessingOutputConfig.Outputs['output'].S3Output.S3Uri"}
    {"Std:Join": {"On": "/", "Values": ["s3://bucket", {"Get": "Parameters.Name"}]}}
    {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Evaluate.PropertyFiles.Evaluation"}, "Path": "a.b[0]"}}
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps.contract import ConfigError, StepError, nearest_name

_PLAIN_NAME = re.compile(r"[A-Za-z_][\w-]*")
_PATH_PART = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]|\.?([^.\[\]]+)")


@dataclass
class Scope:
    """What references resolve to at one moment of a run.

    parameters: typed values by name.  execution: variables such as PipelineExecutionId.
    steps: properties of each finished step by step name.
    property_files: file by (step name, property file name).
    find_file: the file that a URI stands for.
    """

    parameters: Mapping[str, Any]
    execution: Mapping[str, str]
    steps: dict[str, Any] = field(default_factory=dict)
    property_files: dict[tuple[str, str], Path] = field(default_factory=dict)
    find_file: Callable[[str], Path] = Path

    def inside(self, **variables: str) -> Scope:
        """The same scope with further execution variables, such as the name of a step's job."""
        return dataclasses.replace(self, execution={**self.execution, **variables})

    def resolve(self, value: Any) -> Any:
        """The value with every reference in it replaced. Raises StepError for one that leads nowhere."""
        if isinstance(value, list):
            return [self.resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        match reference_kind(value):
            case "Get":
                return self._get(value["Get"])
            case "Std:Join":
                join = value["Std:Join"]
                return join.get("On", "").join(as_text(self.resolve(item)) for item in join["Values"])
            case "Std:JsonGet":
                return self._json_get(value["Std:JsonGet"])
        return {key: self.resolve(item) for key, item in value.items()}

    def _get(self, reference: str) -> Any:
        kind, _, rest = reference.partition(".")
        if kind == "Parameters" and rest in self.parameters:
            return self.parameters[rest]
        if kind == "Execution" and rest in self.execution:
            return self.execution[rest]
        if kind == "Steps":
            step, _, path = rest.partition(".")
            if step in self.steps:
                return look_up(self.steps[step], path, reference)
        raise StepError(reference, "stands for nothing that this run knows", remedy="Correct the definition.")

    def _json_get(self, arguments: Mapping[str, Any]) -> Any:
        path = arguments["Path"]
        if "PropertyFile" in arguments:
            _, step, _, name = arguments["PropertyFile"]["Get"].split(".", 3)
            file = self.property_files.get((step, name))
            if file is None:
                raise StepError(f"{step}.{name}", "no such property file", remedy="Declare it in PropertyFiles.")
        else:
            file = self.find_file(self.resolve(arguments["S3Uri"]))
        try:
            content = strict_json(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise StepError(str(file), "not written by its step", remedy="Look at that step's log.") from error
        except (ValueError, RecursionError) as error:
            raise StepError(str(file), f"no JSON ({error})", remedy="Look at the log of its step.") from error
        found = look_up(content, path, f"{file.name}: {path}")
        if isinstance(found, float) and not math.isfinite(found):
            raise StepError(f"{file.name}: {path}", found, limit="a finite number", remedy="Look at its step's log.")
        return found


def strict_json(text: str) -> Any:
    """The content of JSON as the standard has it. Python alone would also take NaN and Infinity, which are none, and of
    a member given twice the last.

    Raises ValueError for these too.
    """

    def refuse(token: str) -> None:
        raise ValueError(f"{token} is no number")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=members)


def reference_kind(value: Any) -> str | None:
    """`Get`, `Std:Join` or `Std:JsonGet` where a value is such a reference, else None."""
    if isinstance(value, dict) and len(value) == 1:
        (key,) = value
        if key in ("Std:Join", "Std:JsonGet") or (key == "Get" and isinstance(value[key], str)):
            return key
    return None


def as_text(value: Any) -> str:
    """A value inside Std:Join, as the service writes it: true and false, numbers as in JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def look_up(content: Any, path: str, subject: str, ends_at: Callable[[Any], bool] = lambda value: False) -> Any:
    """The value at a path such as `a.b[0]`, `$.a['b']` or `Outputs['x'].S3Output`.

    A name in brackets on a list takes the element whose member ending in `Name` has that value, as the service does.
    ends_at: true for a value that nothing is looked for in; the rest of the path must be well-formed all the same.
    Raises StepError that names the subject and the part not found.
    """
    current = content
    for part in path_parts(path, subject):
        if ends_at(current):
            continue
        try:
            if isinstance(part, int):
                current = current[part]
            elif isinstance(current, list):
                current = next(item for item in current if part in _names(item))
            else:
                current = current[part]
        except (KeyError, IndexError, TypeError, StopIteration) as error:
            remedy = "Correct the path."
            if isinstance(current, dict) and isinstance(part, str) and part:
                remedy = nearest_name(part, current)
            missing = f"no element {part}" if isinstance(part, int) else f"no {part!r}"
            raise StepError(subject, missing, remedy=remedy) from error
    return current


def member_path(path: str, name: str | int) -> str:
    """The path of a member, or of an element, of what lies at a path; `path_parts` reads it."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    if not _PLAIN_NAME.fullmatch(name):
        return f"{path}['{name}']"
    return f"{path}.{name}" if path else name


def path_parts(path: str, subject: str) -> list[str | int]:
    """The names and positions that a path such as `$.a['b'].c[0]` leads through. Raises StepError for none."""
    parts: list[str | int] = []
    position = 1 if path.startswith("$") else 0
    while position < len(path):
        part = _PATH_PART.match(path, position)
        if part is None:
            raise StepError(subject, f"path {path!r} not understood", remedy="Write it as a.b[0].")
        position = part.end()
        if part[1] is not None:
            parts.append(int(part[1]))
        else:
            parts.append(next((text for text in (part[2], part[3], part[4]) if text is not None), ""))
    return parts


def _names(item: Any) -> list[Any]:
    return [value for key, value in item.items() if key.endswith("Name")] if isinstance(item, dict) else []


def walk_references(value: Any) -> Iterator[dict[str, Any]]:
    """Every reference inside a value, those nested in other references included."""
    if isinstance(value, list):
        for item in value:
            yield from walk_references(item)
    elif isinstance(value, dict):
        if reference_kind(value) is not None:
            yield value
        for item in value.values():
            yield from walk_references(item)


def referenced_steps(value: Any) -> set[str]:
    """Names of the steps that a value refers to."""
    found = set()
    for reference in walk_references(value):
        text = reference.get("Get")
        if text is not None and text.startswith("Steps."):
            found.add(text.split(".", 2)[1])
    return found


# --- parameters -------------------------------------------------------------------------------------------------------


def parameter_values(declared: list[dict[str, Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """Typed values of all parameters of a definition: those given as texts, defaults for the rest.

    Raises ConfigError for an unknown name (naming the nearest), a wrong type, a value outside EnumValues, or a
    parameter with neither value nor default.
    """
    by_name = {parameter["Name"]: parameter for parameter in declared}
    for name in given:
        if name not in by_name:
            raise ConfigError(f"--param {name}", "no such parameter", remedy=nearest_name(name, by_name))
    values: dict[str, Any] = {}
    for name, parameter in by_name.items():
        if name in given:
            values[name] = typed_value(name, given[name], parameter["Type"])
        elif "DefaultValue" in parameter:
            values[name] = parameter["DefaultValue"]
        else:
            raise ConfigError(f"--param {name}", "not given and without default", remedy=f"Add --param {name}=VALUE.")
        allowed = parameter.get("EnumValues")
        if allowed and values[name] not in allowed:
            limit = f"one of {', '.join(map(str, allowed))}"
            raise ConfigError(f"--param {name}", values[name], limit=limit, remedy=nearest_name(values[name], allowed))
    return values


def typed_value(name: str, text: Any, kind: str) -> Any:
    """A text as String, Integer, Float or Boolean. Raises ConfigError where it is none."""
    text = as_text(text)
    try:
        if kind == "Integer":
            return int(text)
        if kind == "Float" and math.isfinite(number := float(text)):
            return number
        if kind == "Boolean":
            return {"true": True, "false": False}[text.lower()]
        if kind == "String":
            return text
    except (ValueError, KeyError):
        pass
    limit = {"Integer": "a whole number", "Float": "a finite number", "Boolean": "true or false"}.get(kind, kind)
    raise ConfigError(f"--param {name}", text, limit=limit, remedy="Change this value.")
