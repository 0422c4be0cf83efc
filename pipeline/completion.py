"""What the shells offer behind the options: presets, fields, parameters, steps, model versions.

A shell waits for it at every press of the tabulator, so nothing slow is imported: the names of steps and parameters
are read from the text of the modules that declare them, as those import the SageMaker SDK.
"""

from __future__ import annotations

import ast
import os
from importlib import resources
from pathlib import Path
from typing import Any

DEFAULT_REGISTRY = Path("runs/registry")
# Fields of the whole configuration that stand in no section.
TOP_LEVEL_FIELDS = ("model_approval_status", "ablation")


def presets(incomplete: str) -> list[str]:
    """Presets that travel with the package."""
    entries = (resources.files("pipeline") / "presets").iterdir()
    return _beginning(
        incomplete, [entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml")]
    )


def fields(incomplete: str) -> list[str]:
    """`section.field=` of every field that --set knows; behind the = nothing is offered."""
    from pipeline.config import PipelineConfig

    if "=" in incomplete:
        return []
    return _beginning(incomplete, _field_names(PipelineConfig, ""))


def _field_names(model: Any, prefix: str) -> list[str]:
    names = []
    for name, info in model.model_fields.items():
        inner = getattr(info.annotation, "model_fields", None)
        if inner:
            names += _field_names(info.annotation, f"{prefix}{name}.")
        elif prefix or name in TOP_LEVEL_FIELDS:
            names.append(f"{prefix}{name}=")
    return names


def parameters(incomplete: str) -> list[str]:
    """`Name=` of every pipeline parameter."""
    return [] if "=" in incomplete else _beginning(incomplete, [f"{name}=" for name in parameter_names()])


def steps(incomplete: str) -> list[str]:
    """Names of the DAG's steps."""
    return _beginning(incomplete, step_names())


def parameter_names() -> list[str]:
    """The first argument of each Parameter class that pipeline/parameters.py makes one of."""
    return _named_first("parameters.py", lambda function: function.startswith("Parameter") and function != "Parameter")


def step_names() -> list[str]:
    """The first argument of each call that makes a step in pipeline/definition.py."""
    return _named_first("definition.py", lambda function: function.lower().endswith("step"))


def _named_first(module: str, wanted: Any) -> list[str]:
    tree = ast.parse((resources.files("pipeline") / module).read_text(encoding="utf-8"))
    names = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        first = call.args[0]
        if wanted(function) and isinstance(first, ast.Constant) and isinstance(first.value, str):
            names.append(first.value)
    return list(dict.fromkeys(names))


def groups(ctx: Any, incomplete: str) -> list[str]:
    """Groups of the registry that the command line names."""
    return _beginning(incomplete, sorted({path.parent.name for path in _version_folders(ctx)}))


def versions(ctx: Any, incomplete: str) -> list[str]:
    """Numbers of the registered versions, those of --group alone where it is given."""
    group = ctx.params.get("group")
    found = {path.name for path in _version_folders(ctx) if group in (None, path.parent.name)}
    return _beginning(incomplete, sorted(found, key=int))


def named_versions(ctx: Any, incomplete: str) -> list[str]:
    """Numbers of the registered versions, with their group where there are several."""
    found = sorted(_version_folders(ctx), key=lambda path: (path.parent.name, int(path.name)))
    several = len({path.parent.name for path in found}) > 1
    return _beginning(incomplete, [f"{path.parent.name}/{path.name}" if several else path.name for path in found])


def _version_folders(ctx: Any) -> list[Path]:
    given = ctx.params.get("registry") or os.environ.get("LANGADAPT_REGISTRY") or DEFAULT_REGISTRY
    entries = Path(given).expanduser().glob("*/*")
    return [path for path in entries if path.name.isascii() and path.name.isdecimal()]


def _beginning(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
