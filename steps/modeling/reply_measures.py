"""What a model makes of conversations: the loss of its trained tokens, and whether its replies end by themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.modeling.generation import continue_greedily, stop_token_ids
from steps.modeling.token_losses import has_plain_head, output_layer, token_nats
from steps.text.assistant_mask import IGNORED_LABEL, Example
from steps.text.chat_template import END_OF_TURN_TOKEN

# A reply of the sample has 22 to 99 tokens under the laptop preset: a model that has learnt to stop has room to.
STOP_RATE_NEW_TOKENS = 128
STOP_RATE_PROMPTS, STOP_RATE_BATCH = 64, 16


def mean_token_loss(model: PreTrainedModel, examples: Sequence[Example], batch_conversations: int) -> float:
    """Nats a trained token over all examples: one sum, one division, whatever the batches."""
    ordered = sorted(examples, key=lambda example: -len(example.input_ids))
    with torch.no_grad():
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
        with torch.no_grad():
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
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, examples: Sequence[Example]
) -> float | None:
    """Share of the first prompts, at most STOP_RATE_PROMPTS, whose greedy reply of at most STOP_RATE_NEW_TOKENS ends by
    itself, at the end of turn; None where no prompt leaves room for a reply."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    room = math.inf if limit is None else limit - STOP_RATE_NEW_TOKENS
    prompts = [example.prompt for example in examples if example.prompt_tokens <= room][:STOP_RATE_PROMPTS]
    stops = stop_token_ids(tokenizer)
    replies: list[list[int]] = []
    for start in range(0, len(prompts), STOP_RATE_BATCH):
        batch = prompts[start : start + STOP_RATE_BATCH]
        replies += continue_greedily(model, batch, new_tokens=STOP_RATE_NEW_TOKENS, stop_ids=stops)
    # The end of the text ends a reply as well, but it is not what was taught.
    end_of_turn = tokenizer.get_vocab()[END_OF_TURN_TOKEN]
    return sum(1 for reply in replies if reply[-1] == end_of_turn) / len(replies) if replies else None
