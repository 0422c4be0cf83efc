"""Which base tokens each token of a new tokenizer comes from; no weights are looked at here.

A token that the base has too is copied: the same bytes, or a special token of the same name or, failing that, of the
same role (begin of text, end of text, padding, the chat's marks). Another token falls into base tokens, its sub-tokens.
Base and new tokenizer may be byte-level or sentencepiece-like, each for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from steps.contract import StepError
from steps.text.byte_characters import byte_of_character
from steps.text.chat_template import END_HEADER_TOKEN, END_OF_TURN_TOKEN, START_HEADER_TOKEN
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import SPACE_PIECE, PieceBytes, TokenBytes, token_bytes_of
from steps.vocabulary_size import VOCABULARY_MULTIPLE

# The marks of a chat under the names that other families give them: Llama 4, ChatML (Qwen), Gemma, Phi.
CHAT_ROLES = {
    START_HEADER_TOKEN: ("<|header_start|>", "<|im_start|>", "<start_of_turn>"),
    END_HEADER_TOKEN: ("<|header_end|>",),
    END_OF_TURN_TOKEN: ("<|eot|>", "<|im_end|>", "<end_of_turn>", "<|end|>"),
}


@dataclass(frozen=True)
class VocabularyPlan:
    """Where each row of the new vocabulary comes from.

    rows: rows of the new matrices, a multiple of 64; tokens: those that the new tokenizer uses.
    base_tokens: rows of the base matrices that stand for a token; the mean is taken over them.
    copied: base id by new id. composed: base ids of the sub-tokens by new id; empty for a special token, and for one
    that the base tokenizer cannot spell. special: new ids of special tokens.
    not_extended: in words, the first id at which the new tokenizer differs from the base; empty where it extends it.
    """

    rows: int
    tokens: int
    base_tokens: int
    copied: dict[int, int]
    composed: dict[int, tuple[int, ...]]
    special: frozenset[int]
    not_extended: str

    @property
    def new_id(self) -> dict[int, int]:
        """New ids by base id; where two new tokens share a base token, the first."""
        return {origin: new for new, origin in reversed(self.copied.items())}


def plan_vocabulary(base: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, base_rows: int) -> VocabularyPlan:
    """The origin of every new row. `base_rows` is the height of the base model's embedding.

    A tokenizer of the base's size or one that extends it keeps the base's height, its unused rows included. Raises
    StepError where tokens spell no bytes, or the base model has fewer rows than its tokenizer tokens.
    """
    if len(base) > base_rows:
        raise StepError(
            "base model",
            f"{base_rows} embedding rows",
            limit=f"{len(base)} tokens of its tokenizer",
            remedy="Give the tokenizer that belongs to the model.",
        )
    base_bytes, new_bytes = token_bytes_of(base), token_bytes_of(new)
    special = {index: token.content for index, token in new.added_tokens_decoder.items() if token.special}
    known = _KnownTokens(base, base_bytes)
    copied: dict[int, int] = {}
    composed: dict[int, tuple[int, ...]] = {}
    missing: list[int] = []
    for index in range(len(new)):
        if index in special:
            origin = _special_origin(base, new, index, special[index])
        else:
            origin = known.find(str(new.convert_ids_to_tokens(index)), new_bytes, index)
        if origin is not None:
            copied[index] = origin
        elif index in special:
            composed[index] = ()
        else:
            missing.append(index)
    pieces = subtokens(base, base_bytes, [new_bytes[index] for index in missing])
    composed.update(zip(missing, pieces, strict=True))
    not_extended = first_difference(base, new)
    keeps_height = not not_extended or len(new) == len(base)
    height = max(len(new), base_rows) if keeps_height else len(new)
    return VocabularyPlan(
        rows=-(-height // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE,
        tokens=len(new),
        base_tokens=len(base),
        copied=copied,
        composed=composed,
        special=frozenset(special),
        not_extended=not_extended,
    )


class _KnownTokens:
    """The base's text tokens, found by spelling or by bytes."""

    def __init__(self, base: PreTrainedTokenizerBase, base_bytes: TokenBytes) -> None:
        self._kind = type(base_bytes)
        special = {index for index, token in base.added_tokens_decoder.items() if token.special}
        self._by_spelling = {base.convert_ids_to_tokens(i): i for i in range(len(base)) if i not in special}
        # Of two tokens of the same bytes, "a" and <0x61>, text gives the one of the shorter spelling.
        by_length = sorted(self._by_spelling.items(), key=lambda entry: (-len(entry[0]), -entry[1]))
        self._by_bytes = {base_bytes[index]: index for _, index in by_length}

    def find(self, spelling: str, token_bytes: TokenBytes, index: int) -> int | None:
        """The base id of a new token, none where the base lacks it."""
        if type(token_bytes) is self._kind and spelling in self._by_spelling:
            return self._by_spelling[spelling]
        return self._by_bytes.get(token_bytes[index])


def _special_origin(base: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, index: int, name: str) -> int | None:
    """The base id of the special token of the same name, or with the same role."""
    base_special = {token.content: number for number, token in base.added_tokens_decoder.items() if token.special}
    if name in base_special:
        return base_special[name]
    if index == new.bos_token_id:
        # A base without BOS read its texts one after another: what stood before a text ended the one before.
        return base.eos_token_id if base.bos_token_id is None else base.bos_token_id
    if index == new.eos_token_id:
        return base.eos_token_id
    if index == new.pad_token_id:
        # A base that pads with its end of text has no padding of its own.
        return None if base.pad_token_id in (base.bos_token_id, base.eos_token_id) else base.pad_token_id
    named = [base_special[other] for other in CHAT_ROLES.get(name, ()) if other in base_special]
    if not named and name == END_OF_TURN_TOKEN:
        return base.eos_token_id
    return named[0] if named else None


def first_difference(base: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase) -> str:
    """The first base id that stands for another token in the new tokenizer, in words; empty where there is none."""
    for index in range(len(base)):
        before = base.convert_ids_to_tokens(index)
        after = new.convert_ids_to_tokens(index) if index < len(new) else None
        if before != after:
            return f"token {index} is {before!r} in the base and {after!r} in the new tokenizer"
    return ""


def subtokens(
    tokenizer: PreTrainedTokenizerBase, token_bytes: TokenBytes, texts: Sequence[bytes]
) -> list[tuple[int, ...]]:
    """The ids that each byte string falls into; empty where the tokenizer has no way to spell it."""
    if isinstance(token_bytes, PieceBytes):
        return [_pieces(tokenizer, token_bytes, text) for text in texts]
    decoded = [text.decode("utf-8", errors="replace") for text in texts]
    encoded = encode_plain(tokenizer, decoded)
    character_of_byte = {byte: character for character, byte in byte_of_character().items()}
    found = []
    for text, ids in zip(texts, encoded, strict=True):
        if b"".join(token_bytes[index] for index in ids) != text:
            # Bytes that end inside a character are no text: the merges are applied to them directly.
            spelling = "".join(character_of_byte[byte] for byte in text)
            found.append(_spelled(tokenizer, token_bytes, spelling, text))
        else:
            found.append(tuple(ids))
    return found


def _pieces(tokenizer: PreTrainedTokenizerBase, token_bytes: TokenBytes, text: bytes) -> tuple[int, ...]:
    """Of a sentencepiece-like tokenizer, whose normaliser would put a space before each text: its model is asked."""
    try:
        spelling = text.decode("utf-8").replace(" ", SPACE_PIECE)
    except UnicodeDecodeError:
        bytes_alone = [tokenizer.get_vocab().get(f"<0x{byte:02X}>") for byte in text]
        return tuple(index for index in bytes_alone if index is not None) if None not in bytes_alone else ()
    return _spelled(tokenizer, token_bytes, spelling, text)


def _spelled(
    tokenizer: PreTrainedTokenizerBase, token_bytes: TokenBytes, spelling: str, text: bytes
) -> tuple[int, ...]:
    ids = tuple(token.id for token in tokenizer.backend_tokenizer.model.tokenize(spelling))
    return ids if b"".join(token_bytes[index] for index in ids) == text else ()
