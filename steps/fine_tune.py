"""FineTune: LoRA on conversations with TRL's SFTTrainer, loss on the assistant's tokens alone, merged at the end.

    python -m steps.fine_tune --model DIR --conversations FILE_OR_DIR --output DIR [--lora_rank=64]

Reads    model          ContinuedPretraining's output, its tokenizer with the chat template
         conversations  .jsonl in one of three forms (see steps/text/conversations.py)
Writes   the merged model at the folder's root (safetensors in the incoming model's dtype, tokenizer,
         generation_config.json with the ends of turn)
         adapter/        the adapter alone
         training.json   what was trained on, losses, the merge check, how many replies end by themselves

The merge is made and checked in float32, then saved in the dtype of the model that came in: where that is bfloat16, so
is the published model. The losses and replies in training.json are those of the saved weights.

Before the first step every conversation's trained tokens are spelled out and compared with what the assistant says.
What cannot be used is counted, told in training.json, and beyond max_dropped_share stops the step; what can be used
and is likely not what was meant is warned about (steps/text/conversation_warnings.py).
Fine-tuning takes minutes and gives the same bytes each time (on one kind of machine with one number of threads, which
decides the order of sums), so a stopped run starts again from its first step; --checkpoints, which every training job
carries, is left empty.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import ConfigError, Folder, StepFolders, report, run_step, warn, write_json
from steps.modeling.adapter import check_target_modules, merge_adapter
from steps.modeling.adapter_training import train_adapter
from steps.modeling.generation import continue_greedily, stop_token_ids
from steps.modeling.loading import choose_device, load_model, load_tokenizer
from steps.modeling.token_losses import has_plain_head, output_layer, token_nats
from steps.schemas.training import FineTuningSummary
from steps.text.assistant_mask import IGNORED_LABEL, TOO_LONG, Example, ExampleBuilder
from steps.text.conversation_warnings import (
    Doubt,
    find_doubts,
    heldout_doubt,
    language_doubt,
    personal_data_doubt,
    too_long_doubt,
)
from steps.text.conversations import (
    Conversations,
    Message,
    Unusable,
    check_questions,
    check_unusable,
    note_unusable,
    read_conversations,
)
from steps.text.corpus import hash_share
from steps.text.personal_data import mask_personal_data

FOLDERS = [Folder("model"), Folder("conversations", sealed=False)]
# Held-out conversations on which merged model and adapter are compared, and those whose prompts are answered; a reply
# of the sample has 22 to 99 tokens under the laptop preset, so that a model that has learnt to stop has room to.
MERGE_CHECK_CONVERSATIONS = 4
STOP_RATE_PROMPTS = 16
STOP_RATE_NEW_TOKENS = 128


@dataclass(frozen=True)
class TrainingData:
    """Examples on both sides; conversations left out, by reason; pieces of personal data found, by kind."""

    form: str
    training: list[Example]
    heldout: list[Example]
    dropped: dict[str, Unusable]
    personal_data: Counter[str]


def fine_tune(config: FineTuneConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Checks every example, trains the adapter, merges it and measures the merged model."""
    check_one_process()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    device = choose_device(config.device)
    trust = config.trust_remote_code
    tokenizer = load_tokenizer(folders["model"], trust_remote_code=trust)
    data = read_data(config, folders["conversations"], tokenizer)
    model = load_model(folders["model"], device=device, trust_remote_code=trust)
    check_positions(model, config.max_tokens)
    check_target_modules(model, config.target_modules)
    loss_before = mean_token_loss(model, data.heldout, config.batch_conversations)
    adapter = folders.output / "adapter"
    run = train_adapter(model, tokenizer, data.training, config, adapter)
    del model

    difference = merge_adapter(
        folders["model"],
        adapter,
        folders.output,
        tokenizer,
        [example.input_ids for example in data.heldout[:MERGE_CHECK_CONVERSATIONS]],
        max_difference=config.max_merge_difference,
        trust_remote_code=trust,
    )
    merged = load_model(folders.output, device=device, trust_remote_code=trust)
    summary = FineTuningSummary(
        conversation_form=data.form,
        conversations=len(data.training),
        conversations_heldout=len(data.heldout),
        conversations_dropped={reason: noted.count for reason, noted in data.dropped.items()},
        first_dropped={reason: noted.first for reason, noted in data.dropped.items()},
        personal_data=dict(sorted(data.personal_data.items())),
        steps=len(run.losses),
        lora_scaling=config.lora_alpha / config.lora_rank,
        trained_parameters=run.trained_parameters,
        first_loss=run.losses[0],
        last_loss=run.losses[-1],
        validation_loss_before=loss_before,
        validation_loss=mean_token_loss(merged, data.heldout, config.batch_conversations),
        merge_relative_difference=difference,
        stop_rate=measure_stop_rate(merged, tokenizer, data.heldout),
    )
    write_json(folders.output / "training.json", summary.model_dump(mode="json"))
    return headline(summary)


def check_one_process() -> None:
    """Raises ConfigError under a launcher with several processes."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        remedy = "Choose an instance type with one accelerator, and one instance."
        raise ConfigError("fine_tune", f"{processes} processes", limit=1, remedy=remedy)


def read_data(config: FineTuneConfig, path: Path, tokenizer: PreTrainedTokenizerBase) -> TrainingData:
    """The conversations as examples on two sides; warns of what is doubtful about them and reports their number."""
    conversations = read_conversations(path)
    conversations, personal_data = count_personal_data(conversations, mask=config.mask_personal_data)
    examples, dropped = build_examples(tokenizer, conversations, config)
    training, heldout = split_examples(examples, config.validation_share)
    for doubt in doubts_about(conversations, training, heldout, dropped, personal_data, tokenizer, config):
        warn(*doubt)
    left_out = sum(noted.count for noted in dropped.values())
    report(form=conversations.form, conversations=len(training), heldout=len(heldout), dropped=left_out)
    return TrainingData(conversations.form, training, heldout, dropped, personal_data)


def count_personal_data(conversations: Conversations, *, mask: bool) -> tuple[Conversations, Counter[str]]:
    """The conversations, with placeholders for personal data where mask is set, and how much was found by kind."""
    found: Counter[str] = Counter()
    masked: list[list[Message]] = []
    for messages in conversations.conversations:
        masked.append([])
        for message in messages:
            text, counts = mask_personal_data(message["content"])
            found += counts
            masked[-1].append({**message, "content": text} if mask else message)
    return dataclasses.replace(conversations, conversations=masked), found


def build_examples(
    tokenizer: PreTrainedTokenizerBase, conversations: Conversations, config: FineTuneConfig
) -> tuple[list[Example], dict[str, Unusable]]:
    """Every example in the order of its digest, and what was left out by reason, unreadable lines included.

    Raises StepError where that is more than max_dropped_share of all lines.
    """
    builder = ExampleBuilder(tokenizer, config.max_tokens)
    examples: list[Example] = []
    dropped = copy.deepcopy(conversations.unusable)
    for messages, place in zip(conversations.conversations, conversations.places, strict=True):
        built = builder.build(messages, place)
        if isinstance(built, Example):
            examples.append(built)
        else:
            note_unusable(dropped, built, f"{place}: {built}")
    check_unusable(dropped, conversations.lines, config.max_dropped_share)
    return sorted(examples, key=lambda example: example.digest), dict(sorted(dropped.items()))


def doubts_about(
    conversations: Conversations,
    training: Sequence[Example],
    heldout: Sequence[Example],
    dropped: Mapping[str, Unusable],
    personal_data: Mapping[str, int],
    tokenizer: PreTrainedTokenizerBase,
    config: FineTuneConfig,
) -> list[Doubt]:
    """(name, message) of what can be trained on and is likely not what was meant."""
    vocabulary = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], skip_special_tokens=True)
    too_long = dropped.get(TOO_LONG, Unusable()).count
    doubts = [
        *find_doubts(conversations.conversations),
        language_doubt(conversations.conversations, vocabulary),
        heldout_doubt([example.question for example in training], [example.question for example in heldout]),
        too_long_doubt(too_long, conversations.lines, config.max_tokens),
        None if config.mask_personal_data else personal_data_doubt(personal_data),
    ]
    return [doubt for doubt in doubts if doubt is not None]


def split_examples(examples: list[Example], validation_share: float) -> tuple[list[Example], list[Example]]:
    """(training, held out) by the hash of the question, so that no question is on both sides; neither is empty.

    Raises StepError for fewer than two different questions.
    """
    shares = {example.question_digest: hash_share(example.question_digest) for example in examples}
    check_questions(len(shares))
    ranked = sorted(shares, key=lambda digest: shares[digest])
    chosen = [digest for digest in ranked if shares[digest] < validation_share]
    # A handful of conversations may leave a side empty by chance: one question each, then.
    heldout = set(chosen[: len(ranked) - 1] or ranked[:1])
    return (
        [example for example in examples if example.question_digest not in heldout],
        [example for example in examples if example.question_digest in heldout],
    )


def check_positions(model: PreTrainedModel, max_tokens: int) -> None:
    """Raises ConfigError where conversations may be longer than the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None and max_tokens > limit:
        limit_text = f"{limit}, the model's max_position_embeddings"
        raise ConfigError("fine_tune.max_tokens", max_tokens, limit=limit_text, remedy="Lower it.")


def mean_token_loss(model: PreTrainedModel, examples: Sequence[Example], batch_conversations: int) -> float:
    """Nats a trained token over all examples: one sum, one division, whatever the batches."""
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    with torch.inference_mode():
        is_plain = has_plain_head(model)
    logits_of = output_layer(model) if is_plain else torch.nn.Identity()
    nats, tokens = 0.0, 0
    for start in range(0, len(ordered), batch_conversations):
        batch = ordered[start : start + batch_conversations]
        length = len(batch[0].input_ids)
        # Padding stands on the right, where causal attention never looks.
        ids = torch.tensor([example.input_ids + [0] * (length - len(example.input_ids)) for example in batch])
        labels = torch.tensor(
            [example.labels + [IGNORED_LABEL] * (length - len(example.labels)) for example in batch],
            device=model.device,
        )
        with torch.inference_mode():
            # A model that changes its logits in a way of its own is asked for them, whole.
            reader = model.get_decoder() if is_plain else model
            found = reader(input_ids=ids.to(model.device), use_cache=False)
            states = (found.last_hidden_state if is_plain else found.logits)[:, :-1]
            trained = labels[:, 1:] != IGNORED_LABEL
            values, _ = token_nats(logits_of, states[trained], labels[:, 1:][trained], model.config.vocab_size)
        nats += float(values.sum())
        tokens += len(values)
    return nats / tokens


def measure_stop_rate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, heldout: Sequence[Example]
) -> float | None:
    """Share of held-out prompts whose greedy reply ends by itself; None where no prompt leaves room for a reply."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    room = math.inf if limit is None else limit - STOP_RATE_NEW_TOKENS
    prompts = [example.prompt for example in heldout if example.prompt_tokens <= room][:STOP_RATE_PROMPTS]
    stops = stop_token_ids(tokenizer)
    replies = continue_greedily(model, prompts, new_tokens=STOP_RATE_NEW_TOKENS, stop_ids=stops)
    return sum(1 for reply in replies if reply[-1] in stops) / len(replies) if replies else None


def headline(summary: FineTuningSummary) -> dict[str, float | int | str]:
    """The figures for the manifest and the log."""
    metrics: dict[str, float | int | str] = {
        "conversations": summary.conversations,
        "heldout": summary.conversations_heldout,
        "dropped": sum(summary.conversations_dropped.values()),
        "steps": summary.steps,
        "loss": summary.last_loss,
        "validation_loss_before": summary.validation_loss_before,
        "validation_loss": summary.validation_loss,
        "lora_scaling": summary.lora_scaling,
        "merge_relative_difference": summary.merge_relative_difference,
    }
    if summary.stop_rate is not None:
        metrics["stop_rate"] = summary.stop_rate
    return metrics


if __name__ == "__main__":
    # Training jobs always carry a folder for checkpoints; nothing is kept in it here (see above).
    sys.exit(run_step(fine_tune, FineTuneConfig, FOLDERS, checkpoints=True, resumes=False, reports=("training.json",)))
