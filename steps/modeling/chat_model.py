"""A model that one can talk to: a conversation in, its reply as pieces of text."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from steps.contract import StepError, warn
from steps.modeling.generation import stop_token_ids
from steps.modeling.loading import load_model, load_tokenizer, stored_dtype
from steps.modeling.streaming import Sampling, stream_reply
from steps.schemas.chat import Ended, Question, Ready
from steps.text.chat_encoding import ChatEncoder
from steps.text.plain_encoding import encode_plain
from steps.text.reply_text import ReplyText
from steps.text.token_bytes import token_bytes_of


class ChatModel:
    """The model and the tokenizer of a folder, in the dtype that it is stored in.

    takes_plain_text: a model whose tokenizer lacks the tokens of a chat is asked the last question as plain text, which
    is warned of; otherwise it is a StepError, as is every folder that `load_model` refuses.
    """

    def __init__(
        self, folder: Path, device: torch.device, *, trust_remote_code: bool = False, takes_plain_text: bool = False
    ) -> None:
        # The tokenizer first: what it lacks is told before gigabytes are read.
        self.tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
        self._encoder = self._chat_encoder(folder, takes_plain_text)
        dtype = stored_dtype(folder, trust_remote_code=trust_remote_code)
        self.model = load_model(folder, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        self.context_tokens: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        self._token_bytes = token_bytes_of(self.tokenizer)
        self._stop_ids = stop_token_ids(self.tokenizer)
        # Of all of them, those that have no name such as eos_token as well.
        added = self.tokenizer.added_tokens_decoder
        self._control_ids = frozenset(index for index, token in added.items() if token.special)

    def _chat_encoder(self, folder: Path, takes_plain_text: bool) -> ChatEncoder | None:
        try:
            return ChatEncoder(self.tokenizer)
        except StepError as error:
            if not takes_plain_text:
                subject = f"{folder}, {error.subject}"
                raise StepError(subject, error.value, limit=error.limit, remedy=error.remedy) from error
            message = f"{folder} was not made to chat ({error.value}): it gets each question alone, as plain text"
            warn("plain-questions", message)
            return None

    @property
    def ready(self) -> Ready:
        dtype = str(self.model.dtype).removeprefix("torch.")
        return Ready(parameters=self.model.num_parameters(), dtype=dtype, device=self.model.device.type)

    def reply(
        self,
        question: Question,
        *,
        max_new_tokens: int,
        sampling: Sampling,
        on_text: Callable[[str], None],
        is_stopped: Callable[[], bool],
    ) -> Ended:
        """Calls on_text with each piece of the reply. Raises StepError for a question longer than the context."""
        begun = time.monotonic()
        prompt, left_out = self.prompt(question, max_new_tokens)
        text = ReplyText(self._token_bytes, self._control_ids)
        count = 0

        def on_token(token_id: int) -> None:
            nonlocal count
            count += 1
            if piece := text.add(token_id):
                on_text(piece)

        stopped = stream_reply(
            self.model, prompt,
            new_tokens=max_new_tokens if self.context_tokens is None
            else min(max_new_tokens, self.context_tokens - len(prompt)),
            stop_ids=self._stop_ids, vocabulary_size=len(self.tokenizer), sampling=sampling,
            on_token=on_token, is_stopped=is_stopped,
        )  # fmt: skip
        if piece := text.finish():
            on_text(piece)
        return Ended(
            number=question.number, stopped=stopped, prompt_tokens=len(prompt), tokens=count,
            left_out_messages=left_out, context_tokens=self.context_tokens, seconds=round(time.monotonic() - begun, 3),
        )  # fmt: skip

    def prompt(self, question: Question, max_new_tokens: int) -> tuple[list[int], int]:
        """The token ids of a conversation with its reply to come, and how many of its oldest messages are left out.

        They are left out a turn at a time, never the system prompt, until the reply has the room that it may take, be
        it half of the context at most. The question alone needs room for one token of a reply.
        """
        messages = [message.model_dump() for message in question.messages]
        system = messages[:1] if messages[0]["role"] == "system" else []
        turns = messages[len(system) :]
        ids = self._encode(system + turns)
        context, left_out = self.context_tokens, 0
        if context is None:
            return ids, 0
        while len(turns) > 1 and len(ids) + min(max_new_tokens, context // 2) > context:
            turns, left_out = turns[2:], left_out + 2
            ids = self._encode(system + turns)
        if len(ids) >= context:
            limit = f"{context - 1}, as the model reads {context} with its reply"
            asked = "question and system prompt" if system else "question"
            raise StepError(asked, f"{len(ids)} tokens", limit=limit, remedy="Ask a shorter one.")
        return ids, left_out

    def _encode(self, messages: list[dict[str, str]]) -> list[int]:
        if self._encoder is not None:
            return self._encoder.encode(messages, add_generation_prompt=True).ids
        (ids,) = encode_plain(self.tokenizer, [messages[-1]["content"]])
        begin = self.tokenizer.bos_token_id
        return ids if begin is None and ids else [self.tokenizer.eos_token_id if begin is None else begin, *ids]
