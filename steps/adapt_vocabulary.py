"""AdaptVocabulary: the base model with its embeddings and head rebuilt for the new tokenizer.

    python -m steps.adapt_vocabulary --base_model DIR --tokenizer DIR --corpus DIR --output DIR [--initialiser=NAME]

Reads    base_model  a Hugging Face folder: config.json, safetensors, its own fast tokenizer
         tokenizer   TrainTokenizer's output
         corpus      PrepareCorpus' output: validation documents, on which the start is measured; with the initialiser
                     focus also training documents
Writes   config.json, generation_config.json, model.safetensors, tokenizer files   the model, in the base's dtype
         adaptation.json   rows copied and composed, bits per byte at step 0 of each initialiser measured

Memory: the weights in float32 and, while they are loaded, the base's file beside them, which is mapped: 6 bytes for
each weight of a bfloat16 base (measured: 2.2 GiB for 314 million, Python's libraries included). New rows take 4 bytes a
weight, two sets of them at most. With focus, up to 2 GB more while similar tokens are looked for.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.contract import ConfigError, Folder, StepFolders, report, run_step, warn, write_json
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.focus import similar_tokens
from steps.modeling.initialisers import check_extends
from steps.modeling.loading import (
    auto_tokenizer_agrees,
    choose_device,
    is_tied,
    load_model,
    load_tokenizer,
    save_model_as,
    stored_dtype,
)
from steps.modeling.scoring_progress import ScoringProgress
from steps.modeling.special_ids import set_special_tokens
from steps.modeling.vocabulary import BaseRows, input_matrix, replace_vocabulary
from steps.modeling.vocabulary_plan import VocabularyPlan, plan_vocabulary
from steps.schemas.adaptation import Adaptation, RowLengths
from steps.text.corpus import iterate_split

FOLDERS = [Folder("base_model", sealed=False), Folder("tokenizer"), Folder("corpus")]
# Tokens of one forward pass of the measurement: small enough for any machine that holds the model.
BATCH_TOKENS = 8_192


@dataclass(frozen=True)
class Choice:
    """Bits per byte at step 0 by initialiser, in the order measured; the chosen one and why."""

    bits_per_byte: dict[str, float]
    initialiser: str
    reason: str


def adapt_vocabulary(config: AdaptVocabularyConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Plans the rows, measures each initialiser, writes the model of the chosen one."""
    names = asked_initialisers(config)
    base_folder = folders["base_model"]
    tokenizer = load_tokenizer(folders["tokenizer"] / "tokenizer")
    # float32 while rows are made and measured; the backbone's published bytes survive the way there and back.
    trust = config.trust_remote_code
    model = load_model(base_folder, dtype=torch.float32, device=choose_device(config.device), trust_remote_code=trust)
    parameters_before = count_parameters(model)
    base = BaseRows.of(model)
    base_tokenizer = load_tokenizer(base_folder, trust_remote_code=trust)
    plan = plan_vocabulary(base_tokenizer, tokenizer, base_rows=len(base.embedding))
    if "extend" in names:
        check_extends(plan)
    set_special_tokens(model, tokenizer, plan.new_id)

    documents = list(itertools.islice(iterate_split(folders["corpus"], "validation"), config.measured_documents))
    similar = None
    if "focus" in names:
        texts = iterate_split(folders["corpus"], "train")
        similar = similar_tokens(plan, tokenizer, texts, max_bytes=config.focus_training_bytes, seed=config.seed)
    replace = functools.partial(
        replace_vocabulary, model, base, plan, tokenizer.pad_token_id, seed=config.seed, similar=similar
    )
    bits_per_byte = measure_each(names, replace, model, tokenizer, documents, config.context_bytes)
    choice = choose(config, bits_per_byte)
    if choice.initialiser != names[-1]:
        replace(initialiser=choice.initialiser)

    adaptation = describe(choice, plan, model, base, parameters_before, len(documents))
    write_json(folders.output / "adaptation.json", adaptation.model_dump(mode="json"))
    # The base's rows are no longer needed, and saving needs memory of its own.
    del base, replace
    dtype = stored_dtype(base_folder, trust_remote_code=trust)
    save_model_as(model, tokenizer, folders.output, dtype, trust_remote_code=trust)
    if not auto_tokenizer_agrees(folders.output, trust_remote_code=trust):
        kind = model.config.model_type
        message = f"AutoTokenizer reads another tokenizer from a {kind} folder: load it with PreTrainedTokenizerFast"
        warn("auto-tokenizer-differs", message)
    return {
        "vocabulary_rows": adaptation.vocabulary_rows,
        "rows_copied": adaptation.rows_copied,
        "bits_per_byte_at_step_0": bits_per_byte[choice.initialiser],
        "initialiser": choice.initialiser,
    }


def asked_initialisers(config: AdaptVocabularyConfig) -> list[str]:
    """What is measured, the configured one last, so that its rows are in the model afterwards. Raises ConfigError for
    `best` of fewer than two."""
    compared = list(dict.fromkeys(config.compared_initialisers))
    if config.initialiser != "best":
        return [*(name for name in compared if name != config.initialiser), config.initialiser]
    if len(compared) < 2:
        raise ConfigError(
            "adapt_vocabulary.compared_initialisers",
            ", ".join(compared) or "none",
            limit="at least 2 where initialiser is best",
            remedy="Name the initialisers to choose from.",
        )
    return list(compared)


def choose(config: AdaptVocabularyConfig, bits_per_byte: dict[str, float]) -> Choice:
    """The configured initialiser, or the best of those measured; of equal ones the first named."""
    if config.initialiser != "best":
        return Choice(bits_per_byte, config.initialiser, "named in the configuration")
    best, *others = sorted(bits_per_byte, key=lambda name: bits_per_byte[name])
    reason = (
        f"fewest bits per byte at step 0 of {len(bits_per_byte)} measured: {bits_per_byte[best]:.4f}, "
        f"next {others[0]} with {bits_per_byte[others[0]]:.4f}"
    )
    return Choice(bits_per_byte, best, reason)


def measure_each(
    names: list[str],
    replace: Callable[..., None],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: list[str],
    context_bytes: int,
) -> dict[str, float]:
    """Bits per byte of the untrained model on the validation documents by initialiser; replace gives it the rows."""
    progress = ScoringProgress(len(documents) * len(names))
    bits_per_byte: dict[str, float] = {}
    for name in names:
        replace(initialiser=name)
        scores = score_documents(
            model, tokenizer, documents, context_bytes=context_bytes, batch_tokens=BATCH_TOKENS,
            tell=progress.next(len(documents)),
        )  # fmt: skip
        bits_per_byte[name] = scores.bits_per_byte
        report(initialiser=name, bits_per_byte=bits_per_byte[name])
    return bits_per_byte


def describe(
    choice: Choice,
    plan: VocabularyPlan,
    model: PreTrainedModel,
    base: BaseRows,
    parameters_before: int,
    measured_documents: int,
) -> Adaptation:
    """adaptation.json."""
    copied = 0 if choice.initialiser == "normal" else len(plan.copied)
    matrices = {
        "base_embedding": base.embedding[: plan.base_tokens],
        "embedding": input_matrix(model)[: plan.tokens],
    }
    if base.head is not None:
        matrices["base_head"] = base.head[: plan.base_tokens]
        matrices["head"] = model.get_output_embeddings().weight.detach()[: plan.tokens]
    return Adaptation(
        initialiser=choice.initialiser,
        reason=choice.reason,
        base_vocabulary_rows=len(base.embedding),
        vocabulary_rows=plan.rows,
        rows_copied=copied,
        rows_composed=plan.rows - copied,
        tied_embeddings=is_tied(model),
        parameters_before=parameters_before,
        parameters_after=count_parameters(model),
        row_lengths={name: row_lengths(matrix) for name, matrix in matrices.items()},
        bits_per_byte_at_step_0=choice.bits_per_byte,
        measured_documents=measured_documents,
    )


def row_lengths(matrix: torch.Tensor) -> RowLengths:
    """Lengths of the rows of [rows, width]."""
    lengths = matrix.norm(dim=1)
    return RowLengths(smallest=float(lengths.min()), median=float(lengths.median()), largest=float(lengths.max()))


def count_parameters(model: PreTrainedModel) -> int:
    """Weights of the model; a matrix shared by embedding and head counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    sys.exit(run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS))
