"""The shape of a base model, what its parameters come to, and the vocabulary that a configuration asks for.

Parameters, with V rows of vocabulary, width h, L layers, kv for the width of keys and values, f for the feed-forward
width:

    V h (twice where embedding and head are not tied) + L (2 h^2 + 2 h kv + 3 h f + 2 h) + h

which is Llama's layer: four projections of attention, three of a gated feed-forward, two norms. Where config.json
gives heads of a width of their own, a = heads x head_dim stands in the place of one h of each h^2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pipeline.config import PipelineConfig
from pipeline.config_text import read_yaml
from steps.contract import ConfigError, nearest_name

SAMPLE = "sample"
# What config.json has to say, all of it whole numbers above zero.
NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
# Families with these layers, but for biases and norms of heads, which are thousandths of a model.
LIKE_LLAMA = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2"})
NAME = re.compile(r"(?P<kind>[a-z-]+)-(?P<size>\d+)")


@dataclass(frozen=True)
class ModelShape:
    """name, source: for people. vocabulary_rows: of the base's own vocabulary. attention_width: heads x head_dim."""

    name: str
    source: str
    vocabulary_rows: int
    width: int
    layers: int
    key_value_width: int
    feed_forward_width: int
    is_tied: bool
    attention_width: int
    is_like_llama: bool = True

    @property
    def layer_parameters(self) -> int:
        attention = 2 * self.width * (self.attention_width + self.key_value_width)
        return attention + 3 * self.width * self.feed_forward_width + 2 * self.width

    def vocabulary_parameters(self, rows: int) -> int:
        """Of embedding and head: one matrix where they are tied, else two."""
        return rows * self.width * (1 if self.is_tied else 2)

    def parameters(self, rows: int) -> int:
        """All of them, with a vocabulary of so many rows."""
        return self.vocabulary_parameters(rows) + self.layers * self.layer_parameters + self.width

    def multiplied_parameters(self, rows: int) -> int:
        """Those that multiply activations: all but an embedding that is not the head, too, of which rows are read."""
        return self.parameters(rows) - (0 if self.is_tied else rows * self.width)

    def adapter_parameters(self, rank: int, modules: tuple[str, ...]) -> int:
        """Of LoRA's two matrices for each of the layers' linear modules that are named."""
        h, f, kv, a = self.width, self.feed_forward_width, self.key_value_width, self.attention_width
        sides = {"q_proj": h + a, "k_proj": h + kv, "v_proj": h + kv, "o_proj": a + h,
                 "gate_proj": h + f, "up_proj": h + f, "down_proj": f + h}  # fmt: skip
        return rank * self.layers * sum(sides.get(module, 2 * h) for module in modules)


def base_model_shape(config: PipelineConfig) -> ModelShape:
    """Of data.base_model where that is a folder here, of plan.base_model_shape where that is set, else the sample's.

    Raises ConfigError for a folder without a usable config.json, an unknown shape, and a model that lies elsewhere and
    has no shape.
    """
    name, place = config.plan.base_model_shape, config.data.base_model
    if name is not None:
        return named_shape(name)
    if place is None:
        return named_shape(SAMPLE)
    if "://" in place:
        limit, remedy = "a shape, for a model that lies elsewhere", f"Set it to one of {', '.join(shape_names())}."
        raise ConfigError("plan.base_model_shape", "missing", limit=limit, remedy=remedy)
    return shape_of_folder(Path(place))


def shape_names() -> list[str]:
    return list(_known_shapes())


def named_shape(name: str) -> ModelShape:
    """A shape of model_shapes.yaml. Raises ConfigError for a name that is not there."""
    known = _known_shapes()
    if name not in known:
        raise ConfigError("plan.base_model_shape", name, remedy=nearest_name(name, list(known)))
    source = "the sample's own, as no base model is named" if name == SAMPLE else "model_shapes.yaml"
    return ModelShape(name=name, source=source, attention_width=known[name]["width"], **known[name])


def shape_of_folder(folder: Path) -> ModelShape:
    """What config.json of a Hugging Face model folder says. Raises ConfigError for a folder that has none of use."""
    path = folder.expanduser() / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = "Name a Hugging Face model folder, or set plan.base_model_shape."
        raise ConfigError("data.base_model", f"{folder} has no config.json to read", remedy=remedy) from error
    except ValueError as error:
        raise ConfigError("data.base_model", f"{path} is no JSON", remedy="Mend it.") from error
    if isinstance(values, dict):
        # Models of several kinds of input keep the language's part in a section of its own.
        values = values.get("text_config") or values
    numbers = _whole_numbers(values, path)
    heads, width = numbers["num_attention_heads"], numbers["hidden_size"]
    head_width = numbers.get("head_dim") or width // heads
    return ModelShape(
        name=folder.name or str(folder),
        source=str(path),
        vocabulary_rows=numbers["vocab_size"],
        width=width,
        layers=numbers["num_hidden_layers"],
        key_value_width=head_width * (numbers.get("num_key_value_heads") or heads),
        feed_forward_width=numbers["intermediate_size"],
        is_tied=bool(values.get("tie_word_embeddings", False)),
        attention_width=head_width * heads,
        is_like_llama=values.get("model_type") in LIKE_LLAMA,
    )


def planned_vocabulary(config: PipelineConfig, shape: ModelShape) -> tuple[int, str]:
    """Rows of the vocabulary to plan with, and the candidate's name.

    The run chooses by measurement; until then train_tokenizer.chosen counts, else the largest vocabulary of the
    language alone, else the base's with the most new tokens.
    """
    section = config.train_tokenizer
    if match := NAME.fullmatch(section.chosen):
        kind, size = match["kind"], int(match["size"])
        if kind == "replaced":
            return shape.vocabulary_rows, section.chosen
        return (shape.vocabulary_rows + size if kind == "extended" else size), section.chosen
    own = [kind for kind in section.kinds if kind not in ("extended", "replaced")]
    if own:
        size = max(section.vocabulary_sizes)
        return size, f"{own[0]}-{size}"
    if "extended" in section.kinds:
        added = max(section.extended_tokens)
        return shape.vocabulary_rows + added, f"extended-{added}"
    return shape.vocabulary_rows, section.kinds[0]


def _known_shapes() -> dict[str, dict[str, Any]]:
    text = (resources.files("pipeline.plan") / "model_shapes.yaml").read_text(encoding="utf-8")
    return read_yaml(text, "model_shapes.yaml")


def _whole_numbers(values: Any, path: Path) -> dict[str, int]:
    """The whole numbers of a configuration. Raises ConfigError where one that is needed is missing."""
    found = values if isinstance(values, Mapping) else {}
    numbers = {
        key: value
        for key, value in found.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    }
    for key in NEEDED:
        if key not in numbers:
            value = f"{path}: {key} {found.get(key, 'missing')}"
            remedy = "Give a Llama-like model, or set plan.base_model_shape."
            raise ConfigError("data.base_model", value, limit="a whole number above 0", remedy=remedy)
    return numbers
