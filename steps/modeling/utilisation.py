"""Model FLOP utilisation: how much of a device's peak goes into the model's own matrix products.

    utilisation = FLOPs a token * tokens/s a device / the device's peak
    FLOPs a token = 4 N + 2 M

N counts the parameters that multiply activations: all but an input embedding that is not the head as well, from which
rows are only read. 2 N go forward, 2 N back through the activations, and 2 M into the gradients of the M parameters
of these that are trained: 6 N a token in phase 2, less in phase 1, whose backbone is frozen. Recomputed activations
and the products inside attention are left out, so the figure is a lower bound.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from steps.modeling.loading import is_tied

# Dense peaks in FLOP/s by a part of the device's name, the more special names first: (bfloat16, float32). From
# NVIDIA's data sheets of each product, without sparsity; float32 without TF32, as it is computed here.
PEAKS: tuple[tuple[str, float, float], ...] = (
    ("B200", 2250e12, 75e12),
    ("H200 NVL", 835e12, 60e12),
    ("H200", 989.5e12, 67e12),
    ("H100 PCIe", 756e12, 51e12),
    ("H100 NVL", 835e12, 60e12),
    ("H100", 989.5e12, 67e12),
    ("A100", 312e12, 19.5e12),
    ("L40S", 362e12, 91.6e12),
    ("L4", 121e12, 30.3e12),
    ("A10G", 70e12, 35e12),
    ("A10", 125e12, 31.2e12),
)


def peak_flops_per_second(device: torch.device, precision: str) -> float | None:
    """The dense peak of a device for a setting of precision; None on CPU and for a GPU that PEAKS does not know."""
    if device.type != "cuda":
        return None
    return peak_of(torch.cuda.get_device_name(device), precision)


def peak_of(device_name: str, precision: str) -> float | None:
    """The same by name, such as NVIDIA A100-SXM4-40GB."""
    words = device_name.replace("-", " ").split()
    for name, bfloat16, float32 in PEAKS:
        if all(word in words for word in name.split()):
            return float32 if precision == "float32" else bfloat16
    return None


def flops_per_token(model: PreTrainedModel, phase: int) -> float:
    """See the module's docstring. A sharded model counts whole."""
    weights: list[Any] = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    embedding, head = (weight.numel() for weight in weights)
    multiplied = sum(parameter.numel() for parameter in model.parameters())
    if not is_tied(model):
        multiplied -= embedding
    trained = multiplied if phase == 2 else head
    return 4.0 * multiplied + 2.0 * trained


class Utilisation:
    """The figures of one training: `flops_per_token` by phase and `peak`, None where no device's peak is known."""

    def __init__(self, model: PreTrainedModel, device: torch.device, precision: str) -> None:
        self.flops_per_token = {phase: flops_per_token(model, phase) for phase in (1, 2)}
        self.peak = peak_flops_per_second(device, precision)

    def of(self, tokens_per_second_per_device: float, phase: int) -> float | None:
        """The share of the peak, between 0 and 1."""
        return tokens_per_second_per_device * self.flops_per_token[phase] / self.peak if self.peak else None
