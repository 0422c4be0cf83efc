"""Which tensor of a checkpoint is which of a model: by one prefix that all of the model's names have there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from steps.contract import StepError

# Parts of a name that say how a module was wrapped: torch.compile, activation checkpointing, FSDP.
WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
# Parts of a name under which a training keeps what is no weight.
TRAINING_STATE = frozenset(
    {"optim", "optimizer", "optimizers", "lr_scheduler", "scheduler", "train_state", "dataloader", "rng_state"}
)
AMBIGUOUS_REMEDY = "Say which with --prefix=NAME, as it stands before the model's names (--prefix= for none)."


@dataclass(frozen=True)
class ModelNames:
    """A model's tensors by the names that they have in memory or, where these differ, in its safetensors: Mixtral's
    experts, one tensor in memory, are many there, and GPT-NeoX's head has another name.

    groups: for each tensor its names, more than one where it is tied, the parameter's own first. optional: groups that
    a checkpoint may lack, buffers. recomputed: names of what the model makes itself.
    """

    in_files: bool
    groups: Sequence[tuple[str, ...]]
    optional: Collection[tuple[str, ...]]
    recomputed: Collection[str]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, model: PreTrainedModel, *, in_files: bool = False) -> ModelNames:
        stored = _state(model, in_files)
        buffers = {name for name, _ in model.named_buffers()}
        by_tensor: dict[int, list[str]] = {}
        for name, tensor in stored.items():
            by_tensor.setdefault(id(tensor), []).append(name)
        return cls(
            in_files=in_files,
            groups=[tuple(names) for names in by_tensor.values()],
            optional={(name,) for name in stored if name in buffers},
            recomputed=buffers - stored.keys(),
            shapes={name: tuple(tensor.shape) for name, tensor in stored.items()},
        )

    def as_in_files(self, model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors of a model by these names, by those that safetensors of it have."""
        return tensors if self.in_files else revert_weight_conversion(model, tensors)

    def state_of(self, model: PreTrainedModel) -> dict[str, torch.Tensor]:
        """A model's tensors by these names."""
        return _state(model, self.in_files)


def _state(model: PreTrainedModel, in_files: bool) -> dict[str, torch.Tensor]:
    state = model.state_dict(keep_vars=True)
    return revert_weight_conversion(model, state) if in_files else state


@dataclass(frozen=True)
class Match:
    """names: those by which the tensors were found. found: the checkpoint's name of each that it has. passed_over: how
    many of the checkpoint's tensors are none of the model's."""

    names: ModelNames
    prefix: str
    found: Mapping[str, str]
    passed_over: int


def match_names(
    source: Path, shapes: Mapping[str, Sequence[int]], model: PreTrainedModel, prefix: str | None = None
) -> Match:
    """Finds the model's tensors among a checkpoint's, whose shapes by name are given: by their names in memory or,
    where these are not all there, in files.

    prefix: None finds it; one that is given leaves out what lies elsewhere. Raises StepError, naming the first tensor,
    where one is missing, has another shape, or is neither the model's nor a training's state, and where two prefixes
    hold a whole model.
    """
    candidates = _plain_names(source, shapes)
    spellings = [ModelNames.of(model, in_files=in_files) for in_files in (False, True)]
    whole = [names for names in spellings if _whole_prefixes(candidates, names)]
    return _match(source, shapes, candidates, (whole or spellings)[0], prefix)


def _match(
    source: Path,
    shapes: Mapping[str, Sequence[int]],
    candidates: Mapping[str, str],
    model: ModelNames,
    prefix: str | None,
) -> Match:
    chosen = _find_prefix(source, candidates, model) if prefix is None else _without_wrappers(prefix)
    found = {name: candidates[chosen + name] for name in model.shapes if chosen + name in candidates}
    if missing := _missing(chosen, candidates, model):
        value = f"no {chosen}{missing[0]}, one of {len(missing)} tensors missing"
        limit = f"{len(model.groups) - len(model.optional)} by config.json"
        remedy = "Give all files of the checkpoint, and --model the folder of the model that was trained."
        raise StepError(str(source), value, limit=limit, remedy=remedy)
    for name, there in found.items():
        if tuple(shapes[there]) != model.shapes[name]:
            limit = f"{list(model.shapes[name])} by config.json"
            remedy = "Give --model the folder of the model that was trained."
            raise StepError(str(source), f"{there} of shape {list(shapes[there])}", limit=limit, remedy=remedy)
    known = {chosen + name for name in (*model.shapes, *model.recomputed)}
    if prefix is None and (more := sorted(name for plain, name in candidates.items() if plain not in known)):
        limit = f"the model's, with {chosen or 'no prefix'}, and a training's state"
        remedy = f"Say --prefix={chosen} to leave the others out, or give --model the folder of the trained model."
        raise StepError(str(source), f"{more[0]}, one of {len(more)} tensors too many", limit=limit, remedy=remedy)
    return Match(model, chosen, found, len(shapes) - len(found))


def _plain_names(source: Path, names: Iterable[str]) -> dict[str, str]:
    """The names of what may be weights, without their wrappers', and as they are."""
    plain: dict[str, str] = {}
    for name in names:
        if TRAINING_STATE.isdisjoint(name.split(".")):
            other = plain.setdefault(_without_wrappers(name), name)
            if other != name:
                value = f"{other} and {name}, which are one tensor's names"
                raise StepError(str(source), value, remedy="Give the checkpoint of one model.")
    return plain


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _find_prefix(source: Path, candidates: Collection[str], model: ModelNames) -> str:
    """The prefix under which most of the model's names are; the only one under which all are, if any."""
    counts = _prefixes(candidates, model)
    if not counts:
        first = min(candidates, default="none")
        limit = f"names such as {model.groups[0][0]}, under any prefix"
        remedy = "Give a checkpoint whose names are Hugging Face's, and --model the folder of its model."
        raise StepError(str(source), f"no tensor of the model; the first there is {first}", limit=limit, remedy=remedy)
    whole = _whole_prefixes(candidates, model)
    if len(whole) > 1:
        value = f"whole models under {', '.join(prefix or 'no prefix' for prefix in whole)}"
        raise StepError(str(source), value, limit="one", remedy=AMBIGUOUS_REMEDY)
    return whole[0] if whole else counts.most_common(1)[0][0]


def _prefixes(candidates: Iterable[str], model: ModelNames) -> Counter[str]:
    """How many of the model's names stand behind each prefix."""
    counts: Counter[str] = Counter()
    for name in candidates:
        starts = [0, *(place + 1 for place, character in enumerate(name) if character == ".")]
        counts.update(name[:start] for start in starts if name[start:] in model.shapes)
    return counts


def _whole_prefixes(candidates: Collection[str], model: ModelNames) -> list[str]:
    return sorted(prefix for prefix in _prefixes(candidates, model) if not _missing(prefix, candidates, model))


def _missing(prefix: str, candidates: Collection[str], model: ModelNames) -> list[str]:
    needed = [names for names in model.groups if names not in model.optional]
    return [names[0] for names in needed if not any(prefix + name in candidates for name in names)]
