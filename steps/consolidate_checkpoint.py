"""Makes one safetensors model folder of a checkpoint: torch.distributed.checkpoint's, or sharded safetensors.

    python -m steps.consolidate_checkpoint --checkpoint DIR --model DIR --output DIR [--dtype=...] [--max_file_gib=4]

Reads    checkpoint  a folder with .metadata and *.distcp (a step-NNNNNNNN of ContinuedPretraining, FSDP's of others)
                     or with *.safetensors, with an index or without, torch's HuggingFaceStorageWriter's included
         model       config.json and tokenizer of the model; its weights, if any, are not looked at
Writes   config.json, tokenizer, model.safetensors, or several files and model.safetensors.index.json

The model's names are found behind one prefix; wrappers' names inside them are no hindrance. Nothing in the checkpoint
is run. What is written is loaded again and compared with what was read, bit for bit, and answers fixed prompts with
finite logits. Memory: the model twice, in the dtype written. docs/merging.md says what is refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from steps.configs.consolidate_checkpoint import FIND_PREFIX, ConsolidateCheckpointConfig
from steps.contract import Folder, StepError, StepFolders, run_step
from steps.modeling.adapter import prompt_logits
from steps.modeling.foreign_checkpoint import open_checkpoint, read_model_tensors, tensor_shapes
from steps.modeling.loading import chosen_dtype, empty_model, load_model, load_tokenizer, model_of_tensors, save_model
from steps.modeling.tensor_names import match_names
from steps.text.check_prompts import encode_check_prompts

FOLDERS = [Folder("checkpoint", sealed=False), Folder("model", sealed=False)]


def consolidate(config: ConsolidateCheckpointConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Finds the model's tensors, reads, writes, and loads what was written."""
    folder, trust = folders["model"], config.trust_remote_code
    tokenizer = load_tokenizer(folder, trust_remote_code=trust)
    empty = empty_model(folder, trust_remote_code=trust)
    prompts = encode_check_prompts(tokenizer, empty.config)
    reader = open_checkpoint(folders["checkpoint"])
    prefix = None if config.prefix == FIND_PREFIX else config.prefix
    match = match_names(folders["checkpoint"], tensor_shapes(reader), empty, prefix)
    dtype = chosen_dtype(config.dtype, folder, trust_remote_code=trust)
    tensors = read_model_tensors(reader, reader.tensors, match, dtype)
    # By the names in files, which are then those that are written: other programs know no others.
    model = model_of_tensors(folder, empty, match.names.as_in_files(empty, tensors), dtype)
    save_model(model, tokenizer, folders.output, max_file_bytes=math.ceil(config.max_file_gib * 2**30))
    del model
    written = load_model(folders.output, dtype=dtype, trust_remote_code=trust)
    check_written(written, match.names.state_of(written), tensors, prompts)
    return {
        "parameters": written.num_parameters(),
        "tensors": len(tensors),
        "files": len(list(folders.output.glob("*.safetensors"))),
        "prefix": match.prefix or "none",
        "passed_over": match.passed_over,
        "dtype": str(dtype).removeprefix("torch."),
    }


def check_written(
    model: PreTrainedModel,
    loaded: Mapping[str, torch.Tensor],
    tensors: Mapping[str, torch.Tensor],
    prompts: Sequence[Sequence[int]],
) -> None:
    """Raises StepError where a loaded model has other values than were read, or its logits are not finite. loaded: its
    tensors by the checkpoint's names of them."""
    for name, tensor in tensors.items():
        if not torch.equal(loaded[name], tensor):
            remedy = "Look at the disk, then give the same command again."
            raise StepError(f"written model: {name}", "other values than in the checkpoint", remedy=remedy)
    for prompt in prompts:
        if not bool(torch.isfinite(prompt_logits(model, prompt)).all()):
            remedy = "Look at the training that left this checkpoint, or take another --dtype."
            raise StepError("written model", "logits that are not finite", limit="finite logits", remedy=remedy)


if __name__ == "__main__":
    sys.exit(run_step(consolidate, ConsolidateCheckpointConfig, FOLDERS))
