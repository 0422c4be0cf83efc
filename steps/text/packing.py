"""Token blocks of one length: documents packed one after another, with the places where they start.

A document is BOS, its tokens, EOS. One that does not fit into a block is cut and goes on in the next, where positions
begin at 0 again. The rest of a part's last block is padding.

On disk a part is three files: tokens.npy uint32 [blocks, block_tokens]; starts.npz, in which the documents of block b
start at starts[offsets[b]:offsets[b + 1]] (the first of them at 0); and a .json with the totals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy
from pydantic import BaseModel, ConfigDict

from steps.contract import StepError, write_json

# Labels of this value are left out of the loss, by the convention of torch's cross entropy.
IGNORED_LABEL = -100
NPY_HEADER_BYTES = 128


class PartSummary(BaseModel):
    """Totals of one part: bytes are UTF-8 of the source text, tokens leave padding out. parts: of the whole split."""

    model_config = ConfigDict(extra="forbid")

    blocks: int
    documents: int
    bytes: int
    tokens: int
    block_tokens: int
    pad_token_id: int
    vocab_size: int
    tokenizer_sha256: str
    parts: int


@dataclass(frozen=True)
class Vocabulary:
    """What packing needs to know of a tokenizer."""

    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    size: int
    tokenizer_sha256: str


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents one after another: the token ids of document d are ids[offsets[d]:offsets[d + 1]].

    ids: uint32 [tokens], without special tokens. offsets: int64 [documents + 1], from 0. bytes: UTF-8 of their text.
    """

    ids: numpy.ndarray
    offsets: numpy.ndarray
    bytes: int


def encoded_documents(rows: Sequence[Sequence[int]], text_bytes: int) -> EncodedDocuments:
    """Documents whose token ids come as lists."""
    offsets = numpy.zeros(len(rows) + 1, dtype=numpy.int64)
    numpy.cumsum([len(row) for row in rows], out=offsets[1:])
    ids = numpy.fromiter(itertools.chain.from_iterable(rows), dtype=numpy.uint32, count=offsets[-1])
    return EncodedDocuments(ids, offsets, text_bytes)


def write_part(
    folder: Path,
    name: str,
    encoded: Iterable[tuple[Sequence[int], int]],
    block_tokens: int,
    vocabulary: Vocabulary,
    *,
    parts: int = 1,
) -> PartSummary:
    """Packs (token ids without special ones, UTF-8 bytes) of documents into one part and writes it; see pack_part."""
    batches = (encoded_documents([ids], size) for ids, size in encoded)
    return pack_part(folder, name, batches, block_tokens, vocabulary, parts=parts)


def pack_part(
    folder: Path,
    name: str,
    batches: Iterable[EncodedDocuments],
    block_tokens: int,
    vocabulary: Vocabulary,
    *,
    parts: int = 1,
) -> PartSummary:
    """Packs documents into one part and writes it as they come: memory holds one batch and the documents' starts.

    name: part-00000 and so on. parts: how many parts the split has, whoever writes the others. The step's seal forces
    what is written here to the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    documents = size = tokens = 0
    starts = [numpy.zeros(0, dtype=numpy.int64)]
    with (folder / f"{name}.tokens.npy").open("wb") as stream:
        _write_header(stream, 0, block_tokens)
        for batch in batches:
            row, first_tokens = _with_boundaries(batch, vocabulary)
            stream.write(row.data)
            starts.append(tokens + first_tokens)
            documents += len(first_tokens)
            size += batch.bytes
            tokens += len(row)
        if padding := -tokens % block_tokens:
            # Padding is a document of its own, whose labels the reader leaves out.
            stream.write(numpy.full(padding, vocabulary.pad_token_id, dtype="<u4").data)
            starts.append(numpy.array([tokens]))
        blocks = (tokens + padding) // block_tokens
        stream.seek(0)
        _write_header(stream, blocks, block_tokens)
    _write_starts(folder / f"{name}.starts.npz", numpy.concatenate(starts), blocks, block_tokens)
    summary = PartSummary(
        blocks=blocks,
        documents=documents,
        bytes=size,
        tokens=tokens,
        block_tokens=block_tokens,
        pad_token_id=vocabulary.pad_token_id,
        vocab_size=vocabulary.size,
        tokenizer_sha256=vocabulary.tokenizer_sha256,
        parts=parts,
    )
    write_json(folder / f"{name}.json", summary.model_dump(mode="json"))
    return summary


def _write_header(stream: BinaryIO, blocks: int, block_tokens: int) -> None:
    """The header of a .npy file. NumPy leaves room in it for any number of rows, so that it can be written again."""
    before = stream.tell()
    header = {"descr": "<u4", "fortran_order": False, "shape": (blocks, block_tokens)}
    numpy.lib.format.write_array_header_1_0(stream, header)
    assert stream.tell() - before == NPY_HEADER_BYTES


def _with_boundaries(batch: EncodedDocuments, vocabulary: Vocabulary) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(tokens with BOS before each document and EOS behind it, the place of each BOS among them)."""
    special = 2 * numpy.arange(len(batch.offsets) - 1)
    first, last = batch.offsets[:-1] + special, batch.offsets[1:] + special + 1
    row = numpy.empty(len(batch.ids) + 2 * len(special), dtype="<u4")
    is_text = numpy.ones(len(row), dtype=bool)
    is_text[first] = is_text[last] = False
    row[first], row[last], row[is_text] = vocabulary.bos_token_id, vocabulary.eos_token_id, batch.ids
    return row, first


def _write_starts(path: Path, documents: numpy.ndarray, blocks: int, block_tokens: int) -> None:
    """documents: the place of each document's first token in the part. One that goes on in a block starts there too."""
    places = numpy.concatenate([documents, numpy.arange(blocks) * block_tokens])
    places.sort(kind="stable")
    places = places[numpy.diff(places, prepend=-1) > 0]
    offsets = numpy.zeros(blocks + 1, dtype=numpy.int64)
    numpy.cumsum(numpy.bincount(places // block_tokens, minlength=blocks), out=offsets[1:])
    numpy.savez(path, offsets=offsets, starts=(places % block_tokens).astype(numpy.uint32))


class PackedBlocks:
    """All parts of a split, memory-mapped: any block is read without those before it.

    Raises StepError where a part is missing or too many, or parts disagree on tokenizer or block length.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("part-*.json"))
        if not paths:
            raise StepError(str(folder), "no token blocks", remedy="Run TokenizeCorpus again.")
        self.parts = [PartSummary.model_validate_json(path.read_bytes()) for path in paths]
        if len({(part.tokenizer_sha256, part.block_tokens, part.pad_token_id) for part in self.parts}) > 1:
            raise StepError(str(folder), "parts of different tokenizers", remedy="Run TokenizeCorpus again.")
        names = [path.stem for path in paths]
        wanted = [f"part-{part:05d}" for part in range(self.parts[0].parts)]
        if names != wanted or any(part.parts != len(wanted) for part in self.parts):
            odd = sorted({*names} ^ {*wanted}) or names
            raise StepError(
                str(folder), f"parts {', '.join(odd[:3])} missing or not of this split", limit=f"{len(wanted)} parts",
                remedy="Run TokenizeCorpus again.",
            )  # fmt: skip
        self._tokens = [numpy.load(folder / f"{name}.tokens.npy", mmap_mode="r", allow_pickle=False) for name in names]
        self._starts = []
        for name in names:
            with numpy.load(folder / f"{name}.starts.npz", allow_pickle=False) as arrays:
                self._starts.append((arrays["offsets"], arrays["starts"]))
        self._ends = numpy.cumsum([part.blocks for part in self.parts])
        self.block_tokens = self.parts[0].block_tokens
        self.pad_token_id = self.parts[0].pad_token_id
        self.vocab_size = self.parts[0].vocab_size
        self.tokenizer_sha256 = self.parts[0].tokenizer_sha256
        self.bytes = sum(part.bytes for part in self.parts)
        self.tokens = sum(part.tokens for part in self.parts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def batch(self, indices: Sequence[int]) -> dict[str, numpy.ndarray]:
        """int64 arrays [len(indices), block_tokens]: input_ids, position_ids, labels.

        position_ids begin at 0 with each document. labels are the input ids, IGNORED_LABEL for each document's first
        token (it has no context of its own) and for padding; the model shifts them.
        """
        input_ids = numpy.empty((len(indices), self.block_tokens), dtype=numpy.int64)
        position_ids = numpy.empty_like(input_ids)
        for row, index in enumerate(indices):
            part = int(numpy.searchsorted(self._ends, index, side="right"))
            place = index - (int(self._ends[part - 1]) if part else 0)
            input_ids[row] = self._tokens[part][place]
            offsets, starts = self._starts[part]
            position_ids[row] = positions(starts[offsets[place] : offsets[place + 1]], self.block_tokens)
        labels = numpy.where((position_ids == 0) | (input_ids == self.pad_token_id), IGNORED_LABEL, input_ids)
        return {"input_ids": input_ids, "position_ids": position_ids, "labels": labels}


def positions(starts: numpy.ndarray, block_tokens: int) -> numpy.ndarray:
    """Position of each token in its document, int64 [block_tokens], from the places where documents start."""
    start_of = numpy.zeros(block_tokens, dtype=numpy.int64)
    start_of[starts] = starts
    return numpy.arange(block_tokens) - numpy.maximum.accumulate(start_of)
