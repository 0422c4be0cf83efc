"""Conversations as token ids by a tokenizer's chat template: control tokens come from the template alone.

A user may type <|eot_id|>. `apply_chat_template` reads it as the token itself, which ends the turn in which it was
asked about; here it is text like any other. Where no message spells a special token, the ids are those of
`apply_chat_template`, which the encoder makes sure of before it is used.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from steps.contract import StepError, warn
from steps.text.chat_template import CHAT_TEMPLATE, CHAT_TOKENS, END_OF_TURN_TOKEN, PAD_TOKEN
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import spelled_sizes, token_bytes_of

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")
TEMPLATE_REMEDY = "Use the tokenizer that TrainTokenizer made, with its chat template."
# What is put into a special token that a message spells, so that the template's own stand out: letters for private use.
BREAKERS = range(0xE000, 0xF900)
PROBE = [
    {"role": "user", "content": "Salam! 1 + 1?"},
    {"role": "assistant", "content": "İki:\n\n2"},
    {"role": "user", "content": "Sağ ol"},
]


@dataclass(frozen=True)
class EncodedChat:
    """`ids` of a whole conversation; `is_marked`: for each, whether the template marks it as the assistant's."""

    ids: list[int]
    is_marked: list[bool]


def make_chat_ready(tokenizer: PreTrainedTokenizerBase) -> None:
    """Gives a tokenizer without template, or with one that marks nothing, ours; and one whose padding token is missing
    or ends something, one that does not. Both are warned of.

    Raises StepError where the tokens for that, or for the end of a turn, are not in its vocabulary.
    """
    known = tokenizer.get_vocab()
    template = tokenizer.chat_template
    if not isinstance(template, str) or not GENERATION_MARK.search(template):
        missing = [token for token in CHAT_TOKENS if token not in known]
        if missing:
            value = "no chat template" if template is None else "a chat template without generation marks"
            limit = f"marks, or the tokens of ours, of which {', '.join(missing)} are missing"
            raise StepError("tokenizer", value, limit=limit, remedy=TEMPLATE_REMEDY)
        tokenizer.chat_template = CHAT_TEMPLATE
        found = "has none" if template is None else "does not mark what the assistant says"
        warn("chat-template-replaced", f"the tokenizer's chat template {found}: Llama 3's form is used, with marks")
    if END_OF_TURN_TOKEN not in known:
        raise StepError("tokenizer", f"no token {END_OF_TURN_TOKEN}", remedy=TEMPLATE_REMEDY)
    # A token that ends a turn and pads is masked with the padding, and the model never learns to stop.
    if tokenizer.pad_token is None or tokenizer.pad_token in (tokenizer.eos_token, END_OF_TURN_TOKEN):
        if PAD_TOKEN not in known:
            limit = "a token of its own, neither end of text nor end of turn"
            raise StepError("pad_token", tokenizer.pad_token, limit=limit, remedy=TEMPLATE_REMEDY)
        warn("pad-token-replaced", f"the tokenizer pads with {tokenizer.pad_token}: {PAD_TOKEN} is used")
        tokenizer.pad_token = PAD_TOKEN


class ChatEncoder:
    """Encodes conversations with one tokenizer, which is made ready for it (see `make_chat_ready`).

    Raises StepError for a tokenizer that is not, or whose template or tokens read differently piece by piece.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        make_chat_ready(tokenizer)
        self.tokenizer = tokenizer
        self._token_bytes = token_bytes_of(tokenizer)
        # The longest first, as the tokenizer itself looks for them.
        self._id_of = {token.content: index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        longest_first = sorted(self._id_of, key=lambda token: (-len(token), token))
        self._special = re.compile("|".join(re.escape(token) for token in longest_first))
        wanted: Any = tokenizer.apply_chat_template(PROBE, tokenize=True, return_dict=True, add_generation_prompt=True)
        if self.encode(PROBE, add_generation_prompt=True).ids != list(wanted["input_ids"]):
            raise StepError("tokenizer", "its chat template gives other tokens piece by piece", remedy=TEMPLATE_REMEDY)

    def encode(self, messages: Sequence[dict[str, str]], *, add_generation_prompt: bool = False) -> EncodedChat:
        """The token ids of a conversation, with the header of an answer to come where add_generation_prompt is set."""
        text, breaker, marks = self._render(messages, add_generation_prompt)
        pieces = self._pieces(text, breaker)
        plain = iter(encode_plain(self.tokenizer, [piece for piece, is_control in pieces if not is_control]))
        ids: list[int] = []
        is_marked: list[bool] = []
        place = 0
        for piece, is_control in pieces:
            of_piece = [self._id_of[piece]] if is_control else next(plain)
            sizes = spelled_sizes(self._token_bytes, of_piece, piece)
            if sizes is None:
                raise StepError("tokenizer", f"does not spell {piece!r} back", remedy=TEMPLATE_REMEDY)
            for token, size in zip(of_piece, sizes, strict=True):
                ids.append(token)
                is_marked.append(any(start <= place and place + size <= end for start, end in marks))
                place += size
        return EncodedChat(ids, is_marked)

    def _render(
        self, messages: Sequence[dict[str, str]], add_generation_prompt: bool
    ) -> tuple[str, str, list[tuple[int, int]]]:
        """(text, breaker, marked stretches in bytes of the text without breakers)."""
        said = "".join(message["content"] for message in messages)
        breaker = next(chr(code) for code in BREAKERS if chr(code) not in said)
        broken = [
            {**message, "content": self._special.sub(lambda found: break_up(found[0], breaker), message["content"])}
            for message in messages
        ]
        names: dict[str, Any] = self.tokenizer.special_tokens_map
        try:
            rendered: Any = render_jinja_template(
                [broken],
                chat_template=self.tokenizer.chat_template,
                return_assistant_tokens_mask=True,
                add_generation_prompt=add_generation_prompt,
                **names,
            )
        except TemplateError as error:
            raise StepError("chat template", f"refuses a conversation ({error})", remedy=TEMPLATE_REMEDY) from error
        (text,), (marks,) = rendered
        # Bytes before each letter.
        before = [0, *itertools.accumulate(0 if letter == breaker else len(letter.encode()) for letter in text)]
        return text, breaker, [(before[start], before[end]) for start, end in marks]

    def _pieces(self, text: str, breaker: str) -> list[tuple[str, bool]]:
        """The text cut at the template's special tokens: (piece, whether it is one), none empty, without breakers."""
        pieces: list[tuple[str, bool]] = []
        place = 0
        for found in self._special.finditer(text):
            pieces += [(text[place : found.start()], False), (found[0], True)]
            place = found.end()
        pieces.append((text[place:], False))
        return [(piece.replace(breaker, ""), is_control) for piece, is_control in pieces if piece]


def break_up(token: str, breaker: str) -> str:
    """A special token that is none any more."""
    return token[:1] + breaker + token[1:]
