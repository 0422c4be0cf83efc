"""One process or many: the process group, sharding with FSDP2, Liger kernels, and who speaks for all.

torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE) says how many processes there are. With one, the model stays
whole on its device and no process group exists. With more, `fully_shard` makes every parameter a DTensor: each layer
is a unit of its own, and the root unit holds the embedding, the last norm and the head, because a matrix that
embedding and head share must lie in one unit.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from steps.contract import ConfigError, warn
from steps.modeling.loading import check_tie, choose_device


@dataclass(frozen=True)
class Processes:
    """This process among those that train together. Its methods must be called by all of them, in the same order."""

    rank: int
    local_rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """True in the one process that prints and writes."""
        return self.rank == 0

    def sum(self, *values: float) -> tuple[float, ...]:
        """The sum over all processes of each value, in float64."""
        if self.world_size == 1:
            return values
        totals = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(totals)
        return tuple(totals.tolist())

    def gather(self, value: Any) -> list[Any]:
        """The value of every process, by rank."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def leave(self) -> None:
        """Waits for the others and ends the process group."""
        if self.world_size > 1:
            dist.barrier()
            dist.destroy_process_group()


def join_processes(device_setting: str) -> Processes:
    """Joins the group that torchrun's environment describes: gloo on CPU, NCCL on CUDA. Raises ConfigError."""
    device = choose_device(device_setting)
    rank, local_rank, world_size = (int(os.environ.get(name, default)) for name, default in
                                    (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")))  # fmt: skip
    if device.type == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if world_size > 1:
        # Both: objects and checkpoints travel over gloo where the gradients travel over NCCL.
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Processes(rank, local_rank, world_size, device)


def place_model(model: PreTrainedModel, processes: Processes, precision: str) -> None:
    """Moves a whole model to the device of one process, or shards it over many, in place."""
    if processes.world_size == 1:
        model.to(processes.device)  # type: ignore[arg-type]
        return
    mesh = init_device_mesh(processes.device.type, (processes.world_size,))
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16_mixed":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    assert is_sharded(model), "a parameter was left out of sharding"
    check_tie(model)
    # FSDP2 fixes each parameter's dtypes at the first forward, from those that are trainable then (pytorch#186998):
    # it must see all of them before phase 1 freezes the backbone.
    with torch.no_grad():
        model(input_ids=torch.zeros((1, 2), dtype=torch.int64, device=processes.device), use_cache=False)
    reshard(model)


def reshard(model: PreTrainedModel) -> None:
    """Makes every parameter a DTensor again: the root unit stays whole after a forward that no backward follows."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def decoder_layers(model: PreTrainedModel) -> torch.nn.ModuleList:
    """The transformer layers, in order."""
    layers = model.get_decoder().layers
    assert isinstance(layers, torch.nn.ModuleList)
    return layers


def is_sharded(model: PreTrainedModel) -> bool:
    """True where every parameter is a DTensor."""
    return all(isinstance(parameter, DTensor) for parameter in model.parameters())


def compute_precision(processes: Processes, precision: str) -> AbstractContextManager:
    """The context of a forward pass: autocast where one process mixes precisions; FSDP2's policy does it for many."""
    if precision == "bfloat16_mixed" and processes.world_size == 1:
        return torch.autocast(processes.device.type, dtype=torch.bfloat16)
    return nullcontext()


def local_value(tensor: torch.Tensor) -> torch.Tensor:
    """This process's share of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_value(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor put together from all processes' shares. All of them must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gather_parameters(model: PreTrainedModel, processes: Processes) -> dict[str, torch.Tensor]:
    """Every parameter by name, whole and on the CPU, in the first process; nothing in the others. All must call it."""
    gathered = {}
    for name, parameter in model.named_parameters():
        value = whole_value(parameter.detach())
        if processes.is_first:
            gathered[name] = value.cpu()
    return gathered


def apply_liger(model: PreTrainedModel, setting: str, device: torch.device) -> bool:
    """Puts Liger's kernels into a model, by Liger's own API; True where that was done.

    off: never. on: always; ConfigError without CUDA, without the package, or for a model that Liger does not know.
    auto: where all three are there, else a line says why not, as a warning where there is a GPU that goes without.
    """
    if setting == "off":
        return False
    missing = None
    if device.type != "cuda":
        missing = "no CUDA device"
    elif importlib.util.find_spec("liger_kernel") is None:
        missing = "the package liger-kernel is not installed"
    else:
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

        if (apply := MODEL_TYPE_TO_APPLY_LIGER_FN.get(model.config.model_type)) is not None:
            apply(model=model)
            return True
        missing = f"it has no kernels for a model of type {model.config.model_type}"
    if setting == "on":
        remedy = "Set liger to auto or off, or install langadapt[gpu] on a machine with CUDA."
        raise ConfigError("liger", f"on, but {missing}", remedy=remedy)
    if device.type == "cuda":
        warn("liger-off", missing)
    else:
        print(f"Liger kernels are off: {missing}", flush=True)
    return False
