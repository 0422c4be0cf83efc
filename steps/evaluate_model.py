"""Evaluate: base, pretrained, candidate and champion on the same held-out text; everything a person approves from.

    python -m steps.evaluate_model --base_model DIR --pretrained DIR --model DIR --champion DIR --corpus DIR \\
        [--accuracy DIR] [--ablation DIR] --output DIR [--context_bytes=4096]

Reads    base_model  the model that everything started from
         pretrained  ContinuedPretraining's output
         model       FineTune's output: the candidate
         champion    the newest approved version, at equal bytes alone (read only where champion_present is true)
         corpus      PrepareCorpus' output: test, train, and extra_heldout and source_test where it has them
         accuracy    questions with answers (optional; their form: steps/text/accuracy_items.py)
         ablation    ContinuedPretrainingBase's output, beside `pretrained` alone (optional)
Writes   evaluation.json  the numbers that the gate reads (their form: steps/schemas/evaluation.py)
         statistics.json  the main ones in the form that SageMaker shows beside a model version
         samples.jsonl    the first held-out prompts, continued greedily by base, pretrained and candidate

What bits per byte is stands in steps/modeling/bits_per_byte.py. Models are loaded one at a time, in float32.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from transformers.utils import logging as transformers_logging

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import Folder, StepError, StepFolders, run_step, write_atomically, write_json
from steps.modeling.bits_per_byte import DocumentScores
from steps.modeling.bootstrap import paired_bootstrap
from steps.modeling.measuring import MEASURES, Measured, Wanted, measure_model
from steps.modeling.scoring_progress import ScoringProgress
from steps.schemas.evaluation import (
    Ablation,
    BitsPerByte,
    BranchTraining,
    Champion,
    ContaminationSection,
    Evaluation,
    Retention,
    Sample,
    SharedText,
    TaskAccuracy,
    TokenizerComparison,
)
from steps.schemas.model_quality import STATISTICS_FILE, model_quality
from steps.schemas.training import PretrainingSummary
from steps.text.accuracy_items import AccuracyTask, read_accuracy_tasks
from steps.text.contamination import NGRAM_WORDS, measure_contamination
from steps.text.corpus import iterate_split, read_split, read_summary, text_sha256

FOLDERS = [
    Folder("base_model", sealed=False),
    Folder("pretrained"),
    Folder("model"),
    Folder("champion", sealed=False),
    Folder("corpus"),
    Folder("accuracy", sealed=False, required=False),
    Folder("ablation", required=False),
]
# An interval needs two documents; retention has none.
LEAST_DOCUMENTS = {"test": 2, "extra_heldout": 2, "source_test": 1}


def evaluate_model(config: EvaluateModelConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Scores every model on the same documents, writes the comparison, returns its headline figures."""
    transformers_logging.disable_progress_bar()
    # What may be at fault with the user's files comes before the hours of scoring.
    accuracy_folder = folders.get("accuracy")
    tasks = [] if accuracy_folder is None else read_accuracy_tasks(accuracy_folder, config.max_accuracy_items)
    texts = read_texts(folders["corpus"], config.max_documents)
    prompts = [first_words(text, config.sample_prompt_words) for text in texts["test"][: config.samples]]

    measures = [measure for measure, (split, _) in MEASURES.items() if split in texts]
    wanted = {
        "base": Wanted(measures, prompts, tasks),
        "pretrained": Wanted([measure for measure in measures if measure != "retention"], prompts, tasks),
        "candidate": Wanted(measures, prompts, tasks),
    }
    models = {"base": folders["base_model"], "pretrained": folders["pretrained"], "candidate": folders["model"]}
    if (ablation_folder := folders.get("ablation")) is not None:
        wanted["ablation"], models["ablation"] = Wanted(wanted["pretrained"].measures), ablation_folder
    if config.champion_present:
        wanted["champion"], models["champion"] = Wanted(["equal_bytes"]), folders["champion"]
    progress = ScoringProgress(sum(part.documents(texts) for part in wanted.values()))
    found = {
        name: measure_model(name, folder, texts, wanted[name], config, progress) for name, folder in models.items()
    }
    evaluation = Evaluation(
        bits_per_byte=compare("equal_bytes", found, config),
        equal_tokens=compare("equal_tokens", found, config),
        extra_heldout=compare("extra_heldout", found, config) if "extra_heldout" in texts else None,
        champion=compare_champion(found.get("champion", found["base"]), found["candidate"], config),
        retention=compare_retention(found["base"], found["candidate"]) if "source_test" in texts else None,
        ablation=compare_tokenizers(models, found, config) if "ablation" in models else None,
        accuracy=compare_accuracy(tasks, found) if tasks else None,
        contamination=find_contamination(folders["corpus"], texts, tasks),
        samples=collect_samples(prompts, found),
        bytes_scored=found["base"].scores["equal_bytes"].bytes_scored,
        documents=found["base"].scores["equal_bytes"].documents,
        text_sha256=hashlib.sha256("\0".join(texts["test"]).encode()).hexdigest(),
    )
    write_json(folders.output / "evaluation.json", evaluation.model_dump(mode="json"))
    write_json(folders.output / STATISTICS_FILE, model_quality(evaluation))
    write_samples(folders.output / "samples.jsonl", evaluation.samples)
    return headline(evaluation)


def read_texts(corpus: Path, max_documents: int) -> dict[str, list[str]]:
    """Held-out documents by split, those that the corpus has, the first max_documents of each by their hash.

    Raises StepError for a split without enough text to measure on.
    """
    present = read_summary(corpus).splits
    splits = {split for split, _ in MEASURES.values() if split == "test" or split in present}
    texts = {split: sorted(read_split(corpus, split), key=text_sha256)[:max_documents] for split in sorted(splits)}
    for split, documents in texts.items():
        least, text_bytes = LEAST_DOCUMENTS[split], sum(len(document.encode()) for document in documents)
        if len(documents) < least or text_bytes == 0:
            raise StepError(
                f"{split} split",
                f"{len(documents)} documents of {text_bytes} bytes",
                limit=f"at least {least}, none of them empty",
                remedy="Give more text, or a larger share of it (prepare_corpus.test_share).",
            )
    return texts


def compare(measure: str, found: Mapping[str, Measured], config: EvaluateModelConfig) -> BitsPerByte:
    """Base, pretrained and candidate on the same documents; the interval is of base - candidate."""
    of_base, of_candidate = found["base"].scores[measure], found["candidate"].scores[measure]
    return BitsPerByte(
        base=of_base.bits_per_byte,
        pretrained=found["pretrained"].scores[measure].bits_per_byte,
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


def compare_tokenizers(
    models: Mapping[str, Path], found: Mapping[str, Measured], config: EvaluateModelConfig
) -> Ablation:
    """The two pretrained models, which differ in the tokenizer alone, and what their trainings took."""
    of_base, of_new = found["ablation"].scores, found["pretrained"].scores
    compared = {
        measure: TokenizerComparison(
            base_tokenizer=of_base[measure].bits_per_byte,
            new_tokenizer=of_new[measure].bits_per_byte,
            improvement=of_base[measure].bits_per_byte - of_new[measure].bits_per_byte,
            improvement_ci95=interval(of_base[measure], of_new[measure], config),
            documents=of_base[measure].documents,
            bytes_scored=of_base[measure].bytes_scored,
        )
        for measure in of_base
    }
    return Ablation(
        equal_bytes=compared["equal_bytes"],
        equal_tokens=compared["equal_tokens"],
        extra_heldout=compared.get("extra_heldout"),
        training={
            "base_tokenizer": training_of(models["ablation"]),
            "new_tokenizer": training_of(models["pretrained"]),
        },
    )


def training_of(folder: Path) -> BranchTraining:
    """The figures of a ContinuedPretraining's output that two trainings are compared by."""
    summary = PretrainingSummary.model_validate_json((folder / "training.json").read_bytes())
    return BranchTraining(
        steps=sum(phase.steps for phase in summary.phases.values()),
        tokens=sum(phase.tokens for phase in summary.phases.values()),
        **{name: getattr(summary, name) for name in BranchTraining.model_fields if name not in ("steps", "tokens")},
    )


def compare_accuracy(tasks: Sequence[AccuracyTask], found: Mapping[str, Measured]) -> dict[str, TaskAccuracy]:
    """The accuracy of base, pretrained and candidate by task."""
    return {
        task.name: TaskAccuracy(
            kind=task.kind,
            items=len(task.items),
            chance=task.chance,
            base=found["base"].accuracy[task.name],
            pretrained=found["pretrained"].accuracy[task.name],
            candidate=found["candidate"].accuracy[task.name],
        )
        for task in tasks
    }


def find_contamination(
    corpus: Path, texts: Mapping[str, list[str]], tasks: Sequence[AccuracyTask]
) -> ContaminationSection:
    """What of the test documents, the extra held-out text and the questions stands in the training documents."""
    groups: dict[str, Sequence[str]] = {split: texts[split] for split in ("test", "extra_heldout") if split in texts}
    of_tasks = {task.name: [item.text for item in task.items] for task in tasks}
    found = measure_contamination(
        {**groups, **{f"task {name}": items for name, items in of_tasks.items()}}, iterate_split(corpus, "train")
    )
    shared = {
        name: SharedText(texts=part.texts, contaminated=part.found, share=part.share, too_short=part.too_short)
        for name, part in found.items()
    }
    return ContaminationSection(
        ngram_words=NGRAM_WORDS,
        test=shared["test"],
        extra_heldout=shared.get("extra_heldout"),
        accuracy={name: shared[f"task {name}"] for name in of_tasks},
    )


def collect_samples(prompts: Sequence[str], found: Mapping[str, Measured]) -> list[Sample]:
    """The prompts with the continuations of base, pretrained and candidate side by side."""
    names = ("base", "pretrained", "candidate")
    return [
        Sample(
            prompt=prompt,
            **{name: found[name].continuations[index] for name in names},
            figures={name: found[name].figures[index] for name in names},
        )
        for index, prompt in enumerate(prompts)
    ]


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
    metrics["contaminated_share"] = evaluation.contamination.test.share
    if evaluation.samples:
        figures = [sample.figures for sample in evaluation.samples]
        metrics["repeated_trigrams_base"] = mean(of_sample["base"].repeated_trigrams for of_sample in figures)
        metrics["repeated_trigrams"] = mean(of_sample["candidate"].repeated_trigrams for of_sample in figures)
    if evaluation.extra_heldout is not None:
        metrics["extra_heldout_bits_per_byte"] = evaluation.extra_heldout.candidate
    if evaluation.retention is not None:
        metrics["retention_loss"] = evaluation.retention.loss
    if evaluation.ablation is not None:
        ablated = evaluation.ablation.equal_bytes
        low, high = ablated.improvement_ci95
        metrics |= {"ablation_improvement": ablated.improvement, "ablation_low": low, "ablation_high": high}
    return metrics


if __name__ == "__main__":
    sys.exit(run_step(evaluate_model, EvaluateModelConfig, FOLDERS))
