"""A base model's folder of a few kilobytes whose files hold what a base model needs; nobody could run it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SETTINGS = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
}  # fmt: skip


def write_small_base(folder: Path) -> Path:
    """config.json, a byte-level tokenizer, model.safetensors with the embeddings alone, and a licence."""
    folder.mkdir(parents=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = tokenizer.get_vocab_size()
    (folder / "config.json").write_text(json.dumps({**SETTINGS, "vocab_size": rows}))
    marks = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(marks))
    save_file({"model.embed_tokens.weight": numpy.zeros((rows, 8), numpy.float16)}, folder / "model.safetensors")
    (folder / "LICENSE").write_text("Ours.")
    return folder
