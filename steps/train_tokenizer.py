"""TrainTokenizer: tokenizers of several kinds and sizes beside the base tokenizer, one of them chosen by rule.

    python -m steps.train_tokenizer --corpus DIR --base_model DIR --output DIR ['--kinds=["bbpe","extended"]']

Reads    corpus      PrepareCorpus' output: trains on train, measures on validation (and extra_heldout, source_test);
                     extended and replaced keep the base's ids on source_train
         base_model  its tokenizer.json; config.json and the headers of its weights, for what a vocabulary costs
Writes   tokenizer/  the chosen tokenizer with the chat template, for AutoTokenizer
         base_tokenizer/  the base model's own, as it came, for the ablation branch
         fertility.json  every candidate side by side, the choice and why; fertility.svg, the same drawn
         candidates/<name>/  each candidate as tokenizer/ is, for whoever wants to look at it
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer

from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import (
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
from steps.schemas.fertility import MEASURE_NAMES, FertilityCandidate, FertilityChange, FertilityReport, TextName
from steps.text.bbpe import SMALLEST_VOCABULARY, load_fast_tokenizer
from steps.text.candidates import Candidate, CandidateTraining
from steps.text.chat_template import BOS_TOKEN, CHAT_TEMPLATE, EOS_TOKEN, PAD_TOKEN
from steps.text.corpus import first_documents, read_summary
from steps.text.fertility import FertilityText, leading_measure, measure_fertility
from steps.text.fertility_plot import draw_fertility
from steps.text.freed_memory import return_freed_memory
from steps.text.tokenizer_choice import choose
from steps.text.training_sample import TrainingSample
from steps.text.vocabulary_cost import ModelSize
from steps.vocabulary_size import VOCABULARY_MULTIPLE

FOLDERS = [Folder("corpus"), Folder("base_model", sealed=False)]
# They hold seconds and bytes of memory, and tokenizers that no later step reads.
REPORTS = ("fertility.json", "fertility.svg", "candidates/")
# The texts of fertility.json and the splits that they are.
MEASURED_SPLITS: dict[TextName, str] = {"heldout": "validation", "extra": "extra_heldout", "source": "source_test"}
# AutoTokenizer takes the tokenizer's class from the last where the others name none.
BASE_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")


def train_tokenizer(config: TrainTokenizerConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Trains, measures, chooses and writes; returns the fertility of base and choice."""
    corpus, candidates_folder = folders["corpus"], folders.output / "candidates"
    present = read_summary(corpus).splits
    texts = {
        name: FertilityText(first_documents(corpus, split, config.max_measured_bytes))
        for name, split in MEASURED_SPLITS.items()
        if split in present
    }
    model_size = ModelSize.of(folders["base_model"])
    sample = TrainingSample(corpus, "train", config.max_training_bytes, config.seed)
    protected = TrainingSample(corpus, "source_train", config.max_training_bytes, config.seed)
    base = load_fast_tokenizer(folders["base_model"])
    training = CandidateTraining(config, base, sample, protected)

    measured = [measure(Candidate("base", "base", base, 0.0), texts, base, model_size)]
    report_progress(1, 1 + training.expected(), "candidates")
    for candidate in training.candidates():
        write_tokenizer_folder(candidate.tokenizer, candidates_folder / candidate.name, model_size.context_tokens)
        measured.append(measure(candidate, texts, base, model_size))
        return_freed_memory()
        report_progress(min(len(measured), training.expected()), 1 + training.expected(), "candidates")
    report_progress(1 + training.expected(), 1 + training.expected(), "candidates")
    if len(measured) == 1:
        value = "gives no candidate (" + "; ".join(f"{name}: {why}" for name, why in training.left_out.items()) + ")"
        limit = f"{SMALLEST_VOCABULARY} tokens, the bytes and the special ones, and {VOCABULARY_MULTIPLE} more"
        raise StepError(
            "training text", value, limit=limit, remedy="Give more text or lower train_tokenizer.min_frequency."
        )
    for name, why in training.left_out.items():
        warn("candidate-left-out", f"{name}: {why}")

    chosen, reason = choose(measured, config)
    fertility = describe(measured, chosen, reason, texts["heldout"], training.left_out, sample)
    write_json(folders.output / "fertility.json", fertility.model_dump(mode="json"))
    draw_fertility(fertility, folders.output / "fertility.svg")
    tell(fertility)
    shutil.copytree(candidates_folder / chosen, folders.output / "tokenizer")
    copy_base_tokenizer(folders["base_model"], folders.output / "base_tokenizer")
    return headline(fertility)


def measure(
    candidate: Candidate, texts: Mapping[TextName, FertilityText], base: Tokenizer, model_size: ModelSize
) -> FertilityCandidate:
    """One row of fertility.json."""
    # Ids can be compared with the base's where they mean the same tokens.
    beside = base if candidate.kind in ("extended", "replaced") else None
    measured = {name: measure_fertility(candidate.tokenizer, text, beside) for name, text in texts.items()}
    tokens = candidate.tokenizer.get_vocab_size(with_added_tokens=True)
    report(candidate=candidate.name, tokens_per_word=measured["heldout"].tokens_per_word)
    return FertilityCandidate(
        name=candidate.name,
        kind=candidate.kind,
        vocab_size=tokens,
        vocabulary_parameters=model_size.vocabulary_parameters(tokens),
        vocabulary_parameters_share=model_size.vocabulary_share(tokens),
        context_words=model_size.context_tokens / measured["heldout"].tokens_per_word,
        texts=measured,
        train_seconds=round(candidate.train_seconds, 3),
        peak_memory_bytes=peak_memory_bytes(),
    )


def describe(
    measured: list[FertilityCandidate],
    chosen: str,
    reason: str,
    heldout: FertilityText,
    left_out: dict[str, str],
    sample: TrainingSample,
) -> FertilityReport:
    """fertility.json."""
    of = {candidate.name: candidate.texts["heldout"].tokens_per_word for candidate in measured}
    leads, leads_why = leading_measure(heldout)
    return FertilityReport(
        leads=leads,
        leads_why=leads_why,
        candidates=measured,
        left_out=left_out,
        chosen=chosen,
        reason=reason,
        tokens_per_word=FertilityChange(base=of["base"], chosen=of[chosen]),
        training=sample.summary(),
    )


def tell(fertility: FertilityReport) -> None:
    """The table and the choice, on the terminal; a warning where the base does as well as the choice."""
    training = fertility.training
    assert training is not None
    print(
        f"trained on {training.documents:,} documents, {training.bytes:,} bytes, "
        f"{training.share:.1%} of the training text",
        flush=True,
    )
    if fertility.leads_why:
        print(f"read {MEASURE_NAMES[fertility.leads]} first: {fertility.leads_why}")
    print("\n".join(fertility.table()))
    print(f"chosen: {fertility.chosen}: {fertility.reason}", flush=True)
    change = fertility.tokens_per_word
    if change.chosen >= change.base:
        text = f"{fertility.chosen} needs {change.chosen:.2f} tokens a word, the base {change.base:.2f}"
        warn("base-tokenizer-as-good", f"{text}: a new vocabulary costs training and saves nothing")


def headline(fertility: FertilityReport) -> dict[str, float | int | str]:
    """The figures for the manifest and the log."""
    of = {candidate.name: candidate for candidate in fertility.candidates}
    base, chosen = of["base"].texts["heldout"], of[fertility.chosen].texts["heldout"]
    assert fertility.training is not None
    return {
        "tokens_per_word_base": base.tokens_per_word,
        "tokens_per_word": chosen.tokens_per_word,
        "bytes_per_token_base": base.bytes_per_token,
        "bytes_per_token": chosen.bytes_per_token,
        "vocabulary_size": of[fertility.chosen].vocab_size,
        "training_share": fertility.training.share,
        "chosen": fertility.chosen,
    }


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
