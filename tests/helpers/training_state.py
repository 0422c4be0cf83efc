"""One step of training in each of several processes, and what it left in memory there.

    torchrun ... tests/helpers/training_state.py MODEL BLOCKS PRECISION PARALLELISM

Prints one JSON object a process: `bytes` of the storages that parameters, gradients and moments lie in, and whether
every parameter is a DTensor that is sharded, of which `numbers` lie here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.continued_pretraining import TRAINING_DTYPES
from steps.modeling.batches import BatchPlan, on_device
from steps.modeling.loading import load_model
from steps.modeling.parallel import compute_precision, join_processes, local_value, place_model, replicate
from steps.modeling.training import start_phase
from steps.text.packing import PackedBlocks


def storage_bytes(tensors: list[torch.Tensor]) -> int:
    """Of all storages that the tensors lie in, each once."""
    storages = {local_value(tensor).untyped_storage() for tensor in tensors}
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def main(model_folder: Path, blocks: Path, precision: str, parallelism: str) -> None:
    torch.set_num_threads(1)
    processes = join_processes("cpu", parallelism)
    config = ContinuedPretrainingConfig(
        phase_1_steps=0, phase_1_learning_rate=0.01, phase_2_steps=1, phase_2_learning_rate=0.01,
        global_batch_tokens=256, device_batch_blocks=1, precision=precision, device="cpu",
    )  # fmt: skip
    model = load_model(model_folder, dtype=TRAINING_DTYPES[precision])
    place_model(model, processes, precision)
    optimizer = start_phase(model, config, phase=2)
    called = replicate(model, processes)
    plan = BatchPlan.of(PackedBlocks(blocks / "train"), 256, 1, 0, processes.world_size)
    batch = on_device(plan.device_batches(0, processes.rank, processes.world_size)[0], processes.device)
    with compute_precision(processes, precision):
        called(**batch, use_cache=False).loss.backward()
    optimizer.step()
    parameters = list(model.parameters())
    moments = [optimizer.state[parameter][kind] for parameter in parameters for kind in ("exp_avg", "exp_avg_sq")]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    assert len(gradients) == len(parameters)
    sharded = all(
        isinstance(parameter, DTensor) and all(placement.is_shard() for placement in parameter.placements)
        for parameter in parameters
    )
    numbers = sum(local_value(parameter).numel() for parameter in parameters)
    found = {"bytes": storage_bytes([*parameters, *gradients, *moments]), "sharded": sharded, "numbers": numbers}
    print(json.dumps({"rank": processes.rank, **found}), flush=True)
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
