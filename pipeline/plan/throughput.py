"""How fast a GPU trains: FLOPs of the model, one utilisation a family of GPUs, and the memory traffic that Liger saves.

    seconds a token = (FLOPs a token + recomputed) / (peak x utilisation) + traffic / bandwidth
    FLOPs a token   = 4 N + 2 M

N counts the parameters that multiply activations, M those of them that are trained: phase 2 makes 6 N of it, phase 1,
whose backbone is frozen, 4 N and the 2 V h of the head. It is what steps/modeling/utilisation.py reports as
model_flop_utilisation, so that a run's own figure can be held against ours. recomputed: 2 N with activation
checkpointing. traffic: none with Liger, whose fused kernels read and write less; counted by operation (docs/plan.md),
PyTorch's own move so many bytes a token more, forward and back:

    30 V + L (176 h + 36 (h + kv) + 12 f)
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.plan.gpus import Gpu
from pipeline.plan.model_shapes import ModelShape

# Share of the dense peak with Liger, calibrated with what was published of each (docs/plan.md). Of the others nothing
# was published that could be used: the lower of the two stands for them, and it is said.
UTILISATION = {"A100": 0.22, "H100": 0.60}


@dataclass(frozen=True)
class Throughput:
    """One GPU at one model's training."""

    shape: ModelShape
    rows: int
    gpu: Gpu
    precision: str
    has_liger: bool
    is_checkpointed: bool = False

    @property
    def utilisation(self) -> float:
        return UTILISATION.get(self.gpu.name, min(UTILISATION.values()))

    @property
    def is_calibrated(self) -> bool:
        """False where another family's utilisation stands in."""
        return self.gpu.name in UTILISATION

    def flops_per_token(self, phase: int) -> float:
        """FLOPs of the model for one token, forward and back, in phase 1 or 2."""
        return flops_per_token(self.shape, self.rows, phase)

    def seconds_per_token(self, phase: int) -> float:
        """Of one GPU."""
        flops = self.flops_per_token(phase)
        if self.is_checkpointed:
            flops += 2 * self.shape.multiplied_parameters(self.rows)
        seconds = flops / (self.gpu.peak_flops(self.precision) * self.utilisation)
        if not self.has_liger:
            seconds += unfused_bytes_per_token(self.shape, self.rows) / self.gpu.bandwidth
        return seconds


def flops_per_token(shape: ModelShape, rows: int, phase: int) -> float:
    """4 N + 2 M: see the module."""
    multiplied = shape.multiplied_parameters(rows)
    trained = multiplied if phase == 2 else rows * shape.width
    return 4.0 * multiplied + 2.0 * trained


def unfused_bytes_per_token(shape: ModelShape, rows: int) -> float:
    """Bytes that move to and from a GPU's memory without Liger and not with it, for one token in bfloat16."""
    h, kv, f = shape.width, shape.key_value_width, shape.feed_forward_width
    return 30 * rows + shape.layers * (176 * h + 36 * (h + kv) + 12 * f)
