"""`langadapt models export-bedrock`: the folder that Amazon Bedrock's Custom Model Import takes, made of a version.

In it: the weights as they were registered, byte for byte, with their index; config.json in the form of the release of
transformers that Bedrock runs; tokenizer.json, tokenizer_config.json with the chat template, generation_config.json,
and what else of a tokenizer there is. Nothing else: no adapter, no seal, no reports.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.bedrock_rules import Importable, check_importable
from pipeline.model_versions import ModelVersion, copy_model, damage_error, model_damage
from steps.contract import ConfigError, StepError, file_entry, file_sha256, size_text, sync_folder, write_json
from steps.contract.files import make_folder, write_atomically
from steps.contract.model_folder import INDEX_NAME, read_model_settings, read_tokenizer_settings
from steps.contract.release_4 import in_form_of_release_4, tokenizer_for_release_4

CONFIG, TOKENIZER_CONFIG, TEMPLATE = "config.json", "tokenizer_config.json", "chat_template.jinja"
# Copied where they are there; the weights' files beside them.
COPIED = (INDEX_NAME, "generation_config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer.model")
# What marks the trained tokens of a conversation, for training alone: not every reader of templates knows the tag.
GENERATION_TAG = re.compile(r"\{%(-?)\s*((?:end)?generation)\s*(-?)%\}")


@dataclass(frozen=True)
class Exported:
    """folder: what was written; files: size and sha256 by name; model: what the rules found."""

    folder: Path
    files: dict[str, dict[str, Any]]
    model: Importable

    @property
    def bytes(self) -> int:
        return sum(entry["bytes"] for entry in self.files.values())


def export_for_bedrock(version: ModelVersion, output: Path, *, pending: bool = False) -> Exported:
    """Writes the folder, whole or not at all.

    pending: also for a version that waits for its approval. Raises ConfigError for another version than an approved
    one and for an output that exists or lies in the registry, StepError for a damaged version, for a model that the
    import would refuse and for a place that cannot be written to.
    """
    check_status(version, pending=pending)
    check_output(output, version)
    model = check_importable(version.model_folder)
    if damage := model_damage(version):
        raise damage_error(damage)
    aside = output.absolute().parent / f".{output.name}.{uuid.uuid4().hex}"
    try:
        make_folder(aside, named=output)
        write_folder(version.model_folder, aside, model)
        files = {path.name: file_entry(path).model_dump() for path in sorted(aside.iterdir())}
        sync_folder(aside)
        os.rename(aside, output)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    sync_folder(output.absolute().parent)
    return Exported(output, files, model)


def check_status(version: ModelVersion, *, pending: bool) -> None:
    """Raises ConfigError unless the version is approved, or waits for its approval and `pending` is given."""
    if version.status == "Approved" or (pending and version.status == "PendingManualApproval"):
        return
    remedy = f"Approve it first: langadapt models approve {version.version}"
    remedy += "." if version.status == "Rejected" else "; or give --pending to try it before."
    raise ConfigError("version", f"{version.version} is {version.status}", limit="Approved", remedy=remedy)


def check_output(output: Path, version: ModelVersion) -> None:
    """Raises ConfigError for a folder that exists, and for one in the registry, where it would be part of a version."""
    if output.exists() or output.is_symlink():
        raise ConfigError("--output", f"{output} exists", limit="a new folder", remedy="Name another one.")
    registry = version.model_folder.resolve().parents[2]
    if output.resolve().is_relative_to(registry):
        limit = f"a folder outside the registry {registry}"
        raise ConfigError("--output", output, limit=limit, remedy="Name another one.")


def write_folder(source: Path, folder: Path, model: Importable) -> None:
    """Fills a new folder with what Bedrock reads, everything forced to the disk."""
    names = [*model.weight_files, *(name for name in COPIED if (source / name).is_file())]
    copy_model(source, folder, names)
    for name in names:
        if file_sha256(folder / name) != file_sha256(source / name):
            raise StepError(str(source / name), "changed while it was copied", remedy="Give the same command again.")
    write_json(folder / CONFIG, in_form_of_release_4(read_model_settings(source)))
    tokenizer = tokenizer_for_release_4(read_tokenizer_settings(source))
    if template := chat_template(source, tokenizer):
        # Releases of transformers differ in which of the two places they look into.
        write_atomically(folder / TEMPLATE, template)
        tokenizer["chat_template"] = template
    write_json(folder / TOKENIZER_CONFIG, tokenizer)


def chat_template(source: Path, tokenizer: Mapping[str, Any]) -> str | None:
    """The folder's chat template without the tags of training, which become comments; it renders to the same text."""
    path = source / TEMPLATE
    found = path.read_text("utf-8") if path.is_file() else tokenizer.get("chat_template")
    return GENERATION_TAG.sub(r"{#\1 \2 \3#}", found) if isinstance(found, str) else None


def export_lines(version: ModelVersion, exported: Exported) -> list[str]:
    """What a person is told."""
    model = exported.model
    context = "" if model.context_tokens is None else f", context {model.context_tokens:,} tokens"
    folder = shlex.quote(str(exported.folder))
    return [
        f"{version.group} version {version.version}: {len(exported.files)} files, {size_text(exported.bytes)}, "
        f"in {exported.folder}",
        f"  {model.architecture}, {model.dtype}, {model.rows:,} tokens in the vocabulary{context}",
        f"  next: aws s3 cp --recursive {folder} s3://BUCKET/PREFIX/, then import it (docs/serving.md)",
    ]


def export_json(version: ModelVersion, exported: Exported) -> dict[str, Any]:
    """The same for a program."""
    model = exported.model
    return {
        "group": version.group,
        "version": version.version,
        "status": version.status,
        "model_digest": version.model_digest,
        "folder": str(exported.folder),
        "bytes": exported.bytes,
        "files": exported.files,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "vocabulary_rows": model.rows,
        "context_tokens": model.context_tokens,
        "warnings": [{"name": warned.name, "message": warned.message} for warned in model.warnings],
    }
