"""Base model folders with weights of the right shapes and nothing learnt, for steps that look at no weight's value."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from steps.train_tokenizer import write_tokenizer_folder

WIDTH, CONTEXT_TOKENS, OTHER_PARAMETERS = 16, 256, 40_000


def write_base(folder: Path, tokenizer: Tokenizer, *, tied: bool = True) -> Path:
    """A folder with the tokenizer, an embedding (and a head, where they are not tied) of width 16 and 40,000 further
    parameters."""
    write_tokenizer_folder(tokenizer, folder, CONTEXT_TOKENS)
    rows = tokenizer.get_vocab_size(with_added_tokens=True)
    tensors = {
        "model.embed_tokens.weight": numpy.zeros((rows, WIDTH), numpy.float16),
        "model.layers.0.weight": numpy.zeros((200, 200), numpy.float16),
    }
    if not tied:
        tensors["lm_head.weight"] = numpy.ones((rows, WIDTH), numpy.float16)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "model_type": "llama",
        "vocab_size": rows,
        "hidden_size": WIDTH,
        "tie_word_embeddings": tied,
        "max_position_embeddings": CONTEXT_TOKENS,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder
