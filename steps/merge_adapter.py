"""Merges a LoRA adapter from elsewhere into its base model, and checks that the merge answers as the two do.

    python -m steps.merge_adapter --model DIR --adapter DIR --output DIR [--max_difference=1e-3] [--dtype=bfloat16]
    python -m steps.merge_adapter --model DIR --adapter DIR --merged DIR --output DIR

Reads    model    the base model that the adapter was trained on
         adapter  a folder of PEFT's: adapter_config.json, adapter_model.safetensors
         merged   a model that was merged elsewhere; with it nothing is merged, this model is checked
Writes   the merged model with the base's tokenizer, ties and settings for generation; with --merged the seal alone

Merged in float32 on the CPU. The logits of base with adapter and of the merged model are compared on fixed prompts
(steps/text/check_prompts.py); what is written is read back and compared, bit for bit. docs/merging.md says what is
refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from steps.configs.merge_adapter import MergeAdapterConfig
from steps.contract import Folder, StepFolders, run_step, warn
from steps.modeling.adapter import Merge, compare_merged, merge_checked
from steps.modeling.foreign_adapter import check_adapter
from steps.modeling.loading import chosen_dtype, empty_model, load_tokenizer, save_model_as
from steps.text.bbpe import load_fast_tokenizer
from steps.text.check_prompts import encode_check_prompts

FOLDERS = [
    Folder("model", sealed=False),
    Folder("adapter", sealed=False),
    Folder("merged", sealed=False, required=False),
]


def merge(config: MergeAdapterConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Refuses what cannot be merged, then merges and writes, or checks a model merged elsewhere."""
    model, adapter, merged = folders["model"], folders["adapter"], folders.get("merged")
    trust = config.trust_remote_code
    tokenizer = load_tokenizer(model, trust_remote_code=trust)
    empty = empty_model(model, trust_remote_code=trust)
    prompts = encode_check_prompts(tokenizer, empty.config)
    check_adapter(adapter, empty)
    if merged is not None:
        limit = config.max_difference
        return headline(compare_merged(model, adapter, merged, prompts, max_difference=limit, trust_remote_code=trust))
    warn_of_tokenizer(adapter, tokenizer)
    result = merge_checked(model, adapter, prompts, max_difference=config.max_difference, trust_remote_code=trust)
    dtype = chosen_dtype(config.dtype, model, trust_remote_code=trust)
    save_model_as(result.model, tokenizer, folders.output, dtype, trust_remote_code=trust)
    return headline(result)


def warn_of_tokenizer(adapter: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Warns of a tokenizer beside the adapter that is not the base's, for the base's is written."""
    if not (adapter / "tokenizer.json").is_file():
        return
    template = adapter / "chat_template.jinja"
    same_template = not template.is_file() or template.read_text("utf-8") == tokenizer.chat_template
    if not same_template or load_fast_tokenizer(adapter).get_vocab() != tokenizer.get_vocab():
        warn(
            "adapter-tokenizer",
            f"the tokenizer or chat template beside {adapter.name} is not the base model's, which is written; "
            "copy it over the merged model's if the adapter was trained with it",
        )


def headline(merge: Merge) -> dict[str, float | int | str]:
    """The figures for the manifest and the log. lora_scaling: of each layer, where they are not one."""
    return {
        "lora_scaling": ",".join(f"{scaling:.6g}" for scaling in merge.scalings),
        "merge_relative_difference": merge.difference.relative,
        "merge_absolute_difference": merge.difference.absolute,
    }


if __name__ == "__main__":
    sys.exit(run_step(merge, MergeAdapterConfig, FOLDERS))
