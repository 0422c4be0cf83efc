"""Token blocks of one length: documents packed one after another, with the places where they start.

A document is BOS, its tokens, EOS. One that does not fit into a block is cut and goes on in the next, where positions
begin at 0 again. The rest of a part's last block is padding.

On disk a part is three files: tokens.npy uint32 [blocks, block_tokens]; starts.npz, in which the documents of block b
start at starts[offsets[b]:offsets[b + 1]] (the first of them at 0); and a .json with the totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy
from pydantic import BaseModel, ConfigDict

from steps.contract import StepError, write_json

# Labels of this value are left out of the loss, by the convention of torch's cross entropy.
IGNORED_LABEL = -100


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


class _Blocks:
    """Blocks as they fill up; starts: of each full one the places where documents start in it."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._blocks: list[numpy.ndarray] = []
        self.starts: list[list[int]] = []
        self._block: list[int] = []
        self._block_starts: list[int] = []

    def add(self, document: list[int]) -> int:
        """Packs a document behind those before it; returns its number of tokens."""
        rest = document
        while rest:
            self._block_starts.append(len(self._block))
            room = self._block_tokens - len(self._block)
            self._block.extend(rest[:room])
            rest = rest[room:]
            if len(self._block) == self._block_tokens:
                self._blocks.append(numpy.array(self._block, dtype=numpy.uint32))
                self.starts.append(self._block_starts)
                self._block, self._block_starts = [], []
        return len(document)

    def pad(self, pad_token_id: int) -> None:
        """Fills the last block: padding is a document of its own, whose labels the reader leaves out."""
        if self._block:
            self.add([pad_token_id] * (self._block_tokens - len(self._block)))

    def table(self) -> numpy.ndarray:
        """The full blocks, uint32 [blocks, block_tokens]."""
        if not self._blocks:
            return numpy.zeros((0, self._block_tokens), dtype=numpy.uint32)
        return numpy.stack(self._blocks)


def write_part(
    folder: Path,
    name: str,
    encoded: Iterable[tuple[Sequence[int], int]],
    block_tokens: int,
    vocabulary: Vocabulary,
    *,
    parts: int = 1,
) -> PartSummary:
    """Packs (token ids without special ones, UTF-8 bytes) of documents into one part and writes it.

    name: part-00000 and so on. parts: how many parts the split has, whoever writes the others.
    """
    packed = _Blocks(block_tokens)
    documents = size = tokens = 0
    for ids, document_bytes in encoded:
        documents += 1
        size += document_bytes
        tokens += packed.add([vocabulary.bos_token_id, *ids, vocabulary.eos_token_id])
    packed.pad(vocabulary.pad_token_id)
    _write_arrays(folder, name, packed.table(), packed.starts)
    summary = PartSummary(
        blocks=len(packed.starts),
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


def _write_arrays(folder: Path, name: str, table: numpy.ndarray, starts: list[list[int]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    numpy.save(folder / f"{name}.tokens.npy", table, allow_pickle=False)
    offsets = numpy.concatenate([[0], numpy.cumsum([len(row) for row in starts])]).astype(numpy.int64)
    flat = numpy.array([start for row in starts for start in row], dtype=numpy.uint32)
    numpy.savez(folder / f"{name}.starts.npz", offsets=offsets, starts=flat)


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
