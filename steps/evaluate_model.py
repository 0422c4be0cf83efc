"""Evaluate: bits per byte of base, pretrained, candidate and champion on held-out documents, and samples of each.

    python -m steps.evaluate_model --base_model DIR --pretrained DIR --model DIR --champion DIR --corpus DIR \\
        --output DIR [--context_bytes=4096]

Reads    base_model  the model that everything started from
         pretrained  ContinuedPretraining's output
         model       FineTune's output: the candidate
         champion    the newest approved version, at equal bytes alone (read only where champion_present is true)
         corpus      PrepareCorpus' output: test, and extra_heldout and source_test where it has them
Writes   evaluation.json  the numbers that the gate reads
         samples.jsonl    the first held-out prompts, continued greedily by base, pretrained and candidate

What bits per byte is stands in steps/modeling/bits_per_byte.py. Models are loaded one at a time, in float32.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import Folder, StepFolders, report, run_step, write_atomically, write_json
from steps.modeling.bits_per_byte import DocumentScores, score_documents
from steps.modeling.bootstrap import paired_bootstrap
from steps.modeling.generation import continue_greedily, stop_token_ids
from steps.modeling.loading import choose_device, encode_plain, load_model, load_tokenizer
from steps.modeling.scoring_progress import ScoringProgress
from steps.schemas.evaluation import BitsPerByte, Champion, Evaluation, Retention, Sample
from steps.text.corpus import read_split, read_summary, text_sha256

FOLDERS = [
    Folder("base_model", sealed=False),
    Folder("pretrained"),
    Folder("model"),
    Folder("champion", sealed=False),
    Folder("corpus"),
]
# What is measured: the name of a score, the corpus split, the kind of context.
MEASURES = {
    "equal_bytes": ("test", "context_bytes"),
    "equal_tokens": ("test", "context_tokens"),
    "extra_heldout": ("extra_heldout", "context_bytes"),
    "retention": ("source_test", "context_bytes"),
}
Scores = Mapping[str, DocumentScores]


@dataclass(frozen=True)
class Measured:
    """Scores of one model by name (see MEASURES), and its continuations of the prompts."""

    scores: Scores
    continuations: list[str]


def evaluate_model(config: EvaluateModelConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Scores every model on the same documents, writes the comparison, returns its headline figures."""
    transformers_logging.disable_progress_bar()
    texts = read_texts(folders["corpus"], config.max_documents)
    prompts = [first_words(text, config.sample_prompt_words) for text in texts["test"][: config.samples]]

    measures = [measure for measure, (split, _) in MEASURES.items() if split in texts]
    without_retention = [measure for measure in measures if measure != "retention"]
    of_champion = ["equal_bytes"] if config.champion_present else []
    every = [*measures, *without_retention, *measures, *of_champion]
    progress = ScoringProgress(sum(len(texts[MEASURES[measure][0]]) for measure in every))
    base = measure_model("base", folders["base_model"], texts, measures, prompts, config, progress)
    pretrained = measure_model("pretrained", folders["pretrained"], texts, without_retention, prompts, config, progress)
    candidate = measure_model("candidate", folders["model"], texts, measures, prompts, config, progress)
    champion = base
    if config.champion_present:
        champion = measure_model("champion", folders["champion"], texts, of_champion, [], config, progress)

    evaluation = Evaluation(
        bits_per_byte=compare("equal_bytes", base, pretrained, candidate, config),
        equal_tokens=compare("equal_tokens", base, pretrained, candidate, config),
        extra_heldout=(
            compare("extra_heldout", base, pretrained, candidate, config) if "extra_heldout" in texts else None
        ),
        champion=compare_champion(champion, candidate, config),
        retention=compare_retention(base, candidate) if "source_test" in texts else None,
        samples=[
            Sample(prompt=prompt, base=of_base, pretrained=of_pretrained, candidate=of_candidate)
            for prompt, of_base, of_pretrained, of_candidate in zip(
                prompts, base.continuations, pretrained.continuations, candidate.continuations, strict=True
            )
        ],
        bytes_scored=base.scores["equal_bytes"].bytes_scored,
        documents=base.scores["equal_bytes"].documents,
        text_sha256=hashlib.sha256("\0".join(texts["test"]).encode()).hexdigest(),
    )
    write_json(folders.output / "evaluation.json", evaluation.model_dump(mode="json"))
    write_samples(folders.output / "samples.jsonl", evaluation.samples)
    return headline(evaluation)


def read_texts(corpus: Path, max_documents: int) -> dict[str, list[str]]:
    """Held-out documents by split, those that the corpus has, the first max_documents of each by their hash."""
    present = read_summary(corpus).splits
    splits = {split for split, _ in MEASURES.values() if split == "test" or split in present}
    return {split: sorted(read_split(corpus, split), key=text_sha256)[:max_documents] for split in sorted(splits)}


def measure_model(
    name: str,
    folder: Path,
    texts: Mapping[str, list[str]],
    measures: Sequence[str],
    prompts: list[str],
    config: EvaluateModelConfig,
    progress: ScoringProgress,
) -> Measured:
    """Loads one model, takes the measures named (see MEASURES), continues the prompts, and lets go of the model."""
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, device=choose_device(config.device))
    scores: dict[str, DocumentScores] = {}
    for measure in measures:
        split, context = MEASURES[measure]
        length = {context: getattr(config, context)}
        tell = progress.next(len(texts[split]))
        scores[measure] = score_documents(
            model, tokenizer, texts[split], batch_tokens=config.batch_tokens, tell=tell, **length
        )
        report(model=name, measure=measure, bits_per_byte=scores[measure].bits_per_byte)
    ids = [[tokenizer.bos_token_id, *encoded] for encoded in encode_plain(tokenizer, prompts)]
    replies = continue_greedily(model, ids, new_tokens=config.sample_new_tokens, stop_ids=stop_token_ids(tokenizer))
    continuations = [str(tokenizer.decode(reply, skip_special_tokens=True)) for reply in replies]
    del model
    gc.collect()
    return Measured(scores, continuations)


def compare(
    measure: str, base: Measured, pretrained: Measured, candidate: Measured, config: EvaluateModelConfig
) -> BitsPerByte:
    """Three models on the same documents; the interval is of base - candidate."""
    of_base, of_candidate = base.scores[measure], candidate.scores[measure]
    return BitsPerByte(
        base=of_base.bits_per_byte,
        pretrained=pretrained.scores[measure].bits_per_byte,
        candidate=of_candidate.bits_per_byte,
        improvement=of_base.bits_per_byte - of_candidate.bits_per_byte,
        improvement_ci95=interval(of_base, of_candidate, config),
        documents=of_base.documents,
        bytes_scored=of_base.bytes_scored,
    )


def compare_champion(champion: Measured, candidate: Measured, config: EvaluateModelConfig) -> Champion:
    """The champion (or the base model in its place) against the candidate, at equal bytes."""
    of_champion, of_candidate = champion.scores["equal_bytes"], candidate.scores["equal_bytes"]
    return Champion(
        present=config.champion_present,
        bits_per_byte=of_champion.bits_per_byte,
        improvement=of_champion.bits_per_byte - of_candidate.bits_per_byte,
        improvement_ci95=interval(of_champion, of_candidate, config),
    )


def compare_retention(base: Measured, candidate: Measured) -> Retention:
    """What the candidate lost on the source language."""
    of_base, of_candidate = base.scores["retention"], candidate.scores["retention"]
    return Retention(
        base=of_base.bits_per_byte,
        candidate=of_candidate.bits_per_byte,
        loss=of_candidate.bits_per_byte - of_base.bits_per_byte,
        documents=of_base.documents,
        bytes_scored=of_base.bytes_scored,
    )


def interval(first: DocumentScores, second: DocumentScores, config: EvaluateModelConfig) -> tuple[float, float]:
    """95% interval of first - second in bits per byte."""
    assert (first.bytes == second.bytes).all(), "both models read the same documents"
    return paired_bootstrap(first.bits, second.bits, first.bytes, config.bootstrap_resamples, config.seed)


def first_words(text: str, words: int) -> str:
    """The text up to the end of its nth word, its white space as it stands."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text[: ends[min(words, len(ends)) - 1]]


def write_samples(path: Path, samples: list[Sample]) -> None:
    """One JSON object a line, the letters as they are."""
    lines = [json.dumps(sample.model_dump(mode="json"), ensure_ascii=False) + "\n" for sample in samples]
    write_atomically(path, "".join(lines))


def headline(evaluation: Evaluation) -> dict[str, float | int | str]:
    """The figures for the manifest and the log."""
    main = evaluation.bits_per_byte
    metrics: dict[str, float | int | str] = {
        "bits_per_byte_base": main.base,
        "bits_per_byte_pretrained": main.pretrained,
        "bits_per_byte": main.candidate,
        "improvement": main.improvement,
        "improvement_low": main.improvement_ci95[0],
        "improvement_high": main.improvement_ci95[1],
        "champion_improvement": evaluation.champion.improvement,
        "documents": evaluation.documents,
    }
    if evaluation.extra_heldout is not None:
        metrics["extra_heldout_bits_per_byte"] = evaluation.extra_heldout.candidate
    if evaluation.retention is not None:
        metrics["retention_loss"] = evaluation.retention.loss
    return metrics


if __name__ == "__main__":
    sys.exit(run_step(evaluate_model, EvaluateModelConfig, FOLDERS))
