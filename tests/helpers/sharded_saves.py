"""A model saved by several processes of FSDP2 over gloo: as our trainings do it, and in two forms of others.

    RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... tests/helpers/sharded_saves.py MODEL OUTPUT

Writes OUTPUT/sets/key/step-00000003: a set of ours, moments included; OUTPUT/dcp: a nested state with an optimizer's
moments and objects that are no tensors; OUTPUT/shards: torch's HuggingFaceStorageWriter, a file a process.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter

from steps.modeling.checkpoints import CheckpointStore, training_state
from steps.modeling.loading import load_model
from steps.modeling.parallel import join_processes, place_model


def main(model_folder: Path, output: Path) -> None:
    torch.set_num_threads(1)
    processes = join_processes("cpu", "fsdp")
    model = load_model(model_folder)
    place_model(model, processes, "float32")
    with CheckpointStore(output / "sets", "key", 2, processes) as store:
        store.save(3, training_state(model, torch.optim.AdamW(model.parameters(), fused=False)), {"step": 3})

    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    moments = {name: {"exp_avg": torch.zeros_like(value)} for name, value in weights.items()}
    wrapped = {f"_orig_mod.{name}": value for name, value in weights.items()}
    state = {"state_dict": {"model": wrapped, "optim": {"state": moments, "param_groups": [{"lr": 0.1}]}}, "step": "7"}
    dcp.save(state, checkpoint_id=output / "dcp")
    dcp.save(weights, storage_writer=HuggingFaceStorageWriter(str(output / "shards"), save_distributed=True))
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
