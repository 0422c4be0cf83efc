"""Whose checkpoints lie in a folder: the key of a training, and what another one beside it was set to.

Sets lie in a folder named by the digest of all that decides what is learned, beside settings.json, which says it in
words. Sets of the same inputs and other settings are refused, with the setting's name: a slip in a long command must
not cost the hours that it meant to go on from. Sets of other inputs are left alone: where data or model changed, a
fresh start is what is meant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from steps.contract import ConfigError, StepConfig, table_digest, warn, write_json

SETTINGS_NAME = "settings.json"
MARKER_NAME = "complete.json"


def learned_settings(config: StepConfig, ignored_fields: Iterable[str]) -> dict[str, Any]:
    """The settings that decide what is learned."""
    return config.model_dump(mode="json", exclude=set(ignored_fields))


def checkpoint_key(config: StepConfig, ignored_fields: Iterable[str], input_digests: Mapping[str, str]) -> str:
    """Digest of what is learned: settings but the ignored ones, and the content of the inputs."""
    settings = json.dumps(learned_settings(config, ignored_fields), sort_keys=True)
    config_digest = hashlib.sha256(settings.encode()).hexdigest()
    return table_digest({"config": config_digest, **{f"input {name}": value for name, value in input_digests.items()}})


def claim_folder(folder: Path | None, key: str, step: str, settings: Mapping[str, Any], *, writes: bool) -> None:
    """Refuses a folder with sets of other settings and none of these; notes these in settings.json.

    step: for the name of a setting in the message. writes: in one process of each machine. Raises ConfigError.
    """
    if folder is None:
        return
    others = [path for path in folder.glob(f"*/{SETTINGS_NAME}") if path.parent.name != key and _newest_set(path)]
    if others and not any((folder / key).glob(f"step-*/{MARKER_NAME}")):
        newest = max(others, key=lambda path: (_newest_set(path), path.parent.name))
        _compare(newest, step, settings)
    if writes:
        write_json(folder / key / SETTINGS_NAME, dict(settings))


def _newest_set(settings_path: Path) -> float:
    """When the newest set beside a settings.json was finished, in seconds; 0 without one."""
    markers = settings_path.parent.glob(f"step-*/{MARKER_NAME}")
    return max((marker.stat().st_mtime for marker in markers), default=0.0)


def _compare(theirs_path: Path, step: str, settings: Mapping[str, Any]) -> None:
    theirs = json.loads(theirs_path.read_text(encoding="utf-8"))
    differing = sorted(name for name in {*theirs, *settings} if theirs.get(name) != settings.get(name))
    if not differing:
        text = (
            f"{theirs_path.parent} was trained with the same settings and bears another name than these inputs give: "
            "the inputs are others, or it was renamed. Not used, starting afresh"
        )
        warn("checkpoints-of-other-inputs", text)
        return
    first, others = differing[0], f" (and {', '.join(differing[1:])})" if len(differing) > 1 else ""
    raise ConfigError(
        f"{step}.{first}",
        settings.get(first),
        limit=f"{theirs.get(first)}, that of the checkpoints in {theirs_path.parent}{others}",
        remedy="Set it as it was to go on from them, or name another --checkpoints folder to start afresh.",
    )
