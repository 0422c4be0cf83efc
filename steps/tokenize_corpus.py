"""TokenizeCorpus: the prepared documents become token blocks of one length.

    python -m steps.tokenize_corpus --corpus DIR --tokenizer DIR --output DIR [--block_tokens=2048]

Reads    corpus     PrepareCorpus' output: train and validation; source_train and source_validation where it has them
         tokenizer  TrainTokenizer's output
Writes   train/ validation/ [source_train/ source_validation/]
         part-*.tokens.npy, part-*.starts.npz, part-*.json (steps/text/packing.py)

Several instances share the shards: instance i of n takes shards i, i + n, ... and seals its own parts.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.contract import Folder, StepError, StepFolders, report, report_progress, run_step
from steps.text.bbpe import encode_as_text, load_fast_tokenizer, tokenizer_digest
from steps.text.chat_template import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN
from steps.text.corpus import iterate_shard, read_summary
from steps.text.packing import PartSummary, Vocabulary, write_part

FOLDERS = [Folder("corpus"), Folder("tokenizer")]
SPLITS = ("train", "validation", "source_train", "source_validation")
BATCH_DOCUMENTS = 1_000


def tokenize_corpus(config: TokenizeCorpusConfig, folders: StepFolders) -> dict[str, float | int]:
    """Writes this instance's parts; returns their totals."""
    tokenizer_folder = folders["tokenizer"] / "tokenizer"
    tokenizer = load_fast_tokenizer(tokenizer_folder)
    vocabulary = Vocabulary(
        bos_token_id=token_id(tokenizer, BOS_TOKEN),
        eos_token_id=token_id(tokenizer, EOS_TOKEN),
        pad_token_id=token_id(tokenizer, PAD_TOKEN),
        size=tokenizer.get_vocab_size(with_added_tokens=True),
        tokenizer_sha256=tokenizer_digest(tokenizer_folder),
    )
    splits = read_summary(folders["corpus"]).splits
    own = {
        split: splits[split].shards[folders.instance_index :: folders.instance_count]
        for split in SPLITS
        if split in splits
    }
    shards = sum(len(names) for names in own.values())
    report_progress(0, shards, "shards")
    parts: dict[str, list[PartSummary]] = {split: [] for split in own}
    for split in own:
        for shard in own[split]:
            encoded = encode_shard(folders["corpus"] / shard, tokenizer)
            name = Path(shard).stem
            parts_of_split = len(splits[split].shards)
            summary = write_part(
                folders.output / split, name, encoded, config.block_tokens, vocabulary, parts=parts_of_split
            )
            parts[split].append(summary)
            report(part=f"{split}/{name}", tokens=summary.tokens)
            report_progress(sum(len(done) for done in parts.values()), shards, "shards")
    blocks = sum(part.blocks for part in parts["train"])
    tokens = sum(part.tokens for part in parts["train"])
    if folders.instance_count == 1:
        # One of several instances sees its own parts alone.
        check_fills_a_block(tokens, config.block_tokens)
    return {
        "train_blocks": blocks,
        "train_tokens": tokens,
        "validation_blocks": sum(part.blocks for part in parts["validation"]),
        "useful_share": tokens / (blocks * config.block_tokens) if blocks else 0.0,
        **{f"{split}_blocks": sum(part.blocks for part in parts[split]) for split in SPLITS[2:] if split in parts},
    }


def check_fills_a_block(train_tokens: int, block_tokens: int) -> None:
    """Raises StepError for a corpus so small that a block would be mostly padding."""
    if train_tokens < block_tokens:
        raise StepError(
            "corpus",
            f"{train_tokens:,} tokens in train",
            limit=f"at least {block_tokens:,}, one block",
            remedy="Give more text or lower tokenize_corpus.block_tokens.",
        )


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token. Raises StepError where the tokenizer lacks it."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise StepError("tokenizer", f"no token {token}", remedy="Run TrainTokenizer again.")
    return found


def encode_shard(shard: Path, tokenizer: Tokenizer) -> Iterator[tuple[list[int], int]]:
    """(token ids without special ones, UTF-8 bytes) of each document of a shard; spelt special tokens are text."""
    remaining = iterate_shard(shard)
    while documents := list(itertools.islice(remaining, BATCH_DOCUMENTS)):
        encodings = encode_as_text(tokenizer, documents)
        for document, encoding in zip(documents, encodings, strict=True):
            yield encoding.ids, len(document.encode())


if __name__ == "__main__":
    sys.exit(run_step(tokenize_corpus, TokenizeCorpusConfig, FOLDERS, shares_work=True))
