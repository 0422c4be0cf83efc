"""The check that comes before Liger's kernels are used, on the CPU in Triton's interpreter.

    TRITON_INTERPRET=1 python tests/steps/liger_check_on_cpu.py

Prints one JSON object: by case the differences that `compare_kernels` measured, whether they are beyond tolerance, how
many kernels were launched, and whether the model computes afterwards what it computed before.
"""

from __future__ import annotations

import json
from types import MethodType

import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama
from liger_on_cpu import LAUNCHES, make_interpreter_fit, make_llama

from steps.modeling.fused_kernels import compare_kernels


def spoil_norm(model) -> None:
    """Kernels of which one computes something else: a norm that adds a quarter to its weight."""
    apply_liger_kernel_to_llama(model=model)
    model.model.layers[1].input_layernorm.offset = 0.25


def spoil_gradient(model) -> None:
    """Kernels whose loss is right, and whose gradient of one matrix is not."""
    apply_liger_kernel_to_llama(model=model)
    layer = model.model.layers[0].mlp
    forward = layer.forward

    def scaled(self, inputs):
        output = forward(inputs)
        return output.detach() + 1.1 * (output - output.detach())

    layer.forward = MethodType(scaled, layer)


def main() -> None:
    torch.set_num_threads(1)
    make_interpreter_fit()
    torch.manual_seed(1)
    labels = torch.randint(0, 96, (1, 8))
    batch = {"input_ids": labels, "position_ids": torch.tensor([[*range(5), *range(3)]]), "labels": labels}
    found = {}
    for name, apply in (("spoilt norm", spoil_norm), ("spoilt gradient", spoil_gradient),
                        ("as they are", apply_liger_kernel_to_llama)):  # fmt: skip
        # The kernels of the case before must be gone from the module that the model comes from, too.
        model = make_llama(tied=True)
        LAUNCHES.clear()
        before = model(**batch, use_cache=False).loss
        assert not LAUNCHES, "the model was fused before it was meant to be"
        difference = compare_kernels(model, apply, batch, torch.device("cpu"), torch.float32)
        launches = sum(LAUNCHES.values())
        LAUNCHES.clear()
        after = model(**batch, use_cache=False).loss
        found[name] = {
            "loss": difference.loss,
            "gradients": difference.gradients,
            "parameter": difference.parameter,
            "beyond": difference.is_beyond(torch.float32),
            "launches": launches,
            "launches_after": sum(LAUNCHES.values()),
            "same_after": bool(torch.equal(before, after)),
            "gradients_left": any(parameter.grad is not None for parameter in model.parameters()),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
