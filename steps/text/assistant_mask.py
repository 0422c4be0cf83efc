"""Which tokens of a conversation are trained: the assistant's words and the end of turn after them, nothing else.

The marks of the chat template say which; here each example's trained tokens are spelled out and compared with what the
assistant says, before the first step. A mask that is wrong trains without a complaint and shows in the replies only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from steps.contract import StepError
from steps.text.chat_encoding import TEMPLATE_REMEDY, ChatEncoder
from steps.text.chat_template import END_OF_TURN_TOKEN
from steps.text.conversations import Message, conversation_fault
from steps.text.token_bytes import token_bytes_of

IGNORED_LABEL = -100
TOO_LONG = "end of turn beyond max_tokens"


@dataclass(frozen=True)
class Example:
    """One conversation as tokens: `labels` is input_ids where trained and -100 elsewhere, not shifted.

    prompt_tokens: how many tokens stand before the assistant's last turn. question: the first one's text.
    """

    input_ids: list[int]
    labels: list[int]
    prompt_tokens: int
    question: str = ""

    @property
    def prompt(self) -> list[int]:
        """What the assistant's last turn answers, its header included."""
        return self.input_ids[: self.prompt_tokens]

    @property
    def digest(self) -> str:
        """sha256 of all tokens."""
        return hashlib.sha256(str(self.input_ids).encode()).hexdigest()

    @property
    def question_digest(self) -> str:
        """sha256 of what stands before the first trained token: two answers to one question share it."""
        first = next(index for index, label in enumerate(self.labels) if label != IGNORED_LABEL)
        return hashlib.sha256(str(self.input_ids[:first]).encode()).hexdigest()


class ExampleBuilder:
    """Turns conversations into examples with one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_tokens: int) -> None:
        self._encoder = ChatEncoder(tokenizer)
        self._max_tokens = max_tokens
        self._token_bytes = token_bytes_of(tokenizer)
        self._control = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._begin = tokenizer.bos_token_id
        self._end_of_turn = tokenizer.get_vocab()[END_OF_TURN_TOKEN]

    def build(self, messages: Sequence[Message], where: str) -> Example | str:
        """The checked example, or the reason why the conversation cannot be trained on.

        Raises StepError, which names `where`, if the template marks anything but the assistant's words and ends of
        turn.
        """
        if fault := conversation_fault(messages):
            return fault.reason
        encoded = self._encoder.encode(messages)
        ids = encoded.ids
        runs = marked_runs(encoded.is_marked)
        self._check_runs(ids, runs, messages, where)
        if len(ids) > self._max_tokens:
            return TOO_LONG
        prompt_tokens = runs[-1][0]
        self._check_prompt(ids, prompt_tokens, messages, where)
        labels = [token if mark else IGNORED_LABEL for token, mark in zip(ids, encoded.is_marked, strict=True)]
        question = next(message["content"] for message in messages if message["role"] == "user")
        return Example(ids, labels, prompt_tokens, question)

    def _check_runs(self, ids: list[int], runs: list[tuple[int, int]], messages: Sequence[Message], where: str) -> None:
        wanted = [message["content"].strip() + END_OF_TURN_TOKEN for message in messages if is_assistant(message)]
        found = [b"".join(self._token_bytes[token] for token in ids[start:end]) for start, end in runs]
        # The last token is the end of turn itself, not words that spell it; what an answer spells are words.
        controls = [[token for token in ids[start:end] if token in self._control] for start, end in runs]
        if found != [text.encode() for text in wanted] or controls != [[self._end_of_turn]] * len(wanted):
            shown = [text.decode(errors="replace") for text in found]
            raise StepError(where, f"trained tokens spell {shown}", limit=wanted, remedy=TEMPLATE_REMEDY)
        begins = ids.count(self._begin)
        if begins != 1 or ids[0] != self._begin:
            raise StepError(where, f"{begins} BOS tokens", limit="exactly 1, at the start", remedy=TEMPLATE_REMEDY)

    def _check_prompt(self, ids: list[int], prompt_tokens: int, messages: Sequence[Message], where: str) -> None:
        """The model must be asked with the very tokens that it was trained after."""
        if self._encoder.encode(messages[:-1], add_generation_prompt=True).ids != ids[:prompt_tokens]:
            raise StepError(where, "the generation prompt differs from the trained one", remedy=TEMPLATE_REMEDY)


def is_assistant(message: Message) -> bool:
    return message["role"] == "assistant"


def marked_runs(mask: Sequence[bool]) -> list[tuple[int, int]]:
    """(start, end) of each stretch of marks, end excluded."""
    edges = [False, *mask, False]
    starts = [index for index in range(len(mask)) if not edges[index] and edges[index + 1]]
    ends = [index for index in range(1, len(mask) + 1) if edges[index] and not edges[index + 1]]
    return list(zip(starts, ends, strict=True))
