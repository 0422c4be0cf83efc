"""AdaptVocabulary: the base model with its embeddings and head rebuilt for the new tokenizer.

    python -m steps.adapt_vocabulary --base_model DIR --tokenizer DIR --corpus DIR --output DIR [--initialiser=NAME]

Reads    base_model  a Hugging Face folder: config.json, safetensors, its own fast tokenizer
         tokenizer   TrainTokenizer's output
         corpus      PrepareCorpus' output: validation documents, on which the start is measured
Writes   config.json, generation_config.json, model.safetensors, tokenizer files   the model, in the base's dtype
         adaptation.json   rows copied and composed, bits per byte at step 0 of each initialiser measured
"""

from __future__ import annotations

import itertools
import sys

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.contract import Folder, StepFolders, report, run_step, write_json
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.loading import choose_device, is_tied, load_model, load_tokenizer, save_model_as, stored_dtype
from steps.modeling.scoring_progress import ScoringProgress
from steps.modeling.vocabulary import BaseRows, VocabularyPlan, plan_vocabulary, replace_vocabulary
from steps.schemas.adaptation import Adaptation
from steps.text.corpus import iterate_split

FOLDERS = [Folder("base_model", sealed=False), Folder("tokenizer"), Folder("corpus")]
# Tokens of one forward pass of the measurement: small enough for any machine that holds the model.
BATCH_TOKENS = 8_192


def adapt_vocabulary(config: AdaptVocabularyConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Plans the rows, measures each initialiser, writes the model of the chosen one."""
    base_folder = folders["base_model"]
    tokenizer = load_tokenizer(folders["tokenizer"] / "tokenizer")
    # float32 while rows are made and measured; the backbone's published bytes survive the way there and back.
    model = load_model(base_folder, dtype=torch.float32, device=choose_device(config.device))
    parameters_before = count_parameters(model)
    base = BaseRows.of(model)
    plan = plan_vocabulary(load_tokenizer(base_folder), tokenizer, base_rows=len(base.embedding))

    validation = iterate_split(folders["corpus"], "validation")
    documents = list(itertools.islice(validation, config.measured_documents))
    bits_per_byte: dict[str, float] = {}
    # The chosen one comes last, so that its rows are the ones in the model afterwards.
    others = [name for name in config.compared_initialisers if name != config.initialiser]
    progress = ScoringProgress(len(documents) * (len(others) + 1))
    for initialiser in [*others, config.initialiser]:
        replace_vocabulary(model, base, plan, tokenizer, initialiser=initialiser, seed=config.seed)
        bits_per_byte[initialiser] = measure(model, tokenizer, documents, config, progress)
        report(initialiser=initialiser, bits_per_byte=bits_per_byte[initialiser])

    save_model_as(model, tokenizer, folders.output, stored_dtype(base_folder))
    adaptation = describe(config, plan, model, base, parameters_before, bits_per_byte, len(documents))
    write_json(folders.output / "adaptation.json", adaptation.model_dump(mode="json"))
    return {
        "vocabulary_rows": adaptation.vocabulary_rows,
        "rows_copied": adaptation.rows_copied,
        "bits_per_byte_at_step_0": bits_per_byte[config.initialiser],
    }


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: list[str],
    config: AdaptVocabularyConfig,
    progress: ScoringProgress,
) -> float:
    """Bits per byte of the untrained model on the validation documents."""
    scores = score_documents(
        model, tokenizer, documents, context_bytes=config.context_bytes, batch_tokens=BATCH_TOKENS,
        tell=progress.next(len(documents)),
    )  # fmt: skip
    return scores.bits_per_byte


def describe(
    config: AdaptVocabularyConfig,
    plan: VocabularyPlan,
    model: PreTrainedModel,
    base: BaseRows,
    parameters_before: int,
    bits_per_byte: dict[str, float],
    measured_documents: int,
) -> Adaptation:
    """adaptation.json."""
    copied = 0 if config.initialiser == "normal" else len(plan.copied)
    return Adaptation(
        initialiser=config.initialiser,
        base_vocabulary_rows=len(base.embedding),
        vocabulary_rows=plan.rows,
        rows_copied=copied,
        rows_composed=plan.rows - copied,
        tied_embeddings=is_tied(model),
        parameters_before=parameters_before,
        parameters_after=count_parameters(model),
        bits_per_byte_at_step_0=bits_per_byte,
        measured_documents=measured_documents,
    )


def count_parameters(model: PreTrainedModel) -> int:
    """Weights of the model; a matrix shared by embedding and head counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    sys.exit(run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS))
