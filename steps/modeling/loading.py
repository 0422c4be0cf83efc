"""Loading and saving models and tokenizers: safetensors only, ties kept, a model's own code only where it is trusted.

`trust_remote_code` is a step's setting of that name; without it a folder with code of its own is a StepError.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import GENERATION_CONFIG_NAME
from transformers.utils.logging import disable_progress_bar
from transformers.utils.quantization_config import QuantizationConfigMixin

from steps.contract import ConfigError, StepError, write_json
from steps.contract.model_folder import (
    FETCH_REMEDY,
    MODEL_REMEDY,
    PLAIN_TOKENIZER_CLASSES,
    check_model_folder,
    check_model_settings,
    own_classes,
    read_model_settings,
    read_tokenizer_settings,
)
from steps.contract.release_4 import readable_by_release_4, tokenizer_for_release_4
from steps.contract.remote_code import LOADED_CLASSES
from steps.modeling.remote_code import naming_code_faults, own_class
from steps.text.bbpe import load_fast_tokenizer

# A step's log is read line by line, where a bar that redraws itself is noise.
disable_progress_bar()


def choose_device(setting: str) -> torch.device:
    """The device of a `device` setting; auto takes CUDA where present. Raises ConfigError."""
    if setting == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if setting == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "cuda", limit="a CUDA device", remedy="Set device to auto or cpu.")
    return torch.device(setting)


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The fast tokenizer of a folder. Raises StepError where there is none, or it has neither BOS nor EOS token."""
    if not (folder / "tokenizer.json").is_file():
        raise StepError(str(folder), "no tokenizer.json", remedy="Give a model folder with a fast tokenizer.")
    # Parsed first: the library's own error for a damaged file names no file.
    load_fast_tokenizer(folder)
    # AutoTokenizer goes by the model's family where that has a class of its own, and Qwen 2's would split text, add
    # tokens and normalise as Qwen does whatever tokenizer.json says. A plain class is what our tokenizers name.
    is_plain = read_tokenizer_settings(folder).get("tokenizer_class") in PLAIN_TOKENIZER_CLASSES[1:]
    loader: Any = PreTrainedTokenizerFast if is_plain else AutoTokenizer
    own = own_class(folder, "AutoTokenizer", trust_remote_code=trust_remote_code)
    with naming_code_faults(folder):
        tokenizer = (own or loader).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        value = f"a tokenizer of class {type(tokenizer).__name__}"
        raise StepError(str(folder), value, limit="a fast tokenizer", remedy="Give a model with a fast tokenizer.")
    if tokenizer.bos_token_id is None and tokenizer.eos_token_id is None:
        remedy = "Set bos_token or eos_token in tokenizer_config.json."
        raise StepError(str(folder), "the tokenizer has no BOS and no EOS token", remedy=remedy)
    return tokenizer


def auto_tokenizer_agrees(folder: Path, *, trust_remote_code: bool = False) -> bool:
    """True where AutoTokenizer, as others will load the folder, gives the tokenizer that `load_tokenizer` gives."""
    found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    own = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    return found.backend_tokenizer.to_str() == own.backend_tokenizer.to_str()


def load_config(folder: Path, *, trust_remote_code: bool = False, has_weights: bool = True) -> PretrainedConfig:
    """The model configuration of a folder. Raises StepError for one that transformers does not know or refuses.

    has_weights: False for a folder that need not have any.
    """
    check = check_model_folder if has_weights else check_model_settings
    check(folder, trust_remote_code=trust_remote_code)
    kind = read_model_settings(folder)["model_type"]
    own = own_class(folder, "AutoConfig", trust_remote_code=trust_remote_code)
    if kind not in CONFIG_MAPPING and own is None:
        value = f"model_type {kind}, unknown to transformers {transformers.__version__}"
        raise StepError(str(folder / "config.json"), value, remedy="Update transformers or give another model.")
    try:
        with naming_code_faults(folder):
            config = (own or AutoConfig).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise StepError(str(folder / "config.json"), f"refused ({error})", remedy="Mend config.json.") from error
    named = {kind: name for kind, name in own_classes(folder).items() if kind in LOADED_CLASSES["config.json"]}
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in named:
        raise StepError(str(folder), f"model_type {kind}", limit="a causal language model", remedy=MODEL_REMEDY)
    if named:
        # What a saved model names must lie beside it: transformers writes the files of these classes alone.
        config.auto_map = named
    return config


def stored_dtype(folder: Path, *, trust_remote_code: bool = False) -> torch.dtype:
    """The dtype that a model folder's configuration names; float32 where it names none."""
    dtype: Any = load_config(folder, trust_remote_code=trust_remote_code).dtype
    return dtype or torch.float32


def chosen_dtype(setting: str, folder: Path, *, trust_remote_code: bool = False) -> torch.dtype:
    """The dtype of a setting: float32, bfloat16, float16, or model: as the folder's configuration says. The folder need
    not have weights."""
    if setting != "model":
        return getattr(torch, setting)
    dtype: Any = load_config(folder, trust_remote_code=trust_remote_code, has_weights=False).dtype
    return dtype or torch.float32


def load_model(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | None = None,
    trust_remote_code: bool = False,
    quantization_config: QuantizationConfigMixin | None = None,
) -> PreTrainedModel:
    """A causal language model in evaluation mode, its ties as its configuration says.

    quantization_config: transformers' own, by which linear layers are quantised as they are read. Raises StepError,
    also where the weights are not those of the configuration: what is missing would be random.
    """
    config = load_config(folder, trust_remote_code=trust_remote_code)
    own = own_class(folder, "AutoModelForCausalLM", trust_remote_code=trust_remote_code)
    with naming_code_faults(folder):
        loading: Any = (own or AutoModelForCausalLM).from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **({} if quantization_config is None else {"quantization_config": quantization_config}),
        )
    model: PreTrainedModel = loading[0]
    loaded = loading[1]
    wrong = sorted({*loaded["missing_keys"], *(name for name, *_ in loaded["mismatched_keys"])})
    if wrong:
        value = f"{len(wrong)} weights missing or of another shape than config.json says, first {wrong[0]}"
        raise StepError(str(folder), value, limit="none", remedy=FETCH_REMEDY)
    check_tie(model)
    model.eval()
    return model if device is None else model.to(device)  # type: ignore[arg-type]


def empty_model(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """The model that a folder's config.json describes, with names and shapes and no numbers: on the device meta. The
    folder need not have weights."""
    config = load_config(folder, trust_remote_code=trust_remote_code, has_weights=False)
    own = own_class(folder, "AutoModelForCausalLM", trust_remote_code=trust_remote_code)
    with naming_code_faults(folder), torch.device("meta"):
        model: PreTrainedModel = own(config) if own else AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    check_tie(model)
    return model.eval()


def model_of_tensors(
    folder: Path, empty: PreTrainedModel, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype
) -> PreTrainedModel:
    """The model of `empty_model(folder)` with these values, one tensor for each parameter's name, on the CPU. The
    folder's settings for generation come along."""
    loader: Any = type(empty)
    with naming_code_faults(folder):
        model = loader.from_pretrained(None, config=empty.config, state_dict=dict(tensors), dtype=dtype).eval()
    if (folder / GENERATION_CONFIG_NAME).is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def is_tied(model: PreTrainedModel) -> bool:
    """True where the configuration shares one matrix between input embedding and output head."""
    return bool(model.config.get_text_config().tie_word_embeddings)


def check_tie(model: PreTrainedModel) -> None:
    """Asserts that embedding and head share storage exactly where the configuration says so."""
    head = model.get_output_embeddings()
    shared = head is not None and head.weight is model.get_input_embeddings().weight
    assert shared == is_tied(model), f"tie_word_embeddings is {is_tied(model)}, weights shared: {shared}"


def save_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, max_file_bytes: int | None = None
) -> None:
    """Writes safetensors, configuration, tokenizer and the model's own code into a folder that AutoModelForCausalLM
    loads. max_file_bytes: of tensors in one file, beyond which there are several and an index; a larger tensor has a
    file of its own."""
    check_tie(model)
    folder.mkdir(parents=True, exist_ok=True)
    if max_file_bytes is None:
        model.save_pretrained(folder)
    else:
        model.save_pretrained(folder, max_shard_size=max_file_bytes)
    tokenizer.save_pretrained(folder)
    # Servers read the folder, and not all with the release that wrote it.
    write_json(folder / "config.json", readable_by_release_4(read_model_settings(folder)))
    write_json(folder / "tokenizer_config.json", tokenizer_for_release_4(read_tokenizer_settings(folder)))


def save_model_as(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    dtype: torch.dtype,
    *,
    trust_remote_code: bool = False,
) -> None:
    """Casts the model, in place and on the CPU, and writes it. Raises StepError where a fresh load of the folder gives
    other values than the cast ones."""
    model.to(device="cpu", dtype=dtype)  # type: ignore[call-arg]
    save_model(model, tokenizer, folder)
    reloaded = dict(load_model(folder, dtype=dtype, trust_remote_code=trust_remote_code).named_parameters())
    for name, parameter in model.named_parameters():
        if not torch.equal(parameter, reloaded[name]):
            remedy = "Look at the disk, then run the step again."
            raise StepError(f"saved model: {name}", "other values than before it was saved", remedy=remedy)
