"""What `langadapt push` sends of a source: looked at as before a local run, and only the files that steps read.

A corpus or conversations: the text files. A base model: configuration, tokenizer and safetensors; nothing pickled, and
no Python file unless data.trust_remote_code is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pipeline.config import PipelineConfig
from pipeline.local.check_inputs import check_inputs, readable_files, trusts_remote_code
from pipeline.local.executor import JOB_ENVIRONMENT
from pipeline.local.run import INPUTS, package_path
from steps.contract import StepError, all_files
from steps.contract.model_folder import check_folder_code, weight_files

# By the word of the command line: how the input is called in the configuration and in the bucket.
KINDS = {"corpus": "corpus", "conversations": "conversations", "base-model": "base_model"}
# What a model folder has beside its weights: settings, tokenizer, chat template, and the terms that it comes under.
MODEL_SUFFIXES = (".json", ".jinja", ".txt", ".model", ".md")
LICENCE_NAMES = ("LICENSE", "LICENCE", "NOTICE", "USE_POLICY")


def parameter_of(kind: str) -> str:
    """The pipeline parameter that carries the URI of an input, such as CorpusUri for corpus."""
    return INPUTS[KINDS[kind]][0]


def files_of(settings: PipelineConfig, kind: str, path: Path) -> dict[str, Path]:
    """The files to send by their names below the prefix.

    kind: corpus, conversations or base-model.
    Raises StepError or ConfigError for what a step would refuse, as `langadapt run` does.
    """
    if not path.exists():
        raise StepError(kind, f"{path} does not exist", remedy="Name an existing file or folder.")
    environment = JOB_ENVIRONMENT | package_path()
    if kind == "base-model":
        check_inputs(settings, {"base_model": path}, environment)
        return {name: path / name for name in model_files(path, trust_remote_code=trusts_remote_code(settings))}
    folder = path if path.is_dir() else path.parent
    files = {name: folder / name for name in readable_files(settings, KINDS[kind], path, environment)}
    for name in files:
        if not name.isprintable():
            raise StepError(kind, f"the name {name!r}", limit="names that can be printed", remedy="Rename the file.")
    if not any(file.stat().st_size for file in files.values()):
        raise StepError(kind, f"{path} holds nothing", limit="at least one byte", remedy="Name another file or folder.")
    return files


def model_files(folder: Path, *, trust_remote_code: bool) -> list[str]:
    """The names of a checked model folder's files that are sent, sorted."""
    weights = {file.relative_to(folder).as_posix() for file in weight_files(folder)}
    code = set(check_folder_code(folder, trust_remote_code=trust_remote_code))
    return sorted({*weights, *code, *described_files(all_files(folder))})


def described_files(names: Iterable[str]) -> list[str]:
    """Those of a model's files that are neither weights nor code, at its top: a step looks nowhere else."""
    top = (name for name in names if "/" not in name and not name.startswith("."))
    return [name for name in top if name.endswith(MODEL_SUFFIXES) or name.split(".")[0] in LICENCE_NAMES]
