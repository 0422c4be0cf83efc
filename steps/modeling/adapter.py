"""The LoRA adapter: its settings, its folder, and its merge into the model, checked by logits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import ConfigError, StepError, write_json
from steps.modeling.loading import load_model, save_model_as, stored_dtype
from steps.modeling.special_ids import set_special_tokens


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


def lora_config(rank: int, alpha: float, dropout: float, target_modules: Sequence[str]) -> LoraConfig:
    """LoRA on linear layers; what it adds is scaled by alpha / rank."""
    return LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=sorted(target_modules),
        bias="none",
        task_type="CAUSAL_LM",
    )


def merge_adapter(
    base: Path,
    adapter: Path,
    output: Path,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    *,
    max_difference: float,
    device: torch.device,
    trust_remote_code: bool = False,
) -> float:
    """Merges in float32, writes the model to `output` in the dtype of the base's folder, returns the merge's error.

    The error is the largest difference of any logit on `prompts` between base with adapter, as read from their
    folders, and the merged model, both in float32, divided by the largest absolute logit: rounding grows with the
    logits. The cast to the stored dtype comes after it; what is read back from `output` must be the cast weights, bit
    for bit. Raises StepError for an error beyond max_difference, or for weights that changed on the way.
    """
    with warnings.catch_warnings():
        # PEFT 0.21 still reads is_gradient_checkpointing, which transformers 5.24 renames.
        warnings.simplefilter("ignore", FutureWarning)
        model = load_model(base, device=device, trust_remote_code=trust_remote_code)
        adapted = PeftModel.from_pretrained(model, str(adapter), local_files_only=True)
    adapted.eval()
    expected = [prompt_logits(adapted, prompt) for prompt in prompts]
    merged = adapted.merge_and_unload(safe_merge=True)
    difference = relative_difference([prompt_logits(merged, prompt) for prompt in prompts], expected)
    # Written so that NaN fails.
    if not difference <= max_difference:
        raise StepError(
            "merged model",
            f"logits differ by {difference:.3g} of the largest from the adapter's",
            limit=f"{max_difference:.3g}",
            remedy="Look at the adapter; raise max_merge_difference only for weights of large norm.",
        )
    # Nothing of the incoming model's own settings for generation stays.
    merged.generation_config = GenerationConfig()
    set_special_tokens(merged, tokenizer)
    dtype = stored_dtype(base, trust_remote_code=trust_remote_code)
    save_model_as(merged, tokenizer, output, dtype, trust_remote_code=trust_remote_code)
    return difference


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
