"""What Amazon Bedrock's Custom Model Import takes, as its user guide said in 2026 (read on 2026-11-30), in one table.

Rules whose breach ends an import are errors here; what Bedrock takes and serves otherwise than it was trained is a
warning. Told from files alone: config.json and the headers of the safetensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract import StepError, size_text
from steps.contract.model_folder import (
    StoredTensor,
    check_base_model,
    context_limit,
    input_matrix,
    own_classes,
    read_model_settings,
    read_tensors,
    read_tokenizer_settings,
    text_settings,
)
from steps.contract.release_4 import in_form_of_release_4, tokenizer_for_release_4

GB = 10**9
TEXT_BYTES, MULTIMODAL_BYTES = 200 * GB, 100 * GB
# By the name in config.json: the largest weights, which must stay below it.
ARCHITECTURES = {
    "GPTBigCodeForCausalLM": TEXT_BYTES,
    "GptOssForCausalLM": TEXT_BYTES,
    "LlamaForCausalLM": TEXT_BYTES,
    "MistralForCausalLM": TEXT_BYTES,
    "MixtralForCausalLM": TEXT_BYTES,
    "MllamaForConditionalGeneration": MULTIMODAL_BYTES,
    "Qwen2ForCausalLM": TEXT_BYTES,
    "Qwen2VLForConditionalGeneration": MULTIMODAL_BYTES,
    "Qwen2_5_VLForConditionalGeneration": MULTIMODAL_BYTES,
    "Qwen3ForCausalLM": TEXT_BYTES,
    "Qwen3MoeForCausalLM": TEXT_BYTES,
    "T5ForConditionalGeneration": TEXT_BYTES,
}
TOKENIZER_CLASSES = frozenset(
    {
        "CodeLlamaTokenizer", "CodeLlamaTokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizer",
        "GPTNeoXTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizer",
        "PreTrainedTokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast", "T5Tokenizer", "T5TokenizerFast",
    }
)  # fmt: skip
# "Less than 128K" is written of the context. Llama 3.1 to 3.3, which are supported by name, have 131,072 positions, so
# that is what 128K means, and it is allowed.
CONTEXT_TOKENS = 131_072
# The release of transformers that imported models are run with; config.json is written in its form.
TRANSFORMERS = "4.51.3"
# What Bedrock puts in the place of a llama3 rope_scaling, whatever the model has.
SERVED_ROPE = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8_192}
# The guide names no dtypes; these are what weights come in that nothing has quantised.
DTYPES = frozenset({"BF16", "F16", "F32"})
SEE_PAGE = "See docs/serving.md."


@dataclass(frozen=True)
class Warned:
    """What is imported all the same, and served otherwise than somebody may expect."""

    name: str
    message: str


@dataclass(frozen=True)
class Importable:
    """A model folder that keeps the rules."""

    architecture: str
    dtype: str
    rows: int
    context_tokens: int | None
    weight_bytes: int
    weight_files: tuple[str, ...]
    warnings: tuple[Warned, ...]


def check_importable(folder: Path) -> Importable:
    """Raises StepError for the first rule that a model folder breaks."""
    if (folder / "adapter_config.json").is_file():
        remedy = "Merge it first: python -m steps.merge_adapter (docs/merging.md)."
        raise StepError(str(folder), "an adapter", limit="a merged model", remedy=remedy)
    check_base_model(folder)
    if own_classes(folder):
        remedy = f"Bedrock runs transformers' own models alone. {SEE_PAGE}"
        raise StepError(str(folder), "a model with code of its own", limit="none", remedy=remedy)
    settings, tensors = read_model_settings(folder), read_tensors(folder)
    architecture = check_architecture(folder, settings)
    check_tokenizer_class(folder)
    files = tuple(sorted({tensor.file.name for tensor in tensors.values()}))
    size = sum((folder / name).stat().st_size for name in files)
    limit = ARCHITECTURES[architecture]
    if size >= limit:
        remedy = "Store the weights in bfloat16, or serve the model with SageMaker."
        raise StepError(str(folder), f"weights of {size_text(size)}", limit=f"below {size_text(limit)}", remedy=remedy)
    context = context_limit(folder)
    if context is not None and context > CONTEXT_TOKENS:
        remedy = "Lower max_position_embeddings, or serve the model with SageMaker."
        raise StepError(str(folder), f"a context of {context:,} tokens", limit=f"{CONTEXT_TOKENS:,}", remedy=remedy)
    matrix = input_matrix(tensors)
    return Importable(
        architecture=architecture,
        dtype=check_dtypes(folder, tensors),
        rows=matrix.shape[0] if matrix is not None else int(text_settings(folder)["vocab_size"]),
        context_tokens=context,
        weight_bytes=size,
        weight_files=files,
        warnings=tuple(find_warnings(folder, settings, tensors)),
    )


def check_architecture(folder: Path, settings: Mapping[str, Any]) -> str:
    """The one architecture of config.json."""
    named = [str(name) for name in settings.get("architectures") or []]
    if len(named) == 1 and named[0] in ARCHITECTURES:
        return named[0]
    value = f"architecture {', '.join(named) or 'unnamed'}"
    remedy = "Serve the model with SageMaker (docs/serving.md), or adapt a base model of one of these."
    raise StepError(str(folder / "config.json"), value, limit=", ".join(ARCHITECTURES), remedy=remedy)


def check_tokenizer_class(folder: Path) -> None:
    """A class that Bedrock knows; without one transformers goes by the model's family."""
    found = tokenizer_for_release_4(read_tokenizer_settings(folder)).get("tokenizer_class")
    if found is not None and found not in TOKENIZER_CLASSES:
        limit = ", ".join(sorted(TOKENIZER_CLASSES))
        remedy = "Save the tokenizer as PreTrainedTokenizerFast."
        raise StepError(str(folder / "tokenizer_config.json"), f"class {found}", limit=limit, remedy=remedy)


def check_dtypes(folder: Path, tensors: Mapping[str, StoredTensor]) -> str:
    """The weights' dtype, or those that there are."""
    found = {tensor.dtype for tensor in tensors.values()}
    if other := sorted(found - DTYPES):
        remedy = "Give the model in bfloat16, float16 or float32."
        raise StepError(str(folder), f"weights of type {', '.join(other)}", limit=", ".join(sorted(DTYPES)),
                        remedy=remedy)  # fmt: skip
    return ", ".join(sorted(found))


def find_warnings(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> list[Warned]:
    """What Bedrock takes, and what is different then."""
    warnings = []
    if other := rope_differences(settings):
        told = ", ".join(f"{name} {ours} (trained) to {theirs}" for name, (ours, theirs) in other.items())
        warnings.append(
            Warned(
                "rope-scaling-overridden",
                f"Bedrock sets the rotary scaling of every llama3 model itself and changes {told}: the model is served "
                f"with other positions than it was trained with and replies otherwise than was measured. {SEE_PAGE}",
            )
        )
    if "F32" in {tensor.dtype for tensor in tensors.values()}:
        warnings.append(Warned("float32-weights", "twice the size of bfloat16, which the model is likely served in"))
    if not generation_ends(folder):
        warnings.append(
            Warned("no-end-of-reply", "no generation_config.json with eos_token_id: replies may not end by themselves")
        )
    return warnings


def rope_differences(settings: Mapping[str, Any]) -> dict[str, tuple[object, object]]:
    """What of a llama3 rope_scaling Bedrock changes: (the model's, Bedrock's) by name; empty for any other scaling."""
    scaling = in_form_of_release_4(settings).get("rope_scaling") or {}
    if scaling.get("rope_type", scaling.get("type")) != "llama3":
        return {}
    return {name: (scaling.get(name), served) for name, served in SERVED_ROPE.items() if scaling.get(name) != served}


def generation_ends(folder: Path) -> list[int]:
    """Ids that end a reply by generation_config.json. Raises StepError for a file that is no JSON."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_bytes())["eos_token_id"]
    except KeyError:
        return []
    except (ValueError, TypeError) as error:
        raise StepError(str(path), f"no JSON of settings ({error})", remedy="Give the model anew.") from error
    return [] if found is None else found if isinstance(found, list) else [found]
