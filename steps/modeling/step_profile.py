"""A profile of one training step: which kernels ran, how often and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from steps.contract import warn
from steps.schemas.training import KernelTime, StepProfile

# Kernels that Liger brings into a Llama, by a part of their names.
FUSED_KERNELS = ("rms_norm", "swiglu", "rope", "liger_cross_entropy")
MOST_KERNELS = 60


class StepProfiler:
    """Profiles the one step that it is asked for; `result` is None until then, and for a setting that asks for none.

    On a GPU the GPU's kernels are listed, on CPU torch's operators.
    """

    def __init__(self, setting: str, device: torch.device) -> None:
        self.wanted = setting == "on" or (setting == "auto" and device.type == "cuda")
        self.device = device
        self.result: StepProfile | None = None

    @contextmanager
    def around(self, step: int) -> Iterator[None]:
        """Profiles what happens within, the first time that it is entered."""
        if not self.wanted or self.result is not None:
            yield
            return
        on_gpu = self.device.type == "cuda"
        with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
            yield
            if on_gpu:
                torch.cuda.synchronize(self.device)
        self.result = summarise(profiler.key_averages(), step, on_gpu)


def summarise(averages: Any, step: int, on_gpu: bool) -> StepProfile:
    """The kernels that took longest, and all fused ones. averages: of torch.profiler, one entry a kernel."""
    kernels = [
        KernelTime(
            name=entry.key,
            calls=entry.count,
            microseconds=float(entry.self_device_time_total if on_gpu else entry.self_cpu_time_total),
        )
        for entry in averages
    ]
    kernels = sorted((kernel for kernel in kernels if kernel.calls), key=lambda kernel: -kernel.microseconds)
    fused = [kernel for kernel in kernels if on_gpu and any(part in kernel.name for part in FUSED_KERNELS)]
    return StepProfile(
        step=step + 1,
        total_microseconds=sum(kernel.microseconds for kernel in kernels),
        fused_kernels=fused,
        kernels=kernels[:MOST_KERNELS],
    )


def check_fused(result: StepProfile | None, liger: bool) -> None:
    """Warns where Liger is on and the profiled step ran none of its kernels."""
    if liger and result is not None and not result.fused_kernels:
        warn("no-fused-kernels", "Liger is on, but the profile of a step shows none of its kernels; see training.json")
