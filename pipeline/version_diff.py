"""`langadapt models diff`: what differs between two model versions: figures, settings, provenance, files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from pipeline.model_versions import ModelVersion, damage_error
from steps.contract import all_files, file_sha256

SHOWN_CHARACTERS = 34
DIGEST_CHARACTERS = 12
_DIGEST = re.compile("[0-9a-f]{64}")
Pair = tuple[Any, Any]
# Of the metadata, what tells where a model comes from; the rest are figures, which `metrics` has in full.
PROVENANCE_ENDINGS = ("_digest", "_sha256")
PROVENANCE = ("image", "execution_id")


def version_diff(first: ModelVersion, second: ModelVersion) -> dict[str, dict[str, Pair]]:
    """For each section the members that differ, with both values; None where a version has none.

    Sections: figures, settings, provenance, libraries, files.
    """
    both = (first, second)
    tables = {
        "figures": [_figures(version) for version in both],
        "settings": [_settings(version) for version in both],
        "provenance": [_provenance(version) for version in both],
        "libraries": [_libraries(version) for version in both],
        "files": [_files(version) for version in both],
    }
    return {section: _different(*pair) for section, pair in tables.items()}


def diff_lines(first: ModelVersion, second: ModelVersion) -> list[str]:
    """The same for a person: a heading a section, a line a member, the change beside numbers."""
    lines = [" | ".join(f"{version.group} {version.version} ({version.status})" for version in (first, second))]
    same = []
    for section, members in version_diff(first, second).items():
        if not members:
            same.append(section)
            continue
        width = max(map(len, members))
        shown = _figure_change if section == "figures" else _change
        lines += [section, *(f"  {name:<{width}}  {shown(*pair)}" for name, pair in members.items())]
    return [*lines, *([f"the same: {', '.join(same)}"] if same else [])]


def _different(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    names = [*first, *(name for name in second if name not in first)]
    pairs = {name: (first.get(name), second.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _figure_change(before: float | None, after: float | None) -> str:
    first, second = ("(none)" if value is None else f"{value:.4f}" for value in (before, after))
    change = "" if before is None or after is None else f"  ({after - before:+.4f})"
    return f"{first} -> {second}{change}"


def _change(before: Any, after: Any) -> str:
    return f"{_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    """The beginning of a digest, and of what is long."""
    text = "(none)" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _DIGEST.fullmatch(text):
        return text[:DIGEST_CHARACTERS]
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _figures(version: ModelVersion) -> dict[str, Any]:
    """Every number of the registered statistics, and the tokenizer's of the metadata. StepError for no number."""
    figures = {
        name.rpartition(".value")[0] or name: float(value)
        for name, value in _leaves(version.metrics)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    figures = {name.removeprefix("language_model_metrics."): value for name, value in figures.items()}
    for name, text in version.metadata.items():
        if name.startswith("tokens_per_word."):
            try:
                figures[name] = float(text)
            except ValueError as error:
                raise damage_error(f"{name} of version {version.version} is {text!r}, no number") from error
    return figures


def _settings(version: ModelVersion) -> dict[str, Any]:
    """Fields of the configuration, and the parameters of the run that may stand above them."""
    settings: dict[str, Any] = {}
    for content in version.evidence_named("config.yaml"):
        settings |= dict(_leaves(yaml.safe_load(content)))
    for content in version.evidence_named("execution.json"):
        settings |= {f"parameter {name}": value for name, value in json.loads(content)["parameters"].items()}
    return settings


def _provenance(version: ModelVersion) -> dict[str, Any]:
    told = {"model_digest": version.model_digest}
    return told | {
        name: value
        for name, value in version.metadata.items()
        if name.endswith(PROVENANCE_ENDINGS) or name in PROVENANCE or name.startswith("code.")
    }


def _libraries(version: ModelVersion) -> dict[str, Any]:
    libraries: dict[str, Any] = {}
    for content in version.evidence_named("environment.json"):
        environment = json.loads(content)
        libraries |= {"python": environment["python"], "platform": environment["platform"], **environment["versions"]}
    return libraries


def _files(version: ModelVersion) -> dict[str, Any]:
    """sha256 of every file of the model."""
    return {name: file_sha256(version.model_folder / name) for name in all_files(version.model_folder)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, by its path; a list without objects is one value."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(item, list | Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value
