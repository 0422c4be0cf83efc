"""Measures how long the hosts of a job take to add up a tensor together. Run under torchrun on each of them.

    torchrun ... containers/all_reduce_check.py FIGURE

NCCL where there are GPUs, 1 GiB a call; gloo else, 16 MiB. The first process of each host writes FIGURE, the same on
every host: {"message_bytes", "processes", "call_seconds", "seconds"}, the seconds of one call those of the slowest
process, a mean over some calls; `seconds` is what the measuring took. bandwidth_check.py makes a bandwidth of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

GPU_BYTES, CPU_BYTES = 2**30, 2**24
WARM_UP_CALLS, CALLS = 3, 10
# The launcher's limit comes first.
GROUP_TIMEOUT = timedelta(hours=1)


def measure(device: torch.device, message_bytes: int) -> float:
    """Seconds of one all-reduce, the mean over some calls, of the slowest process. Called by all processes."""
    values = torch.ones(message_bytes // 4, dtype=torch.float32, device=device)

    def settle() -> None:
        # NCCL's calls return before they are done.
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def call(times: int) -> float:
        dist.barrier()
        settle()
        began = time.monotonic()
        for _ in range(times):
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        settle()
        return (time.monotonic() - began) / times

    call(WARM_UP_CALLS)
    slowest = torch.tensor([call(CALLS)], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def main(figure: Path) -> None:
    """Measures, and leaves the figure once on each host."""
    began = time.monotonic()
    local_rank = int(os.environ["LOCAL_RANK"])
    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpus else "gloo", timeout=GROUP_TIMEOUT)
    size = GPU_BYTES if has_gpus else CPU_BYTES
    found = {
        "message_bytes": size,
        "processes": dist.get_world_size(),
        "call_seconds": measure(device, size),
        "seconds": time.monotonic() - began,
    }
    if local_rank == 0:
        figure.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
