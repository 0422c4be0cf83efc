"""The texts that a configuration is made from: a YAML file, and `section.field=value` on top of it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from steps.contract import ConfigError


class ConfigLoader(yaml.SafeLoader):
    """YAML without objects. A key that stands twice is a fault: plain YAML would take the last in silence. Only true
    and false are booleans, as in YAML 1.2: on, off, yes and no are values of fields.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                line = node.value[index][0].start_mark.line + 1
                raise yaml.constructor.ConstructorError(problem=f"{key!r} stands twice, again in line {line}")
        return super().construct_mapping(node, deep)


ConfigLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
ConfigLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, "tTfF")


def read_yaml(text: str, subject: str) -> dict[str, Any]:
    """The mapping that a YAML text holds. Raises ConfigError for any other text."""
    try:
        values = yaml.load(text, ConfigLoader)
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(subject, f"no YAML ({problem}{where})", remedy="Mend the file.") from error
    if not isinstance(values, dict):
        found = "empty" if values is None else f"a {type(values).__name__}"
        raise ConfigError(subject, found, limit="a mapping of sections", remedy="Begin from a preset.")
    return values


def apply_override(values: dict[str, Any], override: str) -> None:
    """Applies one `section.field=value`, the value in YAML, to the nested mapping."""
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError("--set", override, limit="section.field=value", remedy="Put = between field and value.")
    target = values
    for key in keys[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError("--set", override, remedy=f"{key} is a field, no section.")
    if keys[0] == "data":
        # A path stays what was typed: in YAML ` #` begins a comment, and ~ is null.
        target[keys[-1]] = None if text == "null" else text
        return
    try:
        target[keys[-1]] = yaml.load(text, ConfigLoader) if text else ""
    except yaml.YAMLError:
        target[keys[-1]] = text
