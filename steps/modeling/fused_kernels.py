"""Liger's kernels: put into a model by Liger's own API, and kept only where they compute what the model computes.

Before training, on a GPU, loss and gradients of one batch are compared with those of the model as transformers has it.
The comparison takes the first layers alone: every layer has the same kernels, and a large model need not fit twice.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy
import torch
from transformers import PreTrainedModel

from steps.contract import ConfigError, warn
from steps.modeling.parallel import Processes, decoder_layers

CHECKED_LAYERS = 2
CHECKED_TOKENS = 512
# Largest relative differences (of the loss, of a parameter's gradient) that the dtype's rounding explains.
TOLERANCES = {torch.float32: (1e-4, 1e-3), torch.bfloat16: (1e-2, 1e-1)}
# A gradient far smaller than the others is compared with this share of their mean, or its rounding would decide.
SMALLEST_SHARE = 1e-2


@dataclass(frozen=True)
class Difference:
    """Between the model with fused kernels and without: relative, the largest over all parameters for gradients."""

    loss: float
    gradients: float
    parameter: str

    def __str__(self) -> str:
        return f"loss differs by {self.loss:.2g}, gradients by {self.gradients:.2g} ({self.parameter})"

    def is_beyond(self, dtype: torch.dtype) -> bool:
        """True where rounding in this dtype does not explain it. NaN counts as beyond."""
        of_loss, of_gradients = TOLERANCES[dtype]
        return not (self.loss <= of_loss and self.gradients <= of_gradients)


def apply_liger(
    model: PreTrainedModel, setting: str, processes: Processes, batch: Mapping[str, numpy.ndarray], precision: str
) -> bool:
    """Puts Liger's kernels into a model that is not yet placed; True where it keeps them.

    off: never. on: always; ConfigError without CUDA, without the package, for a model that Liger does not know, and
    where the check fails. auto: where all of that is there, else a line says why not, as a warning where there is a GPU
    that goes without. batch: blocks as the check reads them (see PackedBlocks.batch). precision: the training's, which
    the check computes in. All processes must call it.
    """
    if setting == "off":
        return False
    apply, missing = _find_kernels(model, processes.device)
    if apply is not None:
        dtype = torch.bfloat16 if precision == "bfloat16_mixed" else model.dtype
        difference = compare_kernels(model, apply, first_tokens(batch), processes.device, dtype)
        # One process's doubt is everybody's: a sharded model's processes must compute alike.
        doubts = [str(found) for found in processes.gather(difference) if found.is_beyond(dtype)]
        if processes.is_first:
            print(f"Liger kernels against the eager model: {difference}", flush=True)
        if doubts:
            missing = f"its kernels do not compute what the model computes: {doubts[0]}"
    if missing is None:
        return True
    if setting == "on":
        remedy = "Set liger to auto or off, or install langadapt[gpu] on a machine with CUDA."
        raise ConfigError("liger", f"on, but {missing}", remedy=remedy)
    if processes.is_first and processes.device.type == "cuda":
        warn("liger-off", missing)
    elif processes.is_first:
        print(f"Liger kernels are off: {missing}", flush=True)
    return False


def _find_kernels(model: PreTrainedModel, device: torch.device) -> tuple[Callable[..., None] | None, str | None]:
    """Liger's function for a model, or why there is none."""
    if device.type != "cuda":
        return None, "no CUDA device"
    if importlib.util.find_spec("liger_kernel") is None:
        return None, "the package liger-kernel is not installed"
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    apply = MODEL_TYPE_TO_APPLY_LIGER_FN.get(model.config.model_type)
    return apply, None if apply else f"it has no kernels for a model of type {model.config.model_type}"


def compare_kernels(
    model: PreTrainedModel,
    apply: Callable[..., None],
    batch: Mapping[str, torch.Tensor],
    device: torch.device,
    dtype: torch.dtype,
) -> Difference:
    """Puts kernels into a model and takes them out again where they are beyond tolerance.

    apply: called as Liger's functions are, apply(model=model). batch: see `first_tokens`. dtype: what is computed in,
    by autocast where the parameters have another. The model comes from the CPU and goes back to it, without gradients.
    """
    undo = _snapshot(model)
    with _few_layers(model, device):
        eager_loss, eager = _loss_and_gradients(model, batch, dtype)
    apply(model=model)
    with _few_layers(model, device):
        loss, gradients = _loss_and_gradients(model, batch, dtype)
    difference = _difference(loss, gradients, eager_loss, eager)
    if difference.is_beyond(dtype):
        undo()
    return difference


def first_tokens(batch: Mapping[str, numpy.ndarray]) -> dict[str, torch.Tensor]:
    """The first tokens of a batch's first block, [1, at most CHECKED_TOKENS]."""
    return {name: torch.from_numpy(array[:1, :CHECKED_TOKENS]) for name, array in batch.items()}


@contextmanager
def _few_layers(model: PreTrainedModel, device: torch.device) -> Iterator[None]:
    """Within it the model has its first layers alone and lies on a device."""
    decoder, layers = model.get_decoder(), decoder_layers(model)
    decoder.layers = layers[:CHECKED_LAYERS]
    was_training = model.training
    model.to(device).train()  # type: ignore[arg-type]
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)
        model.to("cpu").train(was_training)  # type: ignore[arg-type]
        decoder.layers = layers


def _loss_and_gradients(
    model: PreTrainedModel, batch: Mapping[str, torch.Tensor], dtype: torch.dtype
) -> tuple[float, dict[str, torch.Tensor]]:
    """Gradients by name, float32 on the CPU: the device holds one set at a time."""
    inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
    mixed = torch.autocast(model.device.type, dtype=dtype) if dtype != model.dtype else nullcontext()
    with mixed:
        loss = model(**inputs, use_cache=False).loss
    loss.backward()
    gradients = {
        name: parameter.grad.float().cpu() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    return float(loss.detach()), gradients


def _difference(
    loss: float, gradients: dict[str, torch.Tensor], eager_loss: float, eager: dict[str, torch.Tensor]
) -> Difference:
    if gradients.keys() != eager.keys():
        odd = sorted(gradients.keys() ^ eager.keys())[0]
        return Difference(abs(loss / eager_loss - 1), float("nan"), f"{odd} has a gradient in one of them")
    norms = {name: float(value.norm()) for name, value in eager.items()}
    floor = SMALLEST_SHARE * sum(norms.values()) / len(norms)
    found = {name: float((gradients[name] - eager[name]).norm()) / max(norms[name], floor) for name in eager}
    # A NaN is the largest of all.
    largest = max(found, key=lambda name: (found[name] != found[name], found[name]))
    return Difference(abs(loss / eager_loss - 1), found[largest], largest)


def _snapshot(model: PreTrainedModel) -> Callable[[], None]:
    """A function that gives the model, and the module of transformers that it comes from, their own functions back."""
    modules = [(module, dict(module.__dict__)) for module in model.modules()]
    source = sys.modules[type(model).__module__]
    names = dict(vars(source))

    def undo() -> None:
        for module, attributes in modules:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        vars(source).update(names)

    return undo
