"""`langadapt models`: list, show, approve and reject the model versions of the local registry."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import AsJson, Group, Registry, Version, expanded, print_json

if TYPE_CHECKING:
    from pipeline.registry import LocalRegistry, ModelVersion

# The end of the year 9999.
LATEST_SECONDS = 253_402_300_800

models = typer.Typer(help="Model versions of the registry.", rich_markup_mode=None)


@models.command("list")
def models_list(registry: Registry = None, as_json: AsJson = False) -> int:
    """List the registered model versions."""
    opened = open_registry(registry)
    versions = opened.list_versions()
    for damaged in opened.damaged():
        print(f"warning: damaged-version: {damaged.error()}", file=sys.stderr)
    if as_json:
        print_json([version_row(version) for version in versions])
        return 0
    if not versions:
        where = f"{opened.folder}{'' if opened.folder.is_dir() else ' (no such folder)'}"
        print(f"no model version is registered in {where}; langadapt run registers one when its gate is open")
    for version in versions:
        row = version_row(version)
        print(f"{row['group']}  version {row['version']}  {row['status']:<22}  {row['created_at']}")
    return 0


@models.command("show")
def models_show(
    version: Version,
    group: Group = None,
    registry: Registry = None,
    check: Annotated[bool, typer.Option("--check", help="Read every file of the model and compare it.")] = False,
    as_json: AsJson = False,
) -> int:
    """Show one version: its evidence, where it comes from, its approval history. Exits with 1 for a damaged model."""
    from pipeline.model_versions import model_damage

    entry = open_registry(registry).show(version, group)
    damage = model_damage(entry, check_content=check)
    if as_json:
        print_json({**entry.model_dump(mode="json"), "damage": damage})
        return 0 if damage is None else 1
    print(f"{entry.group} version {entry.version}: {entry.status}")
    print(f"  model    {entry.model_folder} ({entry.model_bytes:,} bytes, sha256 {entry.model_digest[:16]})")
    for name, value in entry.metadata.items():
        print(f"  {name:<32} {value}")
    for approval in entry.approvals:
        by = f" by {approval.by}" if approval.by else ""
        comment = f": {approval.comment}" if approval.comment else ""
        print(f"  {seconds_as_date(approval.at)}  {approval.status}{by}{comment}")
    if damage is not None:
        print(f"error: damaged model: {damage}. Restore it from a copy, or reject the version.", file=sys.stderr)
        return 1
    if check:
        print("  every file is as it was registered")
    return 0


@models.command("approve")
def models_approve(
    version: Version,
    comment: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    group: Group = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Approve a version: it becomes the champion that later candidates are compared with."""
    opened = open_registry(registry)
    before = opened.show(version, group)
    print_status(before, opened.approve(version, comment, group=group, by=user_name()), comment, as_json)
    return 0


@models.command("reject")
def models_reject(
    version: Version,
    comment: Annotated[str, typer.Option(help="Why, for the history.")],
    group: Group = None,
    registry: Registry = None,
    as_json: AsJson = False,
) -> int:
    """Reject a version, with the reason."""
    opened = open_registry(registry)
    before = opened.show(version, group)
    print_status(before, opened.reject(version, comment, group=group, by=user_name()), comment, as_json)
    return 0


def open_registry(folder: Path | None) -> LocalRegistry:
    """The local registry in a folder, runs/registry by default. Raises ConfigError for a folder that is none."""
    from pipeline.local.run import DEFAULT_REGISTRY
    from pipeline.registry import LocalRegistry

    opened = LocalRegistry(expanded(folder) or DEFAULT_REGISTRY)
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
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return bool(names) and all(name.isdigit() or name.startswith(".") for name in names)


def user_name() -> str:
    """The login name, or the number of a user who has none."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def version_row(entry: ModelVersion) -> dict[str, Any]:
    """What a list shows of a version."""
    return {
        "group": entry.group,
        "version": entry.version,
        "status": entry.status,
        "created_at": seconds_as_date(entry.created_at),
        "model_digest": entry.model_digest,
        "model_folder": str(entry.model_folder),
        "metadata": entry.metadata,
    }


def seconds_as_date(seconds: float) -> str:
    """ISO 8601 in UTC, to the second; the number itself where the clock that gave it was beyond every calendar."""
    import datetime

    if not 0 <= seconds < LATEST_SECONDS:
        return f"{seconds:.0f} s since 1970"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_status(before: ModelVersion, after: ModelVersion, comment: str, as_json: bool) -> None:
    """The version's status; says so where it was the same before, as its history then does not take the comment."""
    changed = len(after.approvals) > len(before.approvals)
    if as_json:
        print_json({**version_row(after), "changed": changed})
        return
    print(f"{after.group} version {after.version}: {after.status}{'' if changed else ', as before'}")
    if comment and not changed:
        print(f"note: the comment was not kept: the version was {before.status} before", file=sys.stderr)
