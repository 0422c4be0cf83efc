"""The tensors of a checkpoint folder: torch.distributed.checkpoint's own form, or safetensors in any number of files.

Where our trainings left the marker of a complete set in it, the set must match its marker.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from torch.distributed.checkpoint import FileSystemReader, HuggingFaceStorageReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from steps.contract import StepError, mendable_error
from steps.contract.model_folder import PICKLED, tensors_of, weight_files
from steps.modeling.checkpoint_metadata import METADATA_NAME, REMEDY, TensorReader, check_chunks, check_tensor_files
from steps.modeling.checkpoint_settings import MARKER_NAME
from steps.modeling.checkpoints import find_fault
from steps.modeling.tensor_names import Match


class _NamedFiles(FileSystem):
    """A folder that has these files alone."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = files

    def ls(self, path: object) -> list[str]:
        return [str(file) for file in self.files]


class ShardReader(HuggingFaceStorageReader):
    """torch's reader of safetensors, parts of tensors by its own HuggingFaceStorageWriter included; a folder's index,
    where there is one, says which files count."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        files = weight_files(folder)
        for file in files:
            # Tells of a file that is cut short, as safetensors does not.
            tensors_of(file)
        self.fs = _NamedFiles(files)
        try:
            self.tensors = super().read_metadata()
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise StepError(str(folder), f"damaged ({type(error).__name__}: {error})", remedy=REMEDY) from error

    def read_metadata(self) -> Metadata:
        return self.tensors


Reader = TensorReader | ShardReader


def open_checkpoint(folder: Path) -> Reader:
    """The folder's reader, its list of tensors read, nothing else. Raises StepError for a folder that holds none of the
    forms, or holds it in part."""
    if (folder / MARKER_NAME).is_file() and (fault := find_fault(folder)) is not None:
        raise StepError(str(folder), f"incomplete: {fault}", limit=MARKER_NAME, remedy=REMEDY)
    if (folder / METADATA_NAME).is_file():
        reader = TensorReader(folder)
        check_tensor_files(folder, reader.tensors)
        return reader
    if any(folder.glob("*.safetensors")):
        return ShardReader(folder)
    value, limit = "no checkpoint", f"{METADATA_NAME} and its files, or *.safetensors"
    remedy = "Name the folder that holds the files."
    below = sorted(path.parent.name for path in folder.glob(f"*/{METADATA_NAME}"))
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if below:
        remedy = f"Name one of the {len(below)} in it, such as {below[-1]}."
    elif list(folder.glob("*.distcp")):
        value = f"no {METADATA_NAME}, the list of its tensors"
        remedy = REMEDY
    elif pickled:
        value = f"{pickled[0]}, a pickle, which may run code when it is read"
        remedy = "Have its maker save it as safetensors."
    raise StepError(str(folder), value, limit=limit, remedy=remedy)


def tensor_shapes(reader: Reader) -> dict[str, torch.Size]:
    """Shapes by name of all tensors of a checkpoint."""
    entries = reader.tensors.state_dict_metadata.items()
    return {name: entry.size for name, entry in entries if isinstance(entry, TensorStorageMetadata)}


def read_model_tensors(
    reader: FileSystemReader, tensors: Metadata, match: Match, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """The model's tensors by the names of match.names, cast to dtype, on the CPU; of tied ones the first name alone.

    Raises StepError for parts that do not make a whole, for values that are no finite numbers of that dtype, for whole
    numbers in place of weights (a quantized model), for tied tensors that differ, and for files that cannot be read.
    """
    folder, model = Path(reader.path), match.names
    check_chunks(folder, tensors, match.found.values())
    values: dict[str, torch.Tensor] = {}
    for name, there in match.found.items():
        stored = _dtype(tensors, there)
        if not stored.is_floating_point and (name,) not in model.optional:
            limit = "weights in floating point"
            raise StepError(str(folder), f"{there} in {stored}", limit=limit, remedy="Give an unquantized model.")
        # What no part of a tensor covers stays NaN, and is found below.
        values[there] = torch.full(
            model.shapes[name], float("nan") if stored.is_floating_point else 0,
            dtype=dtype if stored.is_floating_point else stored,
        )  # fmt: skip
    _fill(reader, folder, values)
    for name, value in values.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            limit = f"finite numbers of {dtype}"
            remedy = "Take another checkpoint, or another --dtype."
            raise StepError(str(folder), f"{name} has NaN or infinity", limit=limit, remedy=remedy)
    return _untied(folder, values, match)


def _dtype(tensors: Metadata, name: str) -> torch.dtype:
    entry = tensors.state_dict_metadata[name]
    assert isinstance(entry, TensorStorageMetadata)
    return entry.properties.dtype


def _fill(reader: FileSystemReader, folder: Path, values: dict[str, torch.Tensor]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is")
            dcp.load(values, storage_reader=reader, no_dist=True)
    except CheckpointException as error:
        # It is no Exception, and hides what the reader met; of a file from elsewhere that is the file's fault.
        cause, _ = next(iter(error.failures.values()))
        fault = mendable_error(cause, folder)
        raise fault or StepError(
            str(folder), f"cannot be read ({type(cause).__name__}: {cause})", remedy=REMEDY
        ) from cause


def _untied(folder: Path, values: dict[str, torch.Tensor], match: Match) -> dict[str, torch.Tensor]:
    kept: dict[str, torch.Tensor] = {}
    for names in match.names.groups:
        there = [match.found[name] for name in names if name in match.found]
        for other in there[1:]:
            if not torch.equal(values[there[0]], values[other]):
                limit = "one matrix, as tie_word_embeddings of config.json is true"
                remedy = "Give --model a config.json with tie_word_embeddings false, if the model was trained so."
                raise StepError(str(folder), f"{other} differs from {there[0]}", limit=limit, remedy=remedy)
        if there:
            kept[names[0]] = values[there[0]]
    return kept
