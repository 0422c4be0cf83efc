"""`langadapt models ... --remote`: the same answers from the SageMaker Model Registry."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.command_options import expanded, print_json
from pipeline.version_rows import print_damaged, print_status, print_versions

if TYPE_CHECKING:
    from pipeline.remote.model_packages import ModelPackages

Remote = Annotated[
    bool, typer.Option("--remote", help="In the SageMaker Model Registry, as the section aws names region and group.")
]


RemoteDryRun = Annotated[bool, typer.Option("--dry-run", help="With --remote: send nothing, print the request.")]


@dataclass(frozen=True)
class Configuration:
    """The options --preset, --config, --set and --dry-run, as they were given."""

    preset: str | None
    config: Path | None
    overrides: list[str] | None
    dry_run: bool = False

    def refuse(self) -> None:
        """Raises ConfigError where one is given: the local registry needs none."""
        from steps.contract import ConfigError

        given = {"--preset": self.preset, "--config": self.config, "--set": self.overrides}
        for name, value in {**given, "--dry-run": self.dry_run or None}.items():
            if value is not None and value != []:
                shown = value if isinstance(value, str) else str(value)
                raise ConfigError(name, shown, limit="with --remote alone", remedy="Add --remote, or leave it out.")


def remote_list(configuration: Configuration, as_json: bool) -> int:
    """Lists the versions of the configuration's group."""
    packages = opened(configuration, None)
    versions = packages.list_versions()
    if as_json:
        # A list of the service has no metadata.
        versions = [packages.described(entry) for entry in versions]
    print_versions(versions, as_json, f"no model version is registered in group {packages.group}")
    return 0


def remote_show(configuration: Configuration, version: int, group: str | None, as_json: bool) -> int:
    """Shows one version with its evidence. Returns 1 where its model is not there."""
    from pipeline.remote.model_packages import version_json
    from pipeline.version_report import report_lines

    entry = opened(configuration, group).show(version)
    if as_json:
        print_json(version_json(entry))
    elif entry.damage is not None:
        print_damaged(entry, entry.damage)
    else:
        print("\n".join(report_lines(entry)))
    return 0 if entry.damage is None else 1


def remote_decide(
    configuration: Configuration,
    decision: Literal["approve", "reject"],
    version: int,
    comment: str,
    group: str | None,
    as_json: bool,
) -> int:
    """Takes a decision on a version, and prints what has come of it; of a dry run the request."""
    from pipeline.remote.writes import Writes
    from pipeline.remote_commands import answer

    packages = opened(configuration, group)
    writes = Writes(packages.account, dry_run=configuration.dry_run)
    before, after = getattr(packages, decision)(version, comment, writes)
    if writes.dry_run:
        return answer(writes, {}, [], as_json)
    print_status(before, after, comment, as_json)
    return 0


def opened(configuration: Configuration, group: str | None) -> ModelPackages:
    """The versions of a group, default: the configuration's."""
    from pipeline.config import load_config
    from pipeline.remote.account import Account
    from pipeline.remote.model_packages import ModelPackages

    settings = load_config(configuration.preset, expanded(configuration.config), configuration.overrides or ())
    return ModelPackages(Account(settings.aws.region), group or settings.aws.model_package_group, warn)


def warn(line: str) -> None:
    """Tells of what could not be looked at."""
    print(f"warning: not looked at: {line}", file=sys.stderr)
