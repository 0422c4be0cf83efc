"""The tokens around a document in a block of tokens, as a tokenizer's own settings name them.

A tokenizer without BOS (Qwen) has its EOS before a document, as Evaluate does (steps/modeling/bits_per_byte.py), and
one without EOS its BOS behind it: in the stream that such a model was trained on, that is what stood there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from steps.contract import StepError
from steps.contract.model_folder import PLAIN_TOKENIZER_CLASSES, read_tokenizer_settings

ROLES = ("bos_token", "eos_token", "pad_token")
REMEDY = "Set bos_token, eos_token and pad_token in the base model's tokenizer_config.json."


@dataclass(frozen=True)
class DocumentMarks:
    """Ids of the token before a document, of the one behind it, and of padding."""

    begin: int
    end: int
    pad: int


def document_marks(folder: Path, tokenizer: Tokenizer) -> DocumentMarks:
    """Of a tokenizer folder; tokenizer: its tokenizer.json. Raises StepError where a token is not to be had."""
    ids: dict[str, int] = {}
    for role, token in named_tokens(folder).items():
        found = tokenizer.token_to_id(token)
        if found is None:
            raise StepError(str(folder), f"{role} {token}", limit="a token of its tokenizer.json", remedy=REMEDY)
        ids[role] = found
    around = [ids[role] for role in ROLES[:2] if role in ids]
    if not around:
        raise StepError(str(folder), "the tokenizer has no BOS and no EOS token", remedy=REMEDY)
    begin, end = around[0], around[-1]
    return DocumentMarks(begin, end, _padding(folder, tokenizer, ids.get("pad_token"), begin, end))


def _padding(folder: Path, tokenizer: Tokenizer, own: int | None, begin: int, end: int) -> int:
    """A token whose labels may be left out of the loss wherever it stands: the one at a document's end may not.

    That before a document has no label anyhow; of the special tokens no text has any.
    """
    special = sorted(index for index, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    for index in (own, begin, *special):
        if index is not None and index != end:
            return index
    value = "no token for padding beside the one that ends a document"
    raise StepError(str(folder), value, remedy=REMEDY)


def named_tokens(folder: Path) -> dict[str, str]:
    """The tokens of ROLES that a tokenizer has, from its settings; where these say nothing, from its class."""
    settings, legacy = read_tokenizer_settings(folder), folder / "special_tokens_map.json"
    if legacy.is_file():
        settings = json.loads(legacy.read_bytes()) | settings
    found: dict[str, Any] = {role: settings[role] for role in ROLES if role in settings}
    says_nothing = any(role not in found for role in ROLES[:2])
    if says_nothing and settings.get("tokenizer_class") not in PLAIN_TOKENIZER_CLASSES[1:]:
        found = _tokens_of_class(folder) | found
    texts = {role: token["content"] if isinstance(token, dict) else token for role, token in found.items()}
    return {role: text for role, text in texts.items() if text}


def _tokens_of_class(folder: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError, KeyError) as error:
        raise StepError(str(folder), f"its class is not known ({error})", remedy=REMEDY) from error
    return {role: getattr(tokenizer, role) for role in ROLES}
