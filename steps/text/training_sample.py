"""The documents that a tokenizer is trained on: all of a split or, beyond a budget, a sample of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from steps.schemas.fertility import TrainingText
from steps.text.corpus import hash_share, iterate_split, read_summary, text_sha256


class TrainingSample:
    """Documents of a split of a prepared corpus, in its order, read anew at each call.

    Beyond `max_bytes` of UTF-8 each document is taken or not by a hash of the seed and its own digest, so that a
    document's fate depends on no other, and the sample has about `max_bytes`.
    """

    def __init__(self, corpus: Path, split: str, max_bytes: int, seed: int) -> None:
        self._corpus, self._split, self._seed = corpus, split, seed
        summary = read_summary(corpus).splits.get(split)
        self._bytes = summary.bytes if summary else 0
        self._documents = summary.documents if summary else 0
        self._share = max_bytes / self._bytes if self._bytes else 1.0

    def __call__(self) -> Iterator[str]:
        if not self._documents:
            return
        for text in iterate_split(self._corpus, self._split):
            if self._share >= 1 or self._place(text) < self._share:
                yield text

    def summary(self) -> TrainingText:
        """Documents and bytes of the sample; reads the split where it is not all of it."""
        if self._share >= 1:
            return TrainingText(documents=self._documents, bytes=self._bytes, share=1.0)
        documents = size = 0
        for text in self():
            documents += 1
            size += len(text.encode())
        return TrainingText(documents=documents, bytes=size, share=size / self._bytes)

    def _place(self, text: str) -> float:
        return hash_share(hashlib.sha256(f"{self._seed} {text_sha256(text)}".encode()).hexdigest())
