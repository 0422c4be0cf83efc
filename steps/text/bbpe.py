"""Byte-level BPE (BBPE) in the configuration of Llama 3.2's own tokenizer, only the vocabulary differing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer, decoders, models, pre_tokenizers, processors

from steps.contract import StepError
from steps.text.bbpe_training import Texts, byte_level_splits, train_merges
from steps.text.chat_template import (
    BOS_TOKEN,
    END_HEADER_TOKEN,
    END_OF_TURN_TOKEN,
    EOS_TOKEN,
    PAD_TOKEN,
    START_HEADER_TOKEN,
)

# Llama 3's pre-tokenisation without what it knows of English, and with it.
# The contractions cut Turkic suffixes, which an apostrophe parts from names: Bakı'da becomes Bakı + 'd + a, whereas
# without them 'da stays whole as 'nın and ’lı do anyway. English loses nothing: "it's" still gives it + 's, since an
# apostrophe joins the letters behind it.
APOSTROPHE_PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + APOSTROPHE_PATTERN
_NAMED = [
    BOS_TOKEN,
    EOS_TOKEN,
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    PAD_TOKEN,
    "<|reserved_special_token_2|>",
    START_HEADER_TOKEN,
    END_HEADER_TOKEN,
    "<|eom_id|>",
    END_OF_TURN_TOKEN,
    "<|python_tag|>",
]
# Llama 3.2's 256 special tokens in the order of their ids; they follow the vocabulary of the merges.
SPECIAL_TOKENS = [*_NAMED, *(f"<|reserved_special_token_{number}|>" for number in range(3, 256 - len(_NAMED) + 3))]
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)


def train_bbpe(texts: Texts, vocabulary_size: int, min_frequency: int, pattern: str = LLAMA_3_PATTERN) -> Tokenizer:
    """A tokenizer of at most `vocabulary_size` tokens, special ones included, trained on documents that are read once
    or twice: a list, say, or a function that begins them anew.

    A text may give fewer; `learnt_tokens` says how many. Raises StepError for a size below bytes and special tokens.
    """
    check_size(vocabulary_size)
    vocabulary, merges = train_merges(texts, vocabulary_size - len(SPECIAL_TOKENS), min_frequency, pattern)
    return assemble(vocabulary, merges, pattern)


def learnt_tokens(tokenizer: Tokenizer) -> int:
    """The size that the training text gave a tokenizer of `train_bbpe`: bytes, merges and special tokens."""
    return tokenizer.get_vocab_size(with_added_tokens=True)


def check_size(vocabulary_size: int) -> None:
    """Raises StepError for a size that leaves no room behind bytes and special tokens."""
    if vocabulary_size < SMALLEST_VOCABULARY:
        raise StepError(
            "train_tokenizer.vocabulary_sizes",
            vocabulary_size,
            limit=f"{SMALLEST_VOCABULARY} tokens: 256 bytes and {len(SPECIAL_TOKENS)} special ones",
            remedy="Ask for more.",
        )


def shrink(tokenizer: Tokenizer, vocabulary_size: int) -> Tokenizer:
    """The tokenizer that the same training gives for a smaller vocabulary: BPE's merges are made one after another.

    It keeps the pattern. Raises StepError where the training text gave fewer tokens, and as train_bbpe does.
    """
    check_size(vocabulary_size)
    model = json.loads(tokenizer.to_str())["model"]
    wanted = vocabulary_size - len(SPECIAL_TOKENS)
    vocabulary = {token: number for token, number in model["vocab"].items() if number < wanted}
    if len(vocabulary) < wanted:
        raise StepError(
            "train_tokenizer.vocabulary_sizes",
            vocabulary_size,
            limit=f"{len(vocabulary) + len(SPECIAL_TOKENS)} tokens that the training text gives",
            remedy="Give more text or ask for a smaller vocabulary.",
        )
    merges = []
    for first, second in model["merges"]:
        if (number := model["vocab"][first + second]) >= wanted:
            break
        merges.append((first, second))
        if number == wanted - 1:
            break
    return assemble(vocabulary, merges, pattern_of(tokenizer))


def llama_3_pre_tokenizer(pattern: str = LLAMA_3_PATTERN) -> pre_tokenizers.PreTokenizer:
    """Split by Llama 3's pattern, or another in its place, then bytes."""
    return byte_level_splits(pattern)


def pattern_of(tokenizer: Tokenizer) -> str:
    """The pattern of a tokenizer that `assemble` made."""
    steps = json.loads(tokenizer.to_str())["pre_tokenizer"]["pretokenizers"]
    patterns: list[str] = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    assert len(patterns) == 1, f"{len(patterns)} patterns"
    return patterns[0]


def assemble(vocabulary: dict[str, int], merges: Iterable[Any], pattern: str = LLAMA_3_PATTERN) -> Tokenizer:
    """A whole tokenizer around a vocabulary and its merges: special tokens behind it, BOS before each text."""
    pairs = [(first, second) for first, second in merges]
    return finish(Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=True)), pattern)


def finish(tokenizer: Tokenizer, pattern: str) -> Tokenizer:
    """Puts around a byte-level model what stands around Llama 3's: pre-tokenisation, decoder, special tokens, BOS."""
    tokenizer.pre_tokenizer = llama_3_pre_tokenizer(pattern)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    begin_with_bos(tokenizer)
    return tokenizer


def begin_with_bos(tokenizer: Tokenizer) -> None:
    """Puts one BOS before each text, as Llama 3 does."""
    bos_id = tokenizer.token_to_id(BOS_TOKEN)
    # The id is the new vocabulary's own: a post-processor taken from the base would put the base's BOS id here.
    template = processors.TemplateProcessing(
        single=f"{BOS_TOKEN} $A", pair=f"{BOS_TOKEN} $A {BOS_TOKEN} $B:1", special_tokens=[(BOS_TOKEN, bos_id)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    assert tokenizer.encode("a").ids[0] == bos_id


def encode_as_text(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    """Token ids of texts, no special tokens added.

    The spelling of a special token, say <|eot_id|> in a page about chat templates, becomes the tokens of its
    characters: text must never give the model an order.
    """
    before = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True
    try:
        return tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    finally:
        tokenizer.encode_special_tokens = before


def load_fast_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizers object of a folder's tokenizer.json, without truncation or padding. Raises StepError."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise StepError(str(folder), "no tokenizer.json", remedy="Give a folder with a fast tokenizer.")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises nothing more special for a file that it cannot read.
        raise StepError(str(path), f"damaged ({error})", remedy="Fetch the tokenizer again.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_digest(folder: Path) -> str:
    """sha256 of what a folder's tokenizer does, whatever wrote its tokenizer.json."""
    return hashlib.sha256(load_fast_tokenizer(folder).to_str(pretty=False).encode()).hexdigest()
