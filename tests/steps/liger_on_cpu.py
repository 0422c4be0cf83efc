"""Compares a Llama's loss and gradients with and without Liger's kernels, on the CPU in Triton's interpreter.

    TRITON_INTERPRET=1 python tests/steps/liger_on_cpu.py

Prints one JSON object: `launches` by kernel, and `differences` by case: of the loss, and the largest of any gradient,
both relative to the eager model's. All in float32; the interpreter is too slow for a model of useful size.
"""

from __future__ import annotations

import copy
import json
from collections import Counter

import numpy as np
import torch
import triton.language as tl
from liger_kernel.ops import rms_norm
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM
from triton.runtime import interpreter

LAUNCHES: Counter[str] = Counter()


def make_interpreter_fit() -> None:
    """Triton's interpreter lacks two things that Liger's kernels use on a GPU; and each launch is counted.

    Floats arrive as Python numbers where a GPU gives float32 scalars, and libdevice has no rsqrt.
    """
    assert isinstance(rms_norm._rms_norm_forward_kernel, interpreter.InterpretedFunction), "set TRITON_INTERPRET=1"
    convert, call = interpreter._implicit_cvt, interpreter.GridExecutor.__call__

    def convert_floats_too(argument):
        if type(argument) is float:
            return tl.tensor(interpreter.TensorHandle(np.array([argument], dtype=np.float32), tl.float32), tl.float32)
        return convert(argument)

    def call_and_count(executor, *arguments, **settings):
        LAUNCHES[executor.fn.__name__] += 1
        return call(executor, *arguments, **settings)

    interpreter._implicit_cvt = convert_floats_too
    interpreter.GridExecutor.__call__ = call_and_count
    # Looked up at each call, since the interpreter swaps triton.language's functions while a kernel runs.
    rms_norm.rsqrt = lambda value: tl.rsqrt(value)


def make_llama(tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).train()


def loss_and_gradients(model: LlamaForCausalLM, batch: dict, **normaliser) -> tuple[float, dict[str, torch.Tensor]]:
    loss = model(**batch, use_cache=False, **normaliser).loss
    loss.backward()
    gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    return float(loss), gradients


def main() -> None:
    torch.set_num_threads(1)
    make_interpreter_fit()
    torch.manual_seed(1)
    labels = torch.randint(0, 96, (2, 8))
    batch = {
        "input_ids": labels.clone(),
        # Two documents in the first block, as packing gives them.
        "position_ids": torch.tensor([[*range(5), *range(3)], [*range(8)]]),
        "labels": labels.masked_fill(torch.rand(labels.shape) < 0.25, -100),
    }
    cases = {"mean": {}, "num_items_in_batch": {"num_items_in_batch": torch.tensor(29)}}
    eager = {tied: make_llama(tied) for tied in (True, False)}
    expected = {
        (tied, case): loss_and_gradients(model, batch, **normaliser)
        for tied, model in eager.items()
        for case, normaliser in cases.items()
    }
    assert not LAUNCHES
    differences = {}
    for tied, model in eager.items():
        fused = copy.deepcopy(model)
        apply_liger_kernel_to_llama(model=fused)
        for case, normaliser in cases.items():
            loss, gradients = loss_and_gradients(fused, batch, **normaliser)
            wanted_loss, wanted = expected[tied, case]
            assert gradients.keys() == wanted.keys()
            largest = max(
                float((gradients[name] - wanted[name]).abs().max() / wanted[name].abs().max()) for name in wanted
            )
            differences[f"{case}, {'tied' if tied else 'untied'}"] = [abs(loss / wanted_loss - 1), largest]
    print(json.dumps({"launches": LAUNCHES, "differences": differences}))


if __name__ == "__main__":
    main()
