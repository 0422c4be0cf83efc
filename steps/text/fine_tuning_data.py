"""Conversations as examples on two sides, for training and held out, with what was left out and what is doubtful."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import report, warn
from steps.text.assistant_mask import TOO_LONG, Example, ExampleBuilder
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


@dataclass(frozen=True)
class TrainingData:
    """Examples on both sides; conversations left out, by reason; pieces of personal data found, by kind."""

    form: str
    training: list[Example]
    heldout: list[Example]
    dropped: dict[str, Unusable]
    personal_data: Counter[str]


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
    check_questions(len(shares), len(examples))
    ranked = sorted(shares, key=lambda digest: shares[digest])
    chosen = [digest for digest in ranked if shares[digest] < validation_share]
    # A handful of conversations may leave a side empty by chance: one question each, then.
    heldout = set(chosen[: len(ranked) - 1] or ranked[:1])
    return (
        [example for example in examples if example.question_digest not in heldout],
        [example for example in examples if example.question_digest in heldout],
    )
