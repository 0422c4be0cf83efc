"""One process or many: the process group, whole copies with DDP or shards with FSDP2, and who speaks for all.

torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE) says how many processes there are. With one, the model stays
whole on its device and no process group exists. With more, `fully_shard` makes every parameter a DTensor: each layer
is a unit of its own, and the root unit holds the embedding, the last norm and the head, because a matrix that
embedding and head share must lie in one unit. DDP keeps a whole copy in each process and adds up the gradients.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from steps.contract import ConfigError, StepError
from steps.modeling.loading import check_tie, choose_device

LONGEST_EXPORT = timedelta(hours=6)
# What gloo, NCCL and torch's store say when a process at the other end is gone.
_LOST = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|Socket Timeout|recvBytes|sendBytes|gloo/transport|ncclRemoteError"
    r"|NCCL.*(remote process exited|connection closed|aborted)|Timed out waiting",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Processes:
    """This process among those that train together. Its methods must be called by all of them, in the same order.

    parallelism: none, ddp or fsdp.
    """

    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    parallelism: str = "none"

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

    def gather(self, value: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
        """The value of every process, by rank. group: from `new_group`; without one the group that trains."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=group)
        return values

    def new_group(self) -> dist.ProcessGroup | None:
        """All processes once more, over gloo, for a thread that speaks beside the training; None for one process."""
        return dist.new_group(backend="gloo") if self.world_size > 1 else None

    def leave(self) -> None:
        """Waits for the others and ends the process group.

        Over gloo: the first process may export a large model meanwhile, and NCCL gives up after ten minutes.
        """
        if self.parallelism != "none":
            dist.barrier(dist.new_group(backend="gloo", timeout=LONGEST_EXPORT))
            dist.destroy_process_group()


def join_processes(device_setting: str, parallelism: str = "auto") -> Processes:
    """Joins the group that torchrun's environment describes: gloo on CPU, NCCL on CUDA. Raises ConfigError.

    parallelism: as the setting of that name says.
    """
    device = choose_device(device_setting)
    rank, local_rank, world_size = (int(os.environ.get(name, default)) for name, default in
                                    (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")))  # fmt: skip
    if device.type == "cuda":
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if parallelism == "auto":
        parallelism = "fsdp" if world_size > 1 else "none"
    if parallelism == "none" and world_size > 1:
        remedy = "Set parallelism to auto, ddp or fsdp, or start one process."
        raise ConfigError("parallelism", f"none with {world_size} processes", limit="1 process", remedy=remedy)
    if parallelism != "none":
        # Both: objects and checkpoints travel over gloo where the gradients travel over NCCL.
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        if world_size > 1:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return Processes(rank, local_rank, world_size, device, parallelism)


@contextmanager
def telling_lost_processes(processes: Processes) -> Iterator[None]:
    """Raises StepError where another process is gone: its own log has the cause, this one has nothing to add."""
    try:
        yield
    except RuntimeError as error:
        if processes.world_size == 1 or not _LOST.search(str(error)):
            raise
        raise StepError(
            f"process {processes.rank} of {processes.world_size}",
            "another process ended and left it alone",
            remedy="See the log for what ended it first, then give the same command again: training goes on from its "
            "last checkpoint.",
        ) from error


def place_model(model: PreTrainedModel, processes: Processes, precision: str) -> None:
    """Moves a whole model to the device of this process, or with fsdp shards it over all of them, in place."""
    if processes.parallelism != "fsdp":
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


def compile_layers(model: PreTrainedModel) -> None:
    """Has torch compile each layer at its first call, in place and before it is sharded: names stay as they are."""
    for layer in decoder_layers(model):
        layer.compile()


def replicate(model: PreTrainedModel, processes: Processes) -> torch.nn.Module:
    """What a step calls in place of the model: with ddp a wrapper that adds up the gradients over all processes.

    DDP takes the parameters that are trainable when it is made, so each phase makes one.
    """
    if processes.parallelism != "ddp":
        return model
    devices = [processes.device] if processes.device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True)


def accumulating(called: torch.nn.Module, *, is_last: bool) -> AbstractContextManager:
    """The context of one pass of a step: DDP's gradients travel once, with the last. FSDP's shards travel each time,
    or every process would keep whole gradients."""
    if isinstance(called, DistributedDataParallel) and not is_last:
        return called.no_sync()
    return nullcontext()


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
    """The context of a forward pass: autocast where the model is whole; sharded, FSDP2's policy mixes precisions."""
    if precision == "bfloat16_mixed" and processes.parallelism != "fsdp":
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
