"""config.json and tokenizer_config.json for readers with transformers 4: model servers, Bedrock.

transformers 5 keeps base and scaling of the rotary positions in `rope_parameters`. Release 4 passes over that name,
reads `rope_theta` and `rope_scaling`, and where they are missing takes 10,000 and no scaling: another model, and nobody
is told. Release 5 reads both forms alike. For a tokenizer without a class of its own release 5 writes a name that
release 4 refuses; `PreTrainedTokenizerFast` both know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOKENIZER_CLASS_5, TOKENIZER_CLASS_4 = "TokenizersBackend", "PreTrainedTokenizerFast"
# In rope_parameters, but settings of their own for release 4.
OWN_SETTINGS = ("rope_theta", "partial_rotary_factor")


def readable_by_release_4(settings: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the rotary positions in both forms; those of nested configurations, too."""
    added = {**settings, **_rope_of_release_4(settings)}
    return {name: readable_by_release_4(part) if _is_nested(name, part) else part for name, part in added.items()}


def in_form_of_release_4(settings: Mapping[str, Any]) -> dict[str, Any]:
    """config.json in the form of release 4 alone, its dtype under the name that release 4 reads."""
    rope = _rope_of_release_4(settings)
    moved = {
        name: part for name, part in settings.items() if not (rope and name == "rope_parameters") and name != "dtype"
    }
    if "dtype" in settings:
        moved["torch_dtype"] = settings["dtype"]
    moved |= rope
    return {name: in_form_of_release_4(moved[name]) if _is_nested(name, moved[name]) else moved[name]
            for name in sorted(moved)}  # fmt: skip


def tokenizer_for_release_4(settings: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json with a class that both releases know."""
    if settings.get("tokenizer_class") != TOKENIZER_CLASS_5:
        return dict(settings)
    return {**settings, "tokenizer_class": TOKENIZER_CLASS_4}


def _rope_of_release_4(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Empty for a model without rotary positions, and for one whose layers differ in them, which has no former form."""
    rope = settings.get("rope_parameters")
    if (
        not isinstance(rope, Mapping)
        or "rope_theta" not in rope
        or any(isinstance(one, Mapping) for one in rope.values())
    ):
        return {}
    scaling = {name: value for name, value in rope.items() if name not in OWN_SETTINGS}
    is_scaled = scaling.get("rope_type", "default") != "default"
    own = {name: rope[name] for name in OWN_SETTINGS if name in rope}
    return {**own, "rope_scaling": scaling if is_scaled else None}


def _is_nested(name: str, part: Any) -> bool:
    return name.endswith("_config") and isinstance(part, Mapping)
