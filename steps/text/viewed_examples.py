"""Conversations encoded for the eye: their tokens as FineTune trains on them, and what it makes of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from steps.text.assistant_mask import IGNORED_LABEL, Example, ExampleBuilder
from steps.text.chat_encoding import ChatEncoder
from steps.text.conversations import Conversations, Message, Unusable, note_unusable
from steps.text.mask_view import ViewedToken, text_of_bytes
from steps.text.token_bytes import token_bytes_of


@dataclass(frozen=True)
class ViewedExample:
    """One conversation. dropped: why it is not trained on, None where it is."""

    number: int
    place: str
    roles: list[str]
    tokens: list[ViewedToken]
    dropped: str | None

    @property
    def trained(self) -> int:
        """Tokens that would be trained."""
        return sum(token.is_trained for token in self.tokens)


@dataclass
class MaskSummary:
    """Of all lines: tokens and trained tokens of the usable conversations; the others by reason."""

    usable: int = 0
    tokens: int = 0
    trained: int = 0
    dropped: dict[str, Unusable] = field(default_factory=dict)


class MaskViewer:
    """Encodes conversations with one tokenizer, as FineTune does."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_tokens: int) -> None:
        self._builder = ExampleBuilder(tokenizer, max_tokens)
        self._encoder = ChatEncoder(tokenizer)
        self._token_bytes = token_bytes_of(tokenizer)
        self._control = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}

    def view(self, number: int, place: str, messages: Sequence[Message]) -> ViewedExample:
        """Every token of a conversation. Raises StepError where FineTune does."""
        built = self._builder.build(messages, place)
        encoded = self._encoder.encode(messages)
        if isinstance(built, Example):
            is_trained = [label != IGNORED_LABEL for label in built.labels]
        else:
            is_trained = encoded.is_marked
        tokens = [
            ViewedToken(token, text_of_bytes(self._token_bytes[token]), trained, token in self._control)
            for token, trained in zip(encoded.ids, is_trained, strict=True)
        ]
        roles = [message["role"] for message in messages]
        return ViewedExample(number, place, roles, tokens, None if isinstance(built, Example) else built)

    def summarise(self, conversations: Conversations) -> MaskSummary:
        """Counts over all lines, those that hold no conversation included."""
        summary = MaskSummary(dropped=dict(conversations.unusable))
        for messages, place in zip(conversations.conversations, conversations.places, strict=True):
            built = self._builder.build(messages, place)
            if isinstance(built, Example):
                summary.usable += 1
                summary.tokens += len(built.input_ids)
                summary.trained += sum(label != IGNORED_LABEL for label in built.labels)
            else:
                note_unusable(summary.dropped, built, f"{place}: {built}")
        return summary
