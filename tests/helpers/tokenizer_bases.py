"""Base model folders with weights of the right shapes and nothing learnt, for steps that look at no weight's value."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy
from llama_3 import write_llama_3_folder
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from steps.train_tokenizer import write_tokenizer_folder

WIDTH, CONTEXT_TOKENS, OTHER_PARAMETERS = 16, 256, 40_000


def write_base(folder: Path, tokenizer: Tokenizer, *, tied: bool = True) -> Path:
    """A folder with the tokenizer, an embedding (and a head, where they are not tied) of width 16 and 40,000 further
    parameters."""
    write_tokenizer_folder(tokenizer, folder, CONTEXT_TOKENS)
    return write_weights(folder, tokenizer.get_vocab_size(with_added_tokens=True), tied=tied)


def write_weights(folder: Path, rows: int, *, tied: bool = True) -> Path:
    """Weights and configuration beside a tokenizer of so many tokens; gives the folder back."""
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


def write_llama_3_2_1b(folder: Path) -> Path:
    """Llama 3's real tokenizer beside the shapes of Llama 3.2 1B: 128,256 rows of 2,048, tied, 1,235,814,400 parameters
    in all. The weights are a hole in a file, which takes no room on the disk."""
    write_llama_3_folder(folder)
    rows, width, total = 128_256, 2_048, 1_235_814_400
    shapes = {"model.embed_tokens.weight": [rows, width], "model.layers.weight": [total - rows * width]}
    header, place = {}, 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    content = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + place)
    config = {
        "model_type": "llama",
        "vocab_size": rows,
        "hidden_size": width,
        "tie_word_embeddings": True,
        "max_position_embeddings": 131_072,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder
