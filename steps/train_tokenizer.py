"""TrainTokenizer: BBPE tokenizers of several sizes beside the base tokenizer, one of them chosen by rule.

    python -m steps.train_tokenizer --corpus DIR --base_model DIR --output DIR [--vocabulary_sizes=[2048,4096]]

Reads    corpus      PrepareCorpus' output: trains on train, measures on validation (and extra_heldout, source_test)
         base_model  its tokenizer.json
Writes   tokenizer/  the chosen tokenizer with the chat template, for AutoTokenizer
         base_tokenizer/  the base model's own, as it came, for the ablation branch
         fertility.json  every candidate side by side, the choice and why
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import (
    ConfigError,
    Folder,
    StepError,
    StepFolders,
    peak_memory_bytes,
    report,
    report_progress,
    run_step,
    warn,
    write_json,
)
from steps.contract.model_folder import read_model_settings
from steps.schemas.fertility import FertilityCandidate, FertilityChange, FertilityReport, TextFertility
from steps.text.bbpe import load_fast_tokenizer, shrink, train_bbpe
from steps.text.chat_template import BOS_TOKEN, CHAT_TEMPLATE, EOS_TOKEN, PAD_TOKEN
from steps.text.corpus import hash_share, iterate_split, read_split, read_summary, text_sha256
from steps.text.fertility import measure_fertility

FOLDERS = [Folder("corpus"), Folder("base_model", sealed=False)]
# It holds seconds and bytes of memory.
REPORTS = ("fertility.json",)
# The texts of fertility.json and the splits that they are.
MEASURED_SPLITS = {"heldout": "validation", "extra": "extra_heldout", "source": "source_test"}
# AutoTokenizer takes the tokenizer's class from the last where the others name none.
BASE_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")


def train_tokenizer(config: TrainTokenizerConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Trains, measures, chooses and writes; returns the fertility of base and choice."""
    corpus = folders["corpus"]
    present = read_summary(corpus).splits
    texts = {name: read_split(corpus, split) for name, split in MEASURED_SPLITS.items() if split in present}

    base = load_fast_tokenizer(folders["base_model"])
    # What is measured: the base tokenizer and every size.
    measured = 1 + len(set(config.vocabulary_sizes))
    report_progress(0, measured, "candidates")
    candidates = [measure("base", "base", base, texts, train_seconds=0.0)]
    tokenizers, train_seconds = train_candidates(config, corpus)
    for name, tokenizer in tokenizers.items():
        report_progress(len(candidates), measured, "candidates")
        candidates.append(measure(name, "bbpe", tokenizer, texts, train_seconds))
    report_progress(measured, measured, "candidates")

    chosen, reason = choose(candidates, config)
    by_name = {candidate.name: candidate for candidate in candidates}
    change = FertilityChange(
        base=by_name["base"].texts["heldout"].tokens_per_word, chosen=by_name[chosen].texts["heldout"].tokens_per_word
    )
    fertility = FertilityReport(candidates=candidates, chosen=chosen, reason=reason, tokens_per_word=change)
    write_json(folders.output / "fertility.json", fertility.model_dump(mode="json"))
    write_tokenizer_folder(tokenizers[chosen], folders.output / "tokenizer", context_tokens(folders["base_model"]))
    copy_base_tokenizer(folders["base_model"], folders.output / "base_tokenizer")
    return {
        "tokens_per_word_base": change.base,
        "tokens_per_word": change.chosen,
        "vocabulary_size": by_name[chosen].vocab_size,
        "chosen": chosen,
    }


def train_candidates(config: TrainTokenizerConfig, corpus: Path) -> tuple[dict[str, Tokenizer], float]:
    """Tokenizers by name, and the seconds of the one training that all of them come from.

    BPE makes its merges one after another, so the largest vocabulary contains the smaller ones.
    """
    started = time.monotonic()
    largest = max(config.vocabulary_sizes)
    trained = train_bbpe(lambda: training_texts(config, corpus), largest, config.min_frequency)
    seconds = time.monotonic() - started
    tokenizers: dict[str, Tokenizer] = {}
    refused: dict[str, StepError] = {}
    for size in sorted(set(config.vocabulary_sizes)):
        try:
            tokenizers[f"bbpe-{size}"] = shrink(trained, size)
        except StepError as error:
            refused[f"bbpe-{size}"] = error
    if not tokenizers:
        raise next(iter(refused.values()))
    for name, refusal in refused.items():
        warn("candidate-left-out", f"{name}: {refusal}")
    return tokenizers, seconds


def training_texts(config: TrainTokenizerConfig, corpus: Path) -> Iterator[str]:
    """The training documents, beyond the budget of bytes a sample of them by their digests."""
    share = config.max_training_bytes / read_summary(corpus).splits["train"].bytes
    for text in iterate_split(corpus, "train"):
        # Reversed: the first digits of the digest decided the split already.
        if share >= 1 or hash_share(text_sha256(text)[::-1]) < share:
            yield text


def measure(
    name: str, kind, tokenizer: Tokenizer, texts: dict[str, list[str]], train_seconds: float
) -> FertilityCandidate:
    """One row of fertility.json."""
    measured: dict[str, TextFertility] = {
        text_name: measure_fertility(tokenizer, documents) for text_name, documents in texts.items()
    }
    report(candidate=name, tokens_per_word=measured["heldout"].tokens_per_word)
    return FertilityCandidate(
        name=name,
        kind=kind,
        vocab_size=tokenizer.get_vocab_size(with_added_tokens=True),
        texts=measured,
        train_seconds=round(train_seconds, 3),
        peak_memory_bytes=peak_memory_bytes(),
    )


def choose(candidates: list[FertilityCandidate], config: TrainTokenizerConfig) -> tuple[str, str]:
    """(name, reason). Raises ConfigError for an unknown name, StepError where no candidate gives its text back."""
    trained = [candidate for candidate in candidates if candidate.kind != "base"]
    if config.chosen:
        if config.chosen not in [candidate.name for candidate in trained]:
            limit = ", ".join(candidate.name for candidate in trained)
            raise ConfigError("train_tokenizer.chosen", config.chosen, limit=limit, remedy="Name one of these.")
        return config.chosen, "named in the configuration"
    exact = [candidate for candidate in trained if not any(text.round_trip_errors for text in candidate.texts.values())]
    if not exact:
        raise StepError(
            "corpus", "no candidate decodes to the text it was given", remedy="Look for unusual characters."
        )
    fertility = {candidate.name: candidate.texts["heldout"].tokens_per_word for candidate in exact}
    lowest = min(fertility.values())
    within = [name for name, value in fertility.items() if value <= lowest * (1 + config.fertility_tolerance)]
    sizes = {candidate.name: candidate.vocab_size for candidate in exact}
    chosen = min(within, key=lambda name: sizes[name])
    reason = (
        f"smallest vocabulary whose tokens per word ({fertility[chosen]:.3f}) lie within "
        f"{config.fertility_tolerance:.0%} of the lowest ({lowest:.3f}); all documents decode exactly"
    )
    return chosen, reason


def context_tokens(base_model: Path) -> int:
    """The base model's context, which the new tokenizer states as its own."""
    settings = read_model_settings(base_model)
    return int(settings.get("text_config", settings).get("max_position_embeddings", 2_048))


def write_tokenizer_folder(tokenizer: Tokenizer, folder: Path, max_tokens: int) -> None:
    """A folder that AutoTokenizer loads: tokenizer.json, tokenizer_config.json, chat template."""
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS_TOKEN,
        eos_token=EOS_TOKEN,
        pad_token=PAD_TOKEN,
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def copy_base_tokenizer(base_model: Path, folder: Path) -> None:
    """The base model's tokenizer files, byte for byte."""
    folder.mkdir(parents=True)
    for name in BASE_TOKENIZER_FILES:
        if (base_model / name).is_file():
            shutil.copyfile(base_model / name, folder / name)


if __name__ == "__main__":
    sys.exit(run_step(train_tokenizer, TrainTokenizerConfig, FOLDERS, reports=REPORTS))
