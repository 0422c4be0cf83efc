"""Code that a model folder brings (transformers' auto_map), told from its files alone: here nothing of it is run.

config.json or tokenizer_config.json names classes in files of the folder, such as `modeling_own.OwnForCausalLM`; those
files may import others beside them. Whoever loads such a model runs all of them.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steps.contract.errors import StepError

# What langadapt asks transformers for, by the file whose auto_map it is looked up in.
LOADED_CLASSES = {"config.json": ("AutoConfig", "AutoModelForCausalLM"), "tokenizer_config.json": ("AutoTokenizer",)}
CLASS_IN_FOLDER = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")
SHOWN_DIGEST_CHARACTERS = 12
TRUST_REMEDY = (
    "Give a model that transformers knows (where it knows this one, take auto_map out of {file}); or set "
    "data.trust_remote_code=true, which runs the model's own code on your machine."
)


def check_code(folder: Path, settings: Mapping[str, Mapping[str, Any]], *, trust_remote_code: bool) -> dict[str, str]:
    """The Python files that loading the folder would run, and their sha256; empty for most models.

    settings: config.json and tokenizer_config.json by name. Raises StepError where there is code
    and no trust in it; with it, for code that lies elsewhere (a hub's `repo--module.Class`), lacks a file or is no
    Python.
    """
    modules: list[str] = []
    for file, content in settings.items():
        if "auto_map" not in content:
            continue
        classes = _classes(content["auto_map"])
        names = sorted({name for _, name in classes})
        if not trust_remote_code:
            value = f"{file} asks for code of its own ({', '.join(names)})"
            remedy = TRUST_REMEDY.format(file=file)
            raise StepError(str(folder), value, limit="no code but that of transformers", remedy=remedy)
        elsewhere = [name for name in names if not CLASS_IN_FOLDER.fullmatch(name)]
        if elsewhere:
            value = f"{file} asks for code that lies elsewhere ({', '.join(elsewhere)})"
            remedy = f"Put its files into the folder and name it FILE.CLASS in auto_map of {file}."
            raise StepError(str(folder), value, limit="files in the model's own folder", remedy=remedy)
        modules += [name.rpartition(".")[0] for name in loaded_classes(file, content).values()]
    return code_files(folder, modules)


def loaded_classes(file: str, content: Mapping[str, Any]) -> dict[str, str]:
    """The classes that a file's auto_map names for what langadapt loads; of a tokenizer's two the fast one, which comes
    last."""
    return {kind: name for kind, name in _classes(content.get("auto_map")) if kind in LOADED_CLASSES[file]}


def code_files(folder: Path, modules: list[str]) -> dict[str, str]:
    """The files of modules in a folder and of those that they import from beside them, with their sha256, by name."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        path = folder / f"{waiting.pop()}.py"
        if path.name in found:
            continue
        if not path.is_file():
            remedy = "Fetch the model again, with its Python files."
            raise StepError(str(path), "missing, and the model's own code needs it", remedy=remedy)
        content = path.read_bytes()
        found[path.name] = hashlib.sha256(content).hexdigest()
        waiting += _imported_from_beside(path, content)
    return dict(sorted(found.items()))


def describe_code(files: Mapping[str, str]) -> str:
    """`configuration_own.py (sha256 1f0c...), ...`, the digests shortened."""
    return ", ".join(f"{name} (sha256 {digest[:SHOWN_DIGEST_CHARACTERS]})" for name, digest in files.items())


def _classes(auto_map: Any) -> list[tuple[str, str]]:
    """(what it is for, class) of an auto_map; a tokenizer has a slow and a fast class, either of them null, and in old
    folders they are the whole auto_map."""
    entries = auto_map if isinstance(auto_map, dict) else {"AutoTokenizer": auto_map}
    found: list[tuple[str, str]] = []
    for kind, named in entries.items():
        found += [(kind, str(name)) for name in (named if isinstance(named, list) else [named]) if name is not None]
    return found


def _imported_from_beside(path: Path, content: bytes) -> Iterator[str]:
    """Modules that a file imports from its own folder, in the one form that transformers carries along."""
    try:
        tree = ast.parse(content, filename=path.name)
    except (SyntaxError, ValueError) as error:
        raise StepError(str(path), f"no Python ({error})", remedy="Fetch the model again.") from error
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        if node.level > 1 or not node.module or "." in node.module:
            value = f"imports {'.' * node.level}{node.module or ''} in line {node.lineno}"
            remedy = "Write each import as `from .FILE import NAME`."
            raise StepError(str(path), value, limit="files beside it", remedy=remedy)
        yield node.module
