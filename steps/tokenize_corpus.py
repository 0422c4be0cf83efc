"""TokenizeCorpus: the prepared documents become token blocks of one length.

    python -m steps.tokenize_corpus --corpus DIR --tokenizer DIR --output DIR [--block_tokens=2048]

Reads    corpus     PrepareCorpus' output: train and validation; source_train and source_validation where it has them
         tokenizer  TrainTokenizer's output; use_base_tokenizer takes the base model's own of it
Writes   train/ validation/ [source_train/ source_validation/]
         part-*.tokens.npy, part-*.starts.npz, part-*.json (steps/text/packing.py)

gigatoken encodes where it gives the ids of tokenizers, else tokenizers does (steps/text/fast_encoding.py).
Several instances share the shards: instance i of n takes shards i, i + n, ... and seals its own parts.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.contract import Folder, StepError, StepFolders, report, report_progress, run_step
from steps.text.bbpe import load_fast_tokenizer, tokenizer_digest
from steps.text.corpus import read_summary
from steps.text.document_marks import document_marks
from steps.text.fast_encoding import CorpusEncoder, IdsDifferError
from steps.text.packing import PartSummary, Vocabulary, pack_part

FOLDERS = [Folder("corpus"), Folder("tokenizer")]
SPLITS = ("train", "validation", "source_train", "source_validation")


def tokenize_corpus(config: TokenizeCorpusConfig, folders: StepFolders) -> dict[str, float | int]:
    """Writes this instance's parts; returns their totals."""
    tokenizer_folder = folders["tokenizer"] / ("base_tokenizer" if config.use_base_tokenizer else "tokenizer")
    encoder = CorpusEncoder(load_fast_tokenizer(tokenizer_folder))
    vocabulary = vocabulary_of(tokenizer_folder)
    try:
        parts = write_parts(config, folders, encoder, vocabulary)
    except IdsDifferError as error:
        encoder.turn_off(str(error))
        parts = write_parts(config, folders, encoder, vocabulary)
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


def write_parts(
    config: TokenizeCorpusConfig, folders: StepFolders, encoder: CorpusEncoder, vocabulary: Vocabulary
) -> dict[str, list[PartSummary]]:
    """This instance's parts by split; writes over those that are there. Raises IdsDifferError."""
    splits = read_summary(folders["corpus"]).splits
    own = {
        split: splits[split].shards[folders.instance_index :: folders.instance_count]
        for split in SPLITS
        if split in splits
    }
    shards = [(split, shard) for split in own for shard in own[split]]
    parts: dict[str, list[PartSummary]] = {split: [] for split in own}

    def write(of_split: tuple[str, str]) -> PartSummary:
        split, shard = of_split
        encoded = encoder.encode_shard(folders["corpus"] / shard)
        parts_of_split = len(splits[split].shards)
        return pack_part(
            folders.output / split, Path(shard).stem, encoded, config.block_tokens, vocabulary, parts=parts_of_split
        )

    report_progress(0, len(shards), "shards")
    with ThreadPoolExecutor(encoder.threads) as threads:
        written = zip(shards, threads.map(write, shards), strict=True)
        for done, ((split, shard), summary) in enumerate(written, start=1):
            parts[split].append(summary)
            report(part=f"{split}/{Path(shard).stem}", tokens=summary.tokens)
            report_progress(done, len(shards), "shards")
    return parts


def vocabulary_of(tokenizer_folder: Path) -> Vocabulary:
    """What packing needs of a tokenizer folder. Raises StepError."""
    tokenizer = load_fast_tokenizer(tokenizer_folder)
    marks = document_marks(tokenizer_folder, tokenizer)
    return Vocabulary(
        bos_token_id=marks.begin,
        eos_token_id=marks.end,
        pad_token_id=marks.pad,
        size=tokenizer.get_vocab_size(with_added_tokens=True),
        tokenizer_sha256=tokenizer_digest(tokenizer_folder),
    )


def check_fills_a_block(train_tokens: int, block_tokens: int) -> None:
    """Raises StepError for a corpus so small that a block would be mostly padding."""
    if train_tokens < block_tokens:
        raise StepError(
            "corpus",
            f"{train_tokens:,} tokens in train",
            limit=f"at least {block_tokens:,}, one block",
            remedy="Give more text or lower tokenize_corpus.block_tokens.",
        )


if __name__ == "__main__":
    sys.exit(run_step(tokenize_corpus, TokenizeCorpusConfig, FOLDERS, shares_work=True))
