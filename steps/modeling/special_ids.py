"""Token ids in a model's configuration and generation settings, moved to a new tokenizer: none of the old is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from steps.contract import StepError, warn
from steps.modeling.generation import stop_token_ids

ROLES = ("bos_token_id", "eos_token_id", "pad_token_id")
ID_ENDINGS = ("_token_id", "_token_ids", "_token_index")
# Of generation settings, beside those with such an ending: they hold ids of the old tokenizer.
ID_SETTINGS = ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias")


def set_special_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, new_id: Mapping[int, int] | None = None
) -> None:
    """Begin, end and padding ids of the tokenizer in all configurations.

    new_id: where the model had another tokenizer, new ids by old ones, by which other special ids are moved; generation
    settings with ids of the old one are dropped with a warning.

    Generation ends at the end of a text and at the end of a turn. Raises StepError where the tokenizer has no BOS or
    EOS; where the padding token is missing or ends something, as a model trained so never learns to stop
    (transformers#23530); and for a configuration that needs a token which the new tokenizer lacks.
    """
    ends = stop_token_ids(tokenizer)
    for name, value in (("bos_token", tokenizer.bos_token_id), ("eos_token", tokenizer.eos_token_id)):
        if value is None:
            raise StepError(f"tokenizer {name}", "none", remedy=f"Set {name} in tokenizer_config.json.")
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in ends:
        raise StepError(
            "pad_token",
            tokenizer.pad_token,
            limit="a token that ends nothing",
            remedy="Give a token for padding alone.",
        )
    text_config = model.config.get_text_config()
    for config in configurations(model.config):
        if new_id is not None:
            move_ids(config, new_id)
        for role in ROLES:
            if config is model.config or config is text_config or getattr(config, role, None) is not None:
                setattr(config, role, getattr(tokenizer, role))
    generation = model.generation_config
    if generation is None:
        return
    for name, value in list(vars(generation).items()) if new_id is not None else ():
        if value is not None and name not in ROLES and (name.endswith(ID_ENDINGS) or name in ID_SETTINGS):
            warn("generation-setting-dropped", f"{name} {value} held ids of the base tokenizer")
            setattr(generation, name, None)
    generation.bos_token_id = tokenizer.bos_token_id
    generation.eos_token_id = ends
    generation.pad_token_id = tokenizer.pad_token_id


def configurations(config: PretrainedConfig) -> Iterator[PretrainedConfig]:
    """A configuration and those nested in it."""
    yield config
    for name in config.sub_configs:
        nested = getattr(config, name, None)
        if isinstance(nested, PretrainedConfig):
            yield from configurations(nested)


def move_ids(config: PretrainedConfig, new_id: Mapping[int, int]) -> None:
    """Gives ids other than the three roles' their new values. Raises StepError for one that has none."""
    for name, value in list(vars(config).items()):
        if name in ROLES or not name.endswith(ID_ENDINGS) or value is None:
            continue
        ids = value if isinstance(value, list) else [value]
        if any(index not in new_id for index in ids):
            raise StepError(
                f"base model {name}",
                value,
                limit="a token that the new tokenizer has too",
                remedy="Give a model of text alone, or a tokenizer with that token.",
            )
        moved = [new_id[index] for index in ids]
        setattr(config, name, moved if isinstance(value, list) else moved[0])
