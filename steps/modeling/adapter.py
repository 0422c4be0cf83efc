"""The LoRA adapter: its settings, its folder, and its merge into the model, checked by logits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import ConfigError, StepError, write_json
from steps.modeling.loading import is_tied, load_model, save_model_as, stored_dtype
from steps.modeling.special_ids import set_special_tokens
from steps.text.chat_template import END_HEADER_TOKEN, END_OF_TURN_TOKEN, START_HEADER_TOKEN

# What stands around and behind a turn, and in no text.
TURN_TOKENS = (START_HEADER_TOKEN, END_HEADER_TOKEN, END_OF_TURN_TOKEN)


def check_target_modules(model: PreTrainedModel, target_modules: Sequence[str]) -> None:
    """Raises ConfigError unless each name is one or more linear layers, and no embedding or output layer.

    An adapter on a matrix that embedding and output layer share cannot be merged into both (transformers#45127).
    """
    shared = [model.get_input_embeddings(), model.get_output_embeddings()]
    for target in target_modules:
        found = [module for name, module in model.named_modules() if name.split(".")[-1] == target]
        fits = found and all(isinstance(module, torch.nn.Linear) for module in found)
        if not fits or any(module is layer for module in found for layer in shared):
            linear = {name.split(".")[-1] for name, module in model.named_modules() if is_linear(module, shared)}
            raise ConfigError(
                "fine_tune.target_modules",
                target,
                limit=f"linear layers inside the blocks: {', '.join(sorted(linear))}",
                remedy="Name layers of this model.",
            )


def is_linear(module: torch.nn.Module, excluded: Sequence[torch.nn.Module]) -> bool:
    return isinstance(module, torch.nn.Linear) and not any(module is layer for layer in excluded)


def save_adapter(model: PeftModel, folder: Path) -> None:
    """Writes adapter_config.json and adapter_model.safetensors: the same bytes for the same adapter.

    Not PEFT's own save_pretrained: it writes the base model's path and lists the layers in a random order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in sorted(state.items())}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = model.peft_config["default"].to_dict()
    settings.update(base_model_name_or_path=None, inference_mode=True)
    plain = {name: sorted(value) if isinstance(value, set) else value for name, value in sorted(settings.items())}
    write_json(folder / "adapter_config.json", json.loads(json.dumps(plain, default=str)))


def chat_token_rows(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[int]]:
    """Ids of the tokens around and behind a turn, for the embedding and, where it has a matrix of its own, the head.

    No text has them, so that pretraining pushes all of their rows the same way, away from whatever comes; an adapter
    inside the blocks alone has to learn the end of turn against that.
    """
    known = tokenizer.get_vocab()
    ids = sorted(known[token] for token in TURN_TOKENS if token in known)
    layers = [model.get_input_embeddings(), *([] if is_tied(model) else [model.get_output_embeddings()])]
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if any(module is one for one in layers)}
    return dict.fromkeys(sorted(names), ids)


def lora_config(
    rank: int,
    alpha: float,
    dropout: float,
    target_modules: Sequence[str],
    token_rows: Mapping[str, list[int]] | None = None,
) -> LoraConfig:
    """LoRA on linear layers; what it adds is scaled by alpha / rank. token_rows: see `chat_token_rows`."""
    return LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=sorted(target_modules),
        bias="none",
        task_type="CAUSAL_LM",
        trainable_token_indices=dict(token_rows) if token_rows else None,
    )


@dataclass(frozen=True)
class LogitDifference:
    """Largest difference of any logit on all prompts; relative: divided by the largest absolute logit expected."""

    absolute: float
    relative: float


@dataclass(frozen=True)
class Merge:
    """model: base and adapter merged, float32, on the CPU. scalings: by which the adapter's layers were multiplied,
    each value once, in ascending order. difference: of its logits from those of base with adapter."""

    model: PreTrainedModel
    scalings: tuple[float, ...]
    difference: LogitDifference


def merge_adapter(
    base: Path,
    adapter: Path,
    output: Path,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    max_difference: float,
    trust_remote_code: bool = False,
) -> float:
    """Merges (see `merge_checked`), writes the model to `output` in the dtype of the base's folder, with the
    tokenizer's special tokens, and returns the merge's relative difference.

    The cast to the stored dtype comes after the check; what is read back from `output` must be the cast weights, bit
    for bit. Raises StepError for a difference beyond max_difference, or for weights that changed on the way.
    """
    merge = merge_checked(base, adapter, prompts, max_difference=max_difference, trust_remote_code=trust_remote_code)
    # Nothing of the incoming model's own settings for generation stays.
    merge.model.generation_config = GenerationConfig()
    set_special_tokens(merge.model, tokenizer)
    dtype = stored_dtype(base, trust_remote_code=trust_remote_code)
    save_model_as(merge.model, tokenizer, output, dtype, trust_remote_code=trust_remote_code)
    return merge.difference.relative


def merge_checked(
    base: Path,
    adapter: Path,
    prompts: Sequence[Sequence[int]],
    *,
    max_difference: float,
    trust_remote_code: bool = False,
) -> Merge:
    """Base and adapter, as read from their folders, merged and compared on the prompts.

    In float32 and on the CPU, whose memory holds what a GPU's may not: 8B parameters are 32 GB. Raises StepError where
    the logits differ by more than max_difference of the largest, or the merged weights are not finite.
    """
    adapted = load_adapted(base, adapter, trust_remote_code=trust_remote_code)
    layers = [module for module in adapted.modules() if isinstance(module, LoraLayer)]
    scalings = {scaling for layer in layers for scaling in layer.scaling.values()}
    expected = [prompt_logits(adapted, prompt) for prompt in prompts]
    try:
        merged = adapted.merge_and_unload(safe_merge=True)
    except ValueError as error:
        # What safe_merge raises for a layer with NaN.
        raise StepError(
            str(adapter), f"cannot be merged ({error})", remedy="Give an adapter of finite numbers."
        ) from error
    found = [prompt_logits(merged, prompt) for prompt in prompts]
    return Merge(merged, tuple(sorted(scalings)), check_merge(expected, found, max_difference))


def load_adapted(base: Path, adapter: Path, *, trust_remote_code: bool = False) -> PeftModel:
    """Base with adapter, unmerged, float32, on the CPU, in evaluation mode. Raises StepError where PEFT refuses it."""
    with warnings.catch_warnings():
        # PEFT 0.21 still reads is_gradient_checkpointing, which transformers 5.24 renames.
        warnings.simplefilter("ignore", FutureWarning)
        model = load_model(base, device=torch.device("cpu"), trust_remote_code=trust_remote_code)
        try:
            adapted = PeftModel.from_pretrained(model, str(adapter), torch_device="cpu", local_files_only=True)
        except ValueError as error:
            remedy = "Give an adapter that was trained on this model."
            raise StepError(str(adapter), f"refused ({error})", remedy=remedy) from error
    return adapted.eval()


def check_merge(
    expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor], max_difference: float
) -> LogitDifference:
    """Compares the logits of base with adapter with those of the merged model, [tokens, vocabulary] a prompt.

    Raises StepError where the largest difference is more than max_difference of the largest absolute logit, for
    rounding grows with the logits, where one of them is no number, or where the shapes differ.
    """
    shapes = [[list(tensor.shape) for tensor in tensors] for tensors in (found, expected)]
    if shapes[0] != shapes[1]:
        remedy = "Compare models of one vocabulary."
        raise StepError("merged model", f"logits of shapes {shapes[0]}", limit=shapes[1], remedy=remedy)
    largest = torch.stack([(one - other).abs().max() for one, other in zip(found, expected, strict=True)]).max()
    difference = LogitDifference(float(largest), relative_difference(found, expected))
    # Written so that NaN fails.
    if not difference.relative <= max_difference:
        raise StepError(
            "merged model",
            f"logits differ by {difference.relative:.3g} of the largest from the adapter's",
            limit=f"{max_difference:.3g}",
            remedy="Look at the adapter; raise the limit only for weights of large norm.",
        )
    return difference


def compare_merged(
    base: Path,
    adapter: Path,
    merged: Path,
    prompts: Sequence[Sequence[int]],
    *,
    max_difference: float,
    trust_remote_code: bool = False,
) -> Merge:
    """Checks a folder with a merged model against base and adapter; the difference is the folder's.

    Merged anew (see `merge_checked`) and cast to the folder's dtype, base and adapter must give its logits: the
    cast's own rounding, which in bfloat16 is larger than any merge's, is on both sides. Raises as `check_merge` does.
    """
    merge = merge_checked(base, adapter, prompts, max_difference=max_difference, trust_remote_code=trust_remote_code)
    dtype = stored_dtype(merged, trust_remote_code=trust_remote_code)
    # What is stored alone: positions' frequencies, which the model computes itself, stay in float32.
    for tensor in merge.model.state_dict().values():
        tensor.copy_(tensor.to(dtype))
    expected, scalings = [prompt_logits(merge.model, prompt) for prompt in prompts], merge.scalings
    # Two models in float32 need not lie in memory together.
    del merge
    stored = load_model(merged, device=torch.device("cpu"), trust_remote_code=trust_remote_code)
    found = [prompt_logits(stored, prompt) for prompt in prompts]
    return Merge(stored, scalings, check_merge(expected, found, max_difference))


def relative_difference(logits: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """max |logits - expected| / max |expected| over all tensors; NaN where one of them has a NaN."""
    pairs = zip(logits, expected, strict=True)
    largest = torch.stack([(found - wanted).abs().max() for found, wanted in pairs]).max()
    return float(largest / torch.stack([wanted.abs().max() for wanted in expected]).max())


def prompt_logits(model: torch.nn.Module, ids: Sequence[int]) -> torch.Tensor:
    """Logits of every position, [tokens, vocabulary], float32, on the CPU."""
    inputs = torch.tensor([list(ids)], device=next(model.parameters()).device)
    with torch.inference_mode():
        return model(input_ids=inputs, use_cache=False).logits[0].float().cpu()
