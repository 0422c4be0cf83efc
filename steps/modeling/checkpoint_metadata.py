"""What a torch.distributed.checkpoint folder holds, read so that nothing in it runs.

Its list of tensors, `.metadata`, is a pickle, and a pickle names what is called while it is read: torch's own reader
would call anything. Here each name is refused but those of the list itself, and even these are not torch's classes but
records that keep what they were pickled with; from them, once looked at, torch's objects are made anew. Entries that
are no tensors are pickles too: they leave the list, so that nobody asks for one. The tensors are read by torch's
reader, which allows tensors alone (`weights_only`).
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from steps.contract import StepError

METADATA_NAME = ".metadata"
LISTS = "torch.distributed.checkpoint.metadata"
# Where torch 2.2 and before had them.
OLDER_LISTS = "torch.distributed._shard.sharded_tensor.metadata"
RECORDS = frozenset(
    {
        *((LISTS, name) for name in (
            "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
            "MetadataIndex", "StorageMeta",
        )),
        (OLDER_LISTS, "TensorProperties"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        # The folder that it was written to; of Python 3.13 and later, too.
        *((module, name) for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "WindowsPath")),
    }
)  # fmt: skip
# What is written as a call of these gets a plain value.
PLAIN = {
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): str,
    (LISTS, "_MEM_FORMAT_ENCODING"): int,
    (OLDER_LISTS, "MEM_FORMAT_ENCODING"): int,
}
# What a damaged pickle raises, by the documentation of pickle and as seen (a damaged length asks for any memory); a
# refused name is none of them.
DAMAGE = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError,
    MemoryError,
)  # fmt: skip
REMEDY = "Fetch the checkpoint again, or take the one before it."


class _Record:
    """An object as it was pickled: arguments are dropped, its state is kept and not looked at.

    That it has __setstate__ keeps a pickle from setting attributes of the class itself.
    """

    state: Any = None

    def __init__(self, *arguments: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _RefusedNameError(Exception):
    """A name that a list of tensors has no use for."""


def _enum_member(kind: object, name: object) -> str:
    """What Python 3.11.0 to 3.11.3 write for a member of an Enum: getattr of its class, which PLAIN makes int, and its
    name. Nothing is looked up here; a getattr of anything else is refused."""
    if kind is not int or not isinstance(name, str):
        raise _RefusedNameError("builtins.getattr")
    return name


class _ListUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _enum_member
        if (module, name) in RECORDS:
            return type(name, (_Record,), {})
        if (module, name) in PLAIN:
            return PLAIN[module, name]
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise _RefusedNameError(f"{module}.{name}")


def read_tensor_list(folder: Path) -> Metadata:
    """The tensors of a checkpoint folder, their chunks, and where each lies; entries that are no tensors are left out.

    Raises StepError for a file that is missing, damaged, or names what such a list has no use for, and for tensors said
    to lie outside the folder.
    """
    path = folder / METADATA_NAME
    if not path.is_file():
        raise StepError(str(folder), f"no {METADATA_NAME}", remedy=REMEDY)
    try:
        with path.open("rb") as stream:
            return _listed(_ListUnpickler(stream).load())
    except _RefusedNameError as error:
        remedy = "Do not use this checkpoint: reading it with other programs may run what its maker wants."
        raise StepError(str(path), f"names {error}", limit="a list of tensors", remedy=remedy) from error
    except DAMAGE as error:
        raise StepError(str(path), f"damaged ({type(error).__name__}: {error})", remedy=REMEDY) from error


def _listed(root: Any) -> Metadata:
    """torch's objects from the records. Raises one of DAMAGE where these are not as torch writes them."""
    fields = _fields(root, "Metadata")
    entries = fields["state_dict_metadata"].items()
    tensors = {str(name): _tensor(entry) for name, entry in entries if _kind(entry) != "BytesStorageMetadata"}
    storage: dict[MetadataIndex, _StorageInfo] = {}
    for key, value in fields["storage_data"].items():
        index, place = _fields(key, "MetadataIndex"), _fields(value, "_StorageInfo")
        if index["fqn"] not in tensors:
            continue
        file, start, length = place["relative_path"], place["offset"], place["length"]
        if Path(file).name != file:
            raise ValueError(f"{index['fqn']} lies in {file}, which is no file of this folder")
        offset = index.get("offset")
        at = MetadataIndex(index["fqn"], None if offset is None else _size(offset))
        start, length = _size((start, length))
        storage[at] = _StorageInfo(file, start, length, place.get("transform_descriptors"))
    return Metadata(state_dict_metadata=dict(tensors), storage_data=storage, version=fields.get("version"))


def _kind(value: Any) -> str:
    return type(value).__name__ if isinstance(value, _Record) else ""


def _fields(value: Any, kind: str) -> Mapping[str, Any]:
    if _kind(value) != kind or not isinstance(value.state, dict):
        raise ValueError(f"no {kind}")
    return value.state


def _size(value: Any) -> torch.Size:
    if not isinstance(value, tuple) or not all(type(number) is int and number >= 0 for number in value):
        raise ValueError(f"no size: {value!r}")
    return torch.Size(value)


def _tensor(entry: Any) -> TensorStorageMetadata:
    fields = _fields(entry, "TensorStorageMetadata")
    # TensorProperties has a state of its own: a tuple that begins with the dtype.
    dtype = fields["properties"].state[0]
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype: {dtype!r}")
    chunks = [_fields(chunk, "ChunkStorageMetadata") for chunk in fields["chunks"]]
    return TensorStorageMetadata(
        TensorProperties(dtype=dtype),
        _size(fields["size"]),
        [ChunkStorageMetadata(_size(chunk["offsets"]), _size(chunk["sizes"])) for chunk in chunks],
    )


class TensorReader(FileSystemReader):
    """torch's reader of a checkpoint folder, whose list is read by `read_tensor_list` and has tensors alone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tensors = read_tensor_list(folder)

    # Without the argument by which torch would ask for the list of one process in its place.
    def read_metadata(self) -> Metadata:
        return self.tensors


def check_tensor_files(folder: Path, tensors: Metadata) -> None:
    """Every file of a list must be there, as long as the list says. Raises StepError."""
    ends: dict[str, int] = {}
    for place in tensors.storage_data.values():
        ends[place.relative_path] = max(ends.get(place.relative_path, 0), place.offset + place.length)
    for name, end in sorted(ends.items()):
        path = folder / name
        if not path.is_file():
            raise StepError(str(path), "missing", limit=f"the {len(ends)} files of {METADATA_NAME}", remedy=REMEDY)
        if (size := path.stat().st_size) < end:
            raise StepError(str(path), f"cut short: {size} bytes", limit=f"{end} by {METADATA_NAME}", remedy=REMEDY)


def check_chunks(folder: Path, tensors: Metadata, names: Iterable[str]) -> None:
    """The chunks of each of these tensors must hold as many numbers as its shape. Raises StepError."""
    for name in names:
        listed = tensors.state_dict_metadata[name]
        assert isinstance(listed, TensorStorageMetadata)
        held, needed = sum(math.prod(chunk.sizes) for chunk in listed.chunks), math.prod(listed.size)
        if held != needed:
            value, limit = f"{name}: its parts hold {held} numbers", f"{needed} by its shape {list(listed.size)}"
            raise StepError(str(folder), value, limit=limit, remedy="Give all files of the checkpoint, each once.")
