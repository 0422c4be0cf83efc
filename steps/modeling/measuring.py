"""What Evaluate measures of one model: bits per byte, accuracy, greedy continuations."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import StepError, report, warn
from steps.modeling.accuracy import measure_accuracy
from steps.modeling.bits_per_byte import DocumentScores, context_token_id, score_documents
from steps.modeling.generation import continue_greedily, stop_token_ids
from steps.modeling.loading import choose_device, load_model, load_tokenizer
from steps.modeling.scoring_progress import ScoringProgress
from steps.schemas.evaluation import Continuation, ModelAccuracy
from steps.text.accuracy_items import AccuracyTask
from steps.text.loops import distinct_share, repeated_share
from steps.text.plain_encoding import encode_plain

# What is measured: the name of a score, the corpus split, the kind of context.
MEASURES = {
    "equal_bytes": ("test", "context_bytes"),
    "equal_tokens": ("test", "context_tokens"),
    "extra_heldout": ("extra_heldout", "context_bytes"),
    "retention": ("source_test", "context_bytes"),
}


@dataclass(frozen=True)
class Wanted:
    """What to measure of one model: scores by name (see MEASURES), prompts to continue, tasks to answer."""

    measures: Sequence[str]
    prompts: Sequence[str] = ()
    tasks: Sequence[AccuracyTask] = ()

    def documents(self, texts: Mapping[str, Sequence[str]]) -> int:
        """Texts that will be scored, one counted as often as it is."""
        of_measures = sum(len(texts[MEASURES[measure][0]]) for measure in self.measures)
        return of_measures + sum(len(task.items) for task in self.tasks)


@dataclass(frozen=True)
class Measured:
    """Scores of one model by name, its continuation of each prompt as text and in figures, its accuracy by task."""

    scores: Mapping[str, DocumentScores]
    continuations: Sequence[str] = ()
    figures: Sequence[Continuation] = ()
    accuracy: Mapping[str, ModelAccuracy] = field(default_factory=dict)


def measure_model(
    name: str,
    folder: Path,
    texts: Mapping[str, Sequence[str]],
    wanted: Wanted,
    config: EvaluateModelConfig,
    progress: ScoringProgress,
) -> Measured:
    """Loads one model, measures what is wanted, and lets go of the model. A StepError names the model."""
    with naming(name):
        trust = config.trust_remote_code
        tokenizer = load_tokenizer(folder, trust_remote_code=trust)
        model = load_model(folder, device=choose_device(config.device), trust_remote_code=trust)
        if tokenizer.bos_token_id is None:
            warn("no-bos-token", f"{name}: {tokenizer.eos_token} stands before each document, as it has no BOS token")
        measured = _measure(name, model, tokenizer, texts, wanted, config, progress)
    del model
    gc.collect()
    return measured


def _measure(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, Sequence[str]],
    wanted: Wanted,
    config: EvaluateModelConfig,
    progress: ScoringProgress,
) -> Measured:
    batches = {"batch_tokens": config.batch_tokens, "matmul_dtype": getattr(torch, config.matmul_dtype)}
    scores, accuracy = {}, {}
    for measure in wanted.measures:
        split, context = MEASURES[measure]
        tell = progress.next(len(texts[split]))
        length = {context: getattr(config, context)}
        scores[measure] = score_documents(model, tokenizer, texts[split], tell=tell, **length, **batches)
        report(model=name, measure=measure, bits_per_byte=scores[measure].bits_per_byte)
    for task in wanted.tasks:
        tell = progress.next(len(task.items))
        found = measure_accuracy(model, tokenizer, task, context_bytes=config.context_bytes, tell=tell, **batches)
        accuracy[task.name] = found
        report(model=name, task=task.name, accuracy=found.plain.share, accuracy_by_byte=found.by_byte.share)
    continuations, figures = continue_prompts(model, tokenizer, wanted.prompts, config.sample_new_tokens)
    return Measured(scores, continuations, figures, accuracy)


def continue_prompts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], new_tokens: int
) -> tuple[list[str], list[Continuation]]:
    """Each prompt's greedy continuation, and its length and repetition."""
    stops = stop_token_ids(tokenizer)
    ids = [[context_token_id(tokenizer), *encoded] for encoded in encode_plain(tokenizer, prompts)]
    replies = continue_greedily(model, ids, new_tokens=new_tokens, stop_ids=stops)
    written = [str(tokenizer.decode(reply, skip_special_tokens=True)) for reply in replies]
    figures = [
        Continuation(
            characters=len(text),
            words=len(text.split()),
            repeated_trigrams=repeated_share(text, 3),
            distinct_bigrams=distinct_share(text, 2),
            ended=bool(reply) and reply[-1] in stops,
        )
        for text, reply in zip(written, replies, strict=True)
    ]
    return written, figures


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Puts a name before the subject of a StepError: a fault in one of four models shall say in which."""
    try:
        yield
    except StepError as error:
        raise StepError(f"{name}: {error.subject}", error.value, limit=error.limit, remedy=error.remedy) from error
