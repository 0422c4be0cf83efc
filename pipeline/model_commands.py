"""`langadapt models`: list, show, compare, approve, reject and export model versions; of the local registry, or with
--remote (pipeline/remote_model_commands.py) of SageMaker's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    Group,
    NamedVersion,
    Overrides,
    Preset,
    Registry,
    Version,
    expanded,
    named_folder,
    print_json,
)
from pipeline.remote_model_commands import Configuration, Remote, RemoteDryRun, remote_decide, remote_list, remote_show
from pipeline.version_rows import print_damaged, print_status, print_versions, version_row

if TYPE_CHECKING:
    from pipeline.registry import LocalRegistry, ModelVersion

models = typer.Typer(help="Model versions of the registry.", rich_markup_mode=None)


@models.command("list")
def models_list(
    registry: Registry = None,
    remote: Remote = False,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """List the registered model versions."""
    configuration = Configuration(preset, config, overrides)
    if remote:
        return remote_list(configuration, as_json)
    configuration.refuse()
    opened = open_registry(registry)
    versions = opened.list_versions()
    for damaged in opened.damaged():
        print(f"warning: damaged-version: {damaged.error()}", file=sys.stderr)
    where = f"{opened.folder}{'' if opened.folder.is_dir() else ' (no such folder)'}"
    nothing = f"no model version is registered in {where}; langadapt run registers one when its gate is open"
    print_versions(versions, as_json, nothing)
    return 0


@models.command("show")
def models_show(
    version: Version,
    group: Group = None,
    registry: Registry = None,
    check: Annotated[bool, typer.Option("--check", help="Read every file of the model and compare it.")] = False,
    remote: Remote = False,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> int:
    """Show one version: its evidence, where it comes from, its approval history. Exits with 1 for a damaged model."""
    from pipeline.model_versions import evidence_damage, model_damage
    from pipeline.version_report import report_lines
    from steps.contract import ConfigError

    configuration = Configuration(preset, config, overrides)
    if remote and check:
        limit = "a version of a local registry"
        raise ConfigError("--check", "with --remote", limit=limit, remedy="Leave one of them out.")
    if remote:
        return remote_show(configuration, version, group, as_json)
    configuration.refuse()
    entry = open_registry(registry).show(version, group)
    damage = evidence_damage(entry) or model_damage(entry, check_content=check)
    if as_json:
        evidence = {name: evidence_content(entry.evidence_folder / name) for name in entry.evidence}
        print_json({**entry.model_dump(mode="json"), "evidence": evidence, "damage": damage})
        return 0 if damage is None else 1
    if damage is not None:
        print_damaged(entry, damage)
        return 1
    for line in report_lines(entry):
        print(line)
    if check:
        print("  every file is as it was registered")
    return 0


@models.command("diff")
def models_diff(
    first: NamedVersion,
    second: NamedVersion,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Tell what differs between two versions: figures, settings, provenance, libraries, files."""
    from pipeline.model_versions import damage_error, evidence_damage, model_damage
    from pipeline.version_diff import diff_lines, version_diff

    opened = open_registry(registry)
    one, other = (named_version(opened, name) for name in (first, second))
    for version in (one, other):
        if damage := model_damage(version, check_content=False) or evidence_damage(version):
            raise damage_error(damage)
    if as_json:
        print_json({"first": version_row(one), "second": version_row(other), **version_diff(one, other)})
        return 0
    for line in diff_lines(one, other):
        print(line)
    return 0


@models.command("approve")
def models_approve(
    version: Version,
    comment: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    group: Group = None,
    registry: Registry = None,
    remote: Remote = False,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: RemoteDryRun = False,
    as_json: AsJson = False,
) -> int:
    """Approve a version: it becomes the champion that later candidates are compared with."""
    configuration = Configuration(preset, config, overrides, dry_run)
    if remote:
        return remote_decide(configuration, "approve", version, comment, group, as_json)
    configuration.refuse()
    return decide("approve", version, comment, group, registry, as_json)


@models.command("reject")
def models_reject(
    version: Version,
    comment: Annotated[str, typer.Option(help="Why, for the history.")],
    group: Group = None,
    registry: Registry = None,
    remote: Remote = False,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: RemoteDryRun = False,
    as_json: AsJson = False,
) -> int:
    """Reject a version, with the reason."""
    configuration = Configuration(preset, config, overrides, dry_run)
    if remote:
        return remote_decide(configuration, "reject", version, comment, group, as_json)
    configuration.refuse()
    return decide("reject", version, comment, group, registry, as_json)


@models.command("export-bedrock")
def models_export_bedrock(
    version: Version,
    output: Annotated[Path, typer.Option(help="New folder to write.", parser=named_folder, metavar="DIR")],
    group: Group = None,
    registry: Registry = None,
    pending: Annotated[bool, typer.Option("--pending", help="Also a version that waits for its approval.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write the folder that Amazon Bedrock imports as a custom model, its rules checked (docs/serving.md)."""
    from pipeline.bedrock_export import export_for_bedrock, export_json, export_lines

    entry = open_registry(registry).show(version, group)
    exported = export_for_bedrock(entry, expanded(output) or output, pending=pending)
    for warned in exported.model.warnings:
        print(f"warning: {warned.name}: {warned.message}", file=sys.stderr)
    if as_json:
        print_json(export_json(entry, exported))
        return 0
    for line in export_lines(entry, exported):
        print(line)
    return 0


def decide(
    decision: Literal["approve", "reject"],
    version: int,
    comment: str,
    group: str | None,
    folder: Path | None,
    as_json: bool,
) -> int:
    """Takes a decision on a version of the registry in a folder, and prints what has come of it."""
    registry = open_registry(folder)
    before = registry.show(version, group)
    change = registry.approve if decision == "approve" else registry.reject
    print_status(before, change(version, comment, group=group, by=user_name()), comment, as_json)
    return 0


def named_version(registry: LocalRegistry, name: str) -> ModelVersion:
    """The version of a number, or of a group and a number as `group/3`. Raises ConfigError for anything else."""
    from pipeline.model_versions import VERSION_NUMBER
    from steps.contract import ConfigError

    group, _, number = name.rpartition("/")
    if not VERSION_NUMBER.fullmatch(number):
        raise ConfigError("version", name, limit="a number, or GROUP/NUMBER", remedy="See `langadapt models list`.")
    return registry.show(int(number), group or None)


def evidence_content(path: Path) -> Any:
    """A kept file as JSON gives it; as text where it is none. None for one that is missing."""
    if not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def open_registry(folder: Path | None) -> LocalRegistry:
    """The local registry in a folder, runs/registry by default. Raises ConfigError for a folder that is none."""
    from pipeline.local.run import DEFAULT_REGISTRY
    from pipeline.registry import LocalRegistry

    opened = LocalRegistry(expanded(folder) or DEFAULT_REGISTRY, lambda line: print(line, file=sys.stderr, flush=True))
    check_registry(opened.folder)
    return opened


def check_registry(folder: Path) -> None:
    """Raises ConfigError for a file, and for a folder that holds something, but no group of model versions.

    A mistyped path must not look like a registry without versions.
    """
    from steps.contract import ConfigError

    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError("registry", f"{folder} is a file", remedy="Name a registry's folder.")
    entries = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if entries and not any(is_group(path) for path in entries):
        below = [path for path in (folder.parent, *entries) if path.is_dir() and any(map(is_group, path.iterdir()))]
        remedy = f"Did you mean {below[0]}?" if below else "Name a registry's folder, or a new one."
        raise ConfigError("registry", f"{folder} holds no model versions but other files", remedy=remedy)


def is_group(folder: Path) -> bool:
    """Whether a folder holds model versions, be it unfinished ones alone."""
    from pipeline.model_versions import VERSION_NUMBER

    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    if any(map(VERSION_NUMBER.fullmatch, names)):
        return True
    return bool(names) and all(name.startswith(".") for name in names)


def user_name() -> str:
    """The login name, or the number of a user who has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
