"""How `langadapt models` prints versions in a list, and what a decision on one has changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipeline.command_options import print_json

if TYPE_CHECKING:
    from pipeline.version_report import ReportedVersion


def version_row(entry: ReportedVersion) -> dict[str, Any]:
    """What a list shows of a version."""
    from pipeline.version_report import seconds_as_date

    return {
        "group": entry.group,
        "version": entry.version,
        "status": entry.status,
        "created_at": seconds_as_date(entry.created_at),
        "model_digest": entry.model_digest,
        "model_folder": str(entry.model_folder),
        "metadata": entry.metadata,
    }


def print_versions(versions: Sequence[ReportedVersion], as_json: bool, nothing: str) -> None:
    """A row a version; nothing: what is said where there is none."""
    rows = [version_row(version) for version in versions]
    if as_json:
        print_json(rows)
        return
    if not rows:
        print(nothing)
    for row in rows:
        print(f"{row['group']}  version {row['version']}  {row['status']:<22}  {row['created_at']}")


def print_damaged(entry: ReportedVersion, damage: str) -> None:
    """In the place of a version's evidence: what is wrong with its model."""
    print(f"{entry.group} version {entry.version}: {entry.status}")
    print(f"error: damaged model: {damage}. Restore it from a copy, or reject the version.", file=sys.stderr)


def print_status(before: ReportedVersion, after: ReportedVersion, comment: str, as_json: bool) -> None:
    """The version's status; says so where it was the same before, as its history then does not take the comment."""
    changed = after.status != before.status
    if as_json:
        print_json({**version_row(after), "changed": changed})
        return
    print(f"{after.group} version {after.version}: {after.status}{'' if changed else ', as before'}")
    if comment and not changed:
        print(f"note: the comment was not kept: the version was {before.status} before", file=sys.stderr)
