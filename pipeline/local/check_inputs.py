"""The user's data looked at before a run: what a late step would refuse is refused now, in seconds.

The base model is judged by its files. Conversations and accuracy items are read by a process of their own, as the code
that reads them is the steps'. The corpus needs no check here: the first step reads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.config import CARRIED_TO_STEPS, PipelineConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, ConfigError, StepError
from steps.contract.model_folder import (
    StoredTensor,
    check_base_model,
    check_byte_level_bpe,
    context_limit,
    read_fast_tokenizer,
    read_tensors,
)


def check_inputs(config: PipelineConfig, paths: Mapping[str, Path], environment: Mapping[str, str]) -> None:
    """Raises StepError or ConfigError for a base model, conversations or accuracy items that a later step would refuse.

    paths: where base_model, conversations and accuracy lie, those that are on this machine. environment: of a process
    that finds the steps.
    """
    if (base_model := paths.get("base_model")) is not None:
        try:
            check_base_model(base_model, trust_remote_code=trusts_remote_code(config))
            if {"extended", "replaced"} & {*config.train_tokenizer.kinds}:
                check_byte_level_bpe(read_fast_tokenizer(base_model))
        except StepError as error:
            value = f"{error.subject}: {error.value}"
            raise StepError("data.base_model", value, limit=error.limit, remedy=error.remedy) from error
        _check_lengths(config, context_limit(base_model))
        check_target_modules(config.fine_tune.target_modules, read_tensors(base_model))
    if given := {name: paths[name] for name in ("conversations", "accuracy") if name in paths}:
        _check_data(given, config, environment)


def readable_files(config: PipelineConfig, name: str, path: Path, environment: Mapping[str, str]) -> list[str]:
    """The files of a corpus, of conversations or of accuracy items that the steps read, by their names below the path.

    name: corpus, conversations or accuracy. Raises StepError for data that a step would refuse.
    """
    return json.loads(_check_data({name: path}, config, environment, "--files"))[name]


def trusts_remote_code(config: PipelineConfig) -> bool:
    """True where every step that loads a model may run its code."""
    return all(getattr(config, step).trust_remote_code for step in CARRIED_TO_STEPS["trust_remote_code"])


def _check_lengths(config: PipelineConfig, limit: int | None) -> None:
    """Blocks and conversations must fit into the positions that the base model has."""
    lengths = {
        "tokenize_corpus.block_tokens": config.tokenize_corpus.block_tokens,
        "fine_tune.max_tokens": config.fine_tune.max_tokens,
    }
    for name, length in lengths.items():
        if limit is not None and length > limit:
            limit_text = f"{limit}, the base model's max_position_embeddings"
            raise ConfigError(name, length, limit=limit_text, remedy="Lower it.")


def check_target_modules(targets: Sequence[str], tensors: Mapping[str, StoredTensor]) -> None:
    """Raises ConfigError for a layer to be adapted that no matrix of the base model is named after.

    FineTune, which builds the model, is stricter. It alone can tell of a base model without numbered blocks, or with
    experts, which are stored apart and are one layer in the model.
    """
    parts = [name.split(".") for name, tensor in tensors.items() if len(tensor.shape) == 2]
    # The layers of a block lie below its number; what lies beside the blocks is embedding or head.
    layers = {path[-2] for path in parts if path[-1] == "weight" and any(part.isdigit() for part in path[:-2])}
    if not layers or any(".experts." in name for name in tensors):
        return
    for target in targets:
        if target not in layers:
            limit = f"layers of the base model's blocks: {', '.join(sorted(layers))}"
            raise ConfigError("fine_tune.target_modules", target, limit=limit, remedy="Name layers of this model.")


def _check_data(
    paths: Mapping[str, Path], config: PipelineConfig, environment: Mapping[str, str], *options: str
) -> str:
    """What the process that reads the data prints. Raises StepError for data that a step would refuse."""
    # -P: a package named steps in the current folder is none of ours.
    command = [sys.executable, "-P", "-m", "steps.check_data", *options]
    command += [f"--max_dropped_share={config.fine_tune.max_dropped_share}"]
    command += [f"--text_field={config.prepare_corpus.text_field}"]
    command += [f"--{name}={path.resolve()}" for name, path in paths.items()]
    checked = subprocess.run(command, capture_output=True, text=True, env=dict(environment))
    # Python ends with 1 as well where it meets an error that nobody caught: then nothing is on standard output.
    if checked.returncode == EXIT_USER_ERROR and checked.stdout:
        error = json.loads(checked.stdout)
        subject = str(error["subject"])
        value = error["value"] if subject == error["input"] else f"{subject}: {error['value']}"
        raise StepError(f"data.{error['input']}", value, limit=error["limit"], remedy=error["remedy"])
    if checked.returncode != EXIT_DONE:
        raise RuntimeError(f"steps.check_data ended with {checked.returncode}: {checked.stderr}")
    return checked.stdout
