"""Llama 3's real tokenizer, which the package llama-models ships in tiktoken's format, as this project assembles it.

Every helper that needs the vocabulary skips the test, with a printed reason, where the package is not installed.
"""

from __future__ import annotations

import ast
import base64
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from steps.text.bbpe import assemble
from steps.text.byte_characters import spell


def llama_models_folder() -> Path:
    """The package's folder llama3. It is found, not imported: importing it would load torch and more."""
    found = importlib.util.find_spec("llama_models")
    folder = Path(found.origin).parent / "llama3" if found and found.origin else None
    if folder is None or not (folder / "tokenizer.model").is_file():
        print("not measured: the package llama-models is not installed")
        pytest.skip("no package llama-models")
    return folder


@cache
def llama_3_ranks() -> dict[bytes, int]:
    """Id of each of the 128,000 tokens by its bytes."""
    lines = (llama_models_folder() / "tokenizer.model").read_bytes().splitlines()
    pairs = (line.split() for line in lines if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


@cache
def declared_by_meta() -> tuple[str, list[str]]:
    """(pattern, special tokens in the order of their ids) as Meta's own tokenizer.py states them, read without running
    it: reserved tokens beyond those that it names carry numbers from 2 on."""
    tree = ast.parse((llama_models_folder() / "tokenizer.py").read_text("utf-8"))
    assigned = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.List))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    named = ast.literal_eval(assigned["special_tokens"])
    count = ast.literal_eval(assigned["num_reserved_special_tokens"])
    reserved = [f"<|reserved_special_token_{2 + number}|>" for number in range(count - len(named))]
    return ast.literal_eval(assigned["pat_str"]), named + reserved


def all_splits(ranks: dict[bytes, int]) -> Iterable[tuple[bytes, bytes]]:
    """Every pair of tokens that makes a token, by the token's rank, as Hugging Face's tokenizer.json of Llama 3 lists
    them: tiktoken merges two neighbours where their bytes are a token, whatever its history."""
    for token in sorted(ranks, key=ranks.__getitem__):
        splits = [(token[:place], token[place:]) for place in range(1, len(token))]
        known = [pair for pair in splits if pair[0] in ranks and pair[1] in ranks]
        yield from sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


@cache
def _llama_3_text() -> str:
    ranks = llama_3_ranks()
    merges = [(spell(first), spell(second)) for first, second in all_splits(ranks)]
    return assemble({spell(token): rank for token, rank in ranks.items()}, merges).to_str()


def llama_3_tokenizer() -> Tokenizer:
    """Llama 3.2's tokenizer, 128,256 tokens, made by `assemble` around the real vocabulary."""
    return Tokenizer.from_str(_llama_3_text())


def write_llama_3_folder(folder: Path) -> None:
    """Its folder, as the step writes one."""
    from steps.train_tokenizer import write_tokenizer_folder

    write_tokenizer_folder(llama_3_tokenizer(), folder, max_tokens=131_072)
