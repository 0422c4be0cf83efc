"""What a Hugging Face model folder must have, told from its files alone: no torch, no transformers, seconds at most.

A run asks before its first step, so that a wrong base model costs no tokenizer; every step that loads a model asks
again. All checks raise StepError, whose subject is the folder or the file at fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract.errors import StepError
from steps.contract.remote_code import LOADED_CLASSES, check_code, loaded_classes

LFS_POINTER = b"version https://git-lfs"
# safetensors allows no longer header.
MAX_HEADER_BYTES = 100_000_000
COMPARED_BYTES = 1 << 22
INDEX_NAME = "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
# What a model that continues text is named in config.json; the last kind may read pictures too.
CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
INPUT_MATRICES = ("embed_tokens.weight", "wte.weight", "embed_in.weight")
HEAD = "lm_head.weight"
SLOW_TOKENIZER_FILES = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
# One of them stands in a byte-level or a sentencepiece-like tokenizer; U+2581 is how the latter writes a space.
SPELLING_MARKS = ('"ByteLevel"', '"Metaspace"', "\u2581")
# Classes that know no special tokens of their own.
PLAIN_TOKENIZER_CLASSES = (None, "PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")
MODEL_REMEDY = "Give a Hugging Face model folder."
FETCH_REMEDY = "Fetch the model again."


@dataclass(frozen=True)
class StoredTensor:
    """What a tensor is and where it lies: its dtype as safetensors names it (BF16), its shape, its file, and first and
    last byte in it, the last one excluded."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int


def check_base_model(folder: Path, *, trust_remote_code: bool = False) -> None:
    """Everything that a base model must have: a model that can be loaded, and its own byte-level tokenizer."""
    check_model_folder(folder, trust_remote_code=trust_remote_code)
    tokens = check_tokenizer_files(folder)
    matrix = input_matrix(read_tensors(folder))
    rows = matrix.shape[0] if matrix is not None else text_settings(folder).get("vocab_size")
    if isinstance(rows, int) and tokens > rows:
        remedy = "Give the tokenizer that belongs to the model."
        raise StepError(str(folder), f"{rows} embedding rows", limit=f"{tokens} tokens of its tokenizer", remedy=remedy)


def check_folder_code(folder: Path, *, trust_remote_code: bool) -> dict[str, str]:
    """The Python files that loading a model or tokenizer folder would run (see steps/contract/remote_code.py)."""
    return check_code(folder, _settings_files(folder), trust_remote_code=trust_remote_code)


def own_classes(folder: Path) -> dict[str, str]:
    """Classes of its own code that a folder names, FILE.CLASS, by AutoConfig, AutoModelForCausalLM, AutoTokenizer."""
    found = (loaded_classes(file, content) for file, content in _settings_files(folder).items())
    return {kind: name for classes in found for kind, name in classes.items()}


def _settings_files(folder: Path) -> dict[str, dict[str, Any]]:
    paths = [folder / name for name in LOADED_CLASSES]
    return {path.name: _read_object(path) for path in paths if path.is_file()}


def check_model_settings(folder: Path, *, trust_remote_code: bool = False) -> None:
    """A configuration of a causal language model, without code of its own that is not trusted; weights or none."""
    settings = read_model_settings(folder)
    check_folder_code(folder, trust_remote_code=trust_remote_code)
    if "quantization_config" in settings:
        raise StepError(str(folder), "quantized weights", remedy="Give the model in float32, bfloat16 or float16.")
    if not isinstance(settings.get("model_type"), str):
        raise StepError(str(folder / "config.json"), "no model_type", remedy=MODEL_REMEDY)
    named = settings.get("architectures") or []
    if named and not any(str(name).endswith(CAUSAL_ENDINGS) for name in named):
        limit = "a causal language model, such as LlamaForCausalLM"
        raise StepError(str(folder), f"architecture {', '.join(map(str, named))}", limit=limit, remedy=MODEL_REMEDY)


def check_model_folder(folder: Path, *, trust_remote_code: bool = False) -> None:
    """What `check_model_settings` asks for, and whole weights in safetensors."""
    check_model_settings(folder, trust_remote_code=trust_remote_code)
    tensors = read_tensors(folder)
    matrix = input_matrix(tensors)
    rows = text_settings(folder).get("vocab_size")
    if matrix is not None and isinstance(rows, int) and matrix.shape[0] != rows:
        limit = f"{matrix.shape[0]} embedding rows in the weights"
        raise StepError(str(folder / "config.json"), f"vocab_size {rows}", limit=limit, remedy=FETCH_REMEDY)
    _check_tie(folder, tensors)


def context_limit(folder: Path) -> int | None:
    """The model's max_position_embeddings; None where config.json names none."""
    limit = text_settings(folder).get("max_position_embeddings")
    return limit if isinstance(limit, int) else None


def read_model_settings(folder: Path) -> dict[str, Any]:
    """config.json of a model folder."""
    if not (folder / "config.json").is_file():
        value = "a file, not a folder" if folder.is_file() else "no config.json"
        raise StepError(str(folder), value, remedy=MODEL_REMEDY)
    return _read_object(folder / "config.json")


def text_settings(folder: Path) -> dict[str, Any]:
    """The part of config.json that is about text; a model that reads pictures too keeps it apart."""
    settings = read_model_settings(folder)
    part = settings.get("text_config")
    return settings | part if isinstance(part, dict) else settings


def check_tokenizer_files(folder: Path) -> int:
    """A fast tokenizer whose tokens spell bytes, with a BOS or EOS token; returns how many tokens it has."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        slow = [name for name in SLOW_TOKENIZER_FILES if (folder / name).is_file()]
        value = f"a slow tokenizer only ({slow[0]})" if slow else "no tokenizer.json"
        remedy = "Give a model folder with a fast tokenizer, tokenizer.json."
        raise StepError(str(folder), value, limit="tokenizer.json" if slow else None, remedy=remedy)
    tokenizer = _read_object(path)
    model = tokenizer.get("model")
    model = model if isinstance(model, dict) else {}
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict | list):
        raise StepError(str(path), "no vocabulary", remedy="Fetch the tokenizer again.")
    parts = [tokenizer.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")]
    if not any(mark in json.dumps(parts, ensure_ascii=False) for mark in SPELLING_MARKS):
        kind = model.get("type") or "unknown"
        remedy = "Give a model with such a tokenizer, such as Llama 3, Qwen, Gemma or Mistral."
        value = f"a {kind} tokenizer whose tokens do not spell bytes"
        raise StepError(str(path), value, limit="byte-level or sentencepiece", remedy=remedy)
    _check_document_marks(folder)
    plain = set(vocabulary) if isinstance(vocabulary, dict) else {entry[0] for entry in vocabulary}
    return len(plain | {entry["content"] for entry in tokenizer.get("added_tokens") or []})


def read_fast_tokenizer(folder: Path) -> dict[str, Any]:
    """tokenizer.json."""
    return _read_object(folder / "tokenizer.json")


def check_byte_level_bpe(tokenizer: Mapping[str, Any]) -> None:
    """A tokenizer.json whose tokenizer can be given new tokens: byte-level BPE."""
    kind = (tokenizer.get("model") or {}).get("type") or "unknown"
    is_byte_level = '"ByteLevel"' in json.dumps([tokenizer.get("pre_tokenizer"), tokenizer.get("decoder")])
    if kind != "BPE" or not is_byte_level:
        raise StepError(
            "base model's tokenizer",
            f"{kind}{'' if is_byte_level else ' without byte level'}",
            limit="byte-level BPE for the candidates extended and replaced",
            remedy="Leave extended and replaced out of train_tokenizer.kinds.",
        )


def read_tokenizer_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; empty where there is none."""
    path = folder / "tokenizer_config.json"
    return _read_object(path) if path.is_file() else {}


def _check_document_marks(folder: Path) -> None:
    """What stands before a document is BOS or, for a model without one (Qwen), the end of the document before."""
    settings, special = read_tokenizer_settings(folder), folder / "special_tokens_map.json"
    named = _read_object(special) if special.is_file() else {}
    names = ("bos_token", "eos_token")
    if any(settings.get(name) or named.get(name) for name in names):
        return
    # Absent, it may be the class's own; null says that there is none.
    if all(name in settings for name in names) or settings.get("tokenizer_class") in PLAIN_TOKENIZER_CLASSES:
        remedy = "Set bos_token or eos_token in tokenizer_config.json."
        raise StepError(str(folder), "the tokenizer has no BOS and no EOS token", remedy=remedy)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        value = json.loads(content)
    except ValueError as error:
        if content.startswith(LFS_POINTER):
            raise StepError(str(path), "a Git LFS pointer, not the file", remedy="Run `git lfs pull`.") from error
        raise StepError(str(path), f"no JSON ({error})", remedy=FETCH_REMEDY) from error
    if not isinstance(value, dict):
        raise StepError(str(path), "no JSON object", remedy=FETCH_REMEDY)
    return value


# --- weights ----------------------------------------------------------------------------------------------------------


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a folder's safetensors by name, from the headers; no file may be missing or cut short."""
    return {name: tensor for file in weight_files(folder) for name, tensor in tensors_of(file).items()}


def weight_files(folder: Path) -> list[Path]:
    """A folder's files of safetensors: those that its index names, all where it has no index."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / INDEX_NAME
    if index.is_file():
        named = sorted({str(name) for name in (_read_object(index).get("weight_map") or {}).values()})
        missing = [name for name in named if not (folder / name).is_file()]
        if missing or not named:
            value = f"{missing[0]} is missing" if missing else "names no file"
            limit = f"the {len(named)} files that it names" if missing else None
            raise StepError(str(index), value, limit=limit, remedy=FETCH_REMEDY)
        files = [folder / name for name in named]
    if not files:
        found = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
        value = f"pickled weights only ({', '.join(found)})" if found else "no weights"
        remedy = "Convert the weights to safetensors." if found else FETCH_REMEDY
        raise StepError(str(folder), value, limit="*.safetensors", remedy=remedy)
    return files


def tensors_of(file: Path) -> dict[str, StoredTensor]:
    """Names and places of one file's tensors; it may not be cut short. The format: 8 bytes of length, little-endian, a
    JSON header, the data."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        begin = stream.read(8)
        if LFS_POINTER.startswith(begin) and begin:
            raise StepError(str(file), "a Git LFS pointer, not the weights", remedy="Run `git lfs pull`.")
        length = int.from_bytes(begin, "little")
        header = stream.read(length) if 0 < length <= MAX_HEADER_BYTES else b""
    tensors: dict[str, StoredTensor] = {}
    try:
        entries = json.loads(header) if len(header) == length else {}
        for name in sorted(entries.keys() - {"__metadata__"}):
            start, end = entries[name]["data_offsets"]
            shape = tuple(map(int, entries[name]["shape"]))
            dtype = str(entries[name]["dtype"])
            tensors[name] = StoredTensor(dtype, shape, file, 8 + length + int(start), 8 + length + int(end))
    except (ValueError, KeyError, TypeError, AttributeError):
        tensors = {}
    if not tensors:
        raise StepError(str(file), "damaged: no header of safetensors", remedy="Fetch the file again.")
    whole = max(tensor.end for tensor in tensors.values())
    if size != whole:
        raise StepError(str(file), f"damaged: {size} bytes", limit=f"{whole} by its header", remedy=FETCH_REMEDY)
    return tensors


def input_matrix(tensors: dict[str, StoredTensor]) -> StoredTensor | None:
    """The input embedding by the names in use; None where it has another."""
    return next((tensor for name, tensor in tensors.items() if name.endswith(INPUT_MATRICES)), None)


def _check_tie(folder: Path, tensors: dict[str, StoredTensor]) -> None:
    """The weights must agree with config.json on whether one matrix is both embedding and head."""
    tied = text_settings(folder).get("tie_word_embeddings")
    matrix = input_matrix(tensors)
    head = next((tensor for name, tensor in tensors.items() if name.endswith(HEAD)), None)
    has_usual_names = any(name.endswith(INPUT_MATRICES[0]) for name in tensors)
    if tied is False and head is None and has_usual_names:
        value, limit = "tie_word_embeddings is false", f"a {HEAD} in the weights, which they lack"
    elif tied is True and head is not None and matrix is not None and not _same_bytes(matrix, head):
        value, limit = "tie_word_embeddings is true", f"a {HEAD} like the embedding, which differs"
    else:
        return
    raise StepError(str(folder / "config.json"), value, limit=limit, remedy="Mend tie_word_embeddings.")


def _same_bytes(first: StoredTensor, second: StoredTensor) -> bool:
    if first.shape != second.shape or first.end - first.start != second.end - second.start:
        return False
    with first.file.open("rb") as left, second.file.open("rb") as right:
        left.seek(first.start)
        right.seek(second.start)
        for start in range(first.start, first.end, COMPARED_BYTES):
            wanted = min(COMPARED_BYTES, first.end - start)
            if left.read(wanted) != right.read(wanted):
                return False
    return True
