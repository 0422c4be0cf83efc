"""An adapter folder from elsewhere: what can be merged, told from its settings and its file's header alone.

PEFT takes much that cannot be merged, or not into a model of this form, and says little: a target that the model lacks
is passed over, what is trained of a matrix that embedding and head share goes into one of them. Here the settings are
those of LoRA that merges into the base's own weights, and the tensors exactly those that PEFT makes for this model.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from steps.contract import StepError, describe_validation_error
from steps.contract.model_folder import PICKLED, tensors_of
from steps.modeling.loading import is_tied

SETTINGS_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"
# PEFT's rows of single tokens beside an embedding or a head.
TOKEN_ROWS = ".token_adapter.trainable_tokens_delta"
TRAINED_REMEDY = "Give an adapter that was trained on this model."
FETCH_REMEDY = "Fetch the adapter again."
SUPPORTED = "LoRA (also rsLoRA and DoRA) without biases of its own"
# Ways to begin that leave the base's weights as they are; the others train against a base that they changed.
PLAIN_BEGINNINGS = (True, False, None, "gaussian", "orthogonal")
# Settings that are checked below, that say where layers are and how they are scaled, or that change no merge.
UNDERSTOOD = frozenset(
    {
        "peft_type", "task_type", "r", "lora_alpha", "target_modules", "exclude_modules", "lora_dropout",
        "fan_in_fan_out", "bias", "use_rslora", "modules_to_save", "init_lora_weights", "layers_to_transform",
        "layers_pattern", "rank_pattern", "alpha_pattern", "use_dora", "ensure_weight_tying", "auto_mapping",
        "peft_version", "base_model_name_or_path", "revision", "inference_mode", "megatron_core", "qalora_group_size",
        "trainable_token_indices",
    }
)  # fmt: skip


class AdapterSettings(BaseModel):
    """What is asked of adapter_config.json."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    peft_type: Literal["LORA"]
    task_type: Literal["CAUSAL_LM"] | None = None
    r: int = Field(ge=1)
    lora_alpha: int | float
    bias: Literal["none"] = "none"
    target_modules: list[str] | str
    modules_to_save: list[str] | None = None
    use_rslora: bool = False
    use_dora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, int | float] = {}


def check_adapter(folder: Path, empty: PreTrainedModel) -> None:
    """An adapter folder that can be merged into the model of `empty_model`. Raises StepError for any other."""
    read_settings(folder)
    path = folder / WEIGHTS_NAME
    found = {name: tensor.shape for name, tensor in tensors_of(path).items()}
    needed, possible = adapter_shapes(folder, empty)
    if is_tied(empty):
        _refuse_shared(folder, {*needed, *found}, empty)
    by_settings = f"the {len(needed)} tensors of its settings"
    if unknown := sorted(found.keys() - possible.keys()):
        value = f"{unknown[0]}, which this model has no place for"
        raise StepError(str(path), value, limit=by_settings, remedy=TRAINED_REMEDY)
    if missing := sorted(needed.keys() - found.keys()):
        raise StepError(str(path), f"no {missing[0]}", limit=by_settings, remedy=FETCH_REMEDY)
    for name, shape in sorted(found.items()):
        if shape != possible[name]:
            value, limit = f"{name} of shape {list(shape)}", f"{list(possible[name])} for this model"
            raise StepError(str(path), value, limit=limit, remedy=TRAINED_REMEDY)
    for name, tensor in sorted(load_file(path).items()):
        if not bool(torch.isfinite(tensor).all()):
            raise StepError(str(path), f"{name} has NaN or infinity", limit="finite numbers", remedy=TRAINED_REMEDY)


def read_settings(folder: Path) -> AdapterSettings:
    """adapter_config.json. Raises StepError where a file is missing or a setting is none that can be merged."""
    path = folder / SETTINGS_NAME
    if not path.is_file():
        raise StepError(str(folder), f"no {SETTINGS_NAME}", remedy="Give a folder that PEFT has written.")
    if not (folder / WEIGHTS_NAME).is_file():
        pickled = sorted(file.name for pattern in PICKLED for file in folder.glob(pattern))
        value = f"{pickled[0]}, a pickle, which runs code when it is read" if pickled else f"no {WEIGHTS_NAME}"
        remedy = "Have its maker save it as safetensors." if pickled else FETCH_REMEDY
        raise StepError(str(folder), value, limit=WEIGHTS_NAME, remedy=remedy)
    try:
        given = json.loads(path.read_bytes())
    except ValueError as error:
        raise StepError(str(path), f"no JSON ({error})", remedy=FETCH_REMEDY) from error
    try:
        settings = AdapterSettings.model_validate(given)
    except ValidationError as error:
        where, value = describe_validation_error(error)
        raise StepError(f"{path}: {where}", value, limit=SUPPORTED, remedy="Give such an adapter.") from error
    _refuse_kinds(path, given)
    return settings


def _refuse_kinds(path: Path, given: Mapping[str, Any]) -> None:
    """Kinds of LoRA that do more than add to linear layers, those of later versions of PEFT included."""
    beginning = given.get("init_lora_weights", True)
    if not (isinstance(beginning, bool | str | None) and beginning in PLAIN_BEGINNINGS):
        remedy = "Have its maker convert it to plain LoRA (PEFT's path_initial_model_for_weight_conversion)."
        raise StepError(f"{path}: init_lora_weights", f"{beginning}, which changes the base", remedy=remedy)
    known = LoraConfig().to_dict()
    for name in sorted(given.keys() - UNDERSTOOD):
        is_off = given[name] in (None, False, known[name]) if name in known else not given[name]
        if not is_off:
            raise StepError(f"{path}: {name}", json.dumps(given[name]), limit=SUPPORTED, remedy="Give such an adapter.")


def adapter_shapes(
    folder: Path, empty: PreTrainedModel
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """(must be there, may be there): tensors by name that PEFT makes for this model and these settings, no number of
    them. What may be there beside the others are embeddings that PEFT saves along. Leaves `empty` with the adapter."""
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            # Of ties, which are looked at here; and of the renamed is_gradient_checkpointing.
            warnings.simplefilter("ignore")
            settings = LoraConfig.from_pretrained(str(folder), local_files_only=True)
            adapted = get_peft_model(empty, settings, low_cpu_mem_usage=True)
            states = [get_peft_model_state_dict(adapted, save_embedding_layers=saved) for saved in (False, True)]
    except (ValueError, TypeError, NotImplementedError, re.error) as error:
        raise StepError(str(folder / SETTINGS_NAME), f"refused ({error})", remedy=TRAINED_REMEDY) from error
    needed, all_of_them = ({name: tuple(tensor.shape) for name, tensor in state.items()} for state in states)
    return needed, all_of_them


def _refuse_shared(folder: Path, names: Iterable[str], adapted: PreTrainedModel) -> None:
    """An adapter on the one matrix of embedding and head would be merged into one of them (transformers#45127)."""
    shared = (adapted.get_input_embeddings(), adapted.get_output_embeddings())
    places = {f"base_model.model.{name}." for name, module in adapted.named_modules() if module in shared}
    for name in sorted(names):
        # Single rows are the exception: PEFT trains and merges those of both together.
        if name.startswith(tuple(places)) and not name.endswith(TOKEN_ROWS):
            raise StepError(
                str(folder), f"{name}: a change of the matrix that embedding and head share",
                limit="an adapter inside the blocks, where tie_word_embeddings is true",
                remedy="Train without target or saved modules among embedding and head.",
            )  # fmt: skip
