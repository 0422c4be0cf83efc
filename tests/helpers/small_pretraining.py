"""ContinuedPretraining in seconds: tiny sealed inputs, its command line, and several processes of it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract import StepConfig, StepFolders, seal
from steps.modeling.loading import save_model
from steps.text.bbpe import tokenizer_digest
from steps.text.packing import PackedBlocks, Vocabulary, write_part

ROOT = Path(__file__).parents[2]
WORDS = ["bakı", "şəhər", "dəniz", "külək", "qış", "yay", "internet", "paket", "tarif", "zəng", "salam", "kitab"]
BLOCK_TOKENS = 64
VOCABULARY_SIZE = 320
SETTINGS: dict[str, Any] = {
    "phase_1_steps": 4,
    "phase_1_learning_rate": 0.01,
    "phase_2_steps": 6,
    "phase_2_learning_rate": 0.005,
    "global_batch_tokens": 256,
    "device_batch_blocks": 2,
    "precision": "float32",
    "liger": "off",
    "device": "cpu",
    "log_every_steps": 1,
    "validate_every_steps": 4,
    "checkpoint_every_steps": 2,
}


@dataclass(frozen=True)
class PretrainingInputs:
    """model: a Llama of two layers. blocks: train and validation in two documents' mixtures of length."""

    model: Path
    blocks: Path

    @property
    def train(self) -> PackedBlocks:
        return PackedBlocks(self.blocks / "train")

    @property
    def validation(self) -> PackedBlocks:
        return PackedBlocks(self.blocks / "validation")


def make_inputs(
    root: Path, make_tiny_tokenizer: Callable[..., Any], make_tiny_llama: Callable[..., Any], **model_settings: Any
) -> PretrainingInputs:
    """A model folder and the blocks made by its tokenizer, both sealed."""
    tokenizer = make_tiny_tokenizer(vocab_size=VOCABULARY_SIZE)
    model = make_tiny_llama(VOCABULARY_SIZE, initializer_range=0.05, **model_settings)
    save_model(model, tokenizer, root / "model")
    vocabulary = Vocabulary(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        size=len(tokenizer),
        tokenizer_sha256=tokenizer_digest(root / "model"),
    )
    for split, count, first in (("train", 120, 0), ("validation", 16, 1_000)):
        texts = documents(count, first)
        encoded = [(tokenizer(text, add_special_tokens=False)["input_ids"], len(text.encode())) for text in texts]
        write_part(root / "blocks" / split, "part-00000", encoded, BLOCK_TOKENS, vocabulary)
    return PretrainingInputs(seal_folder(root / "model"), seal_folder(root / "blocks"))


def seal_folder(folder: Path) -> Path:
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)
    return folder


def documents(count: int, first: int) -> list[str]:
    """Texts of 1 to 9 words, each another."""
    return [
        " ".join(WORDS[(index * 7 + place * (index % 5 + 1)) % len(WORDS)] for place in range(1 + index % 9))
        for index in range(first, first + count)
    ]


# --- the step's command line ------------------------------------------------------------------------------------------


def arguments(inputs: PretrainingInputs, output: Path, checkpoints: Path | None = None, **settings: Any) -> list[str]:
    folders: dict[str, Any] = {"model": inputs.model, "blocks": inputs.blocks, "output": output}
    if checkpoints is not None:
        folders["checkpoints"] = checkpoints
    return [f"--{name}={value}" for name, value in {**folders, **SETTINGS, **settings}.items()]


def environment(threads: int = 1, **variables: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT), **variables}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun(processes: int, port: int, *, instance: int = 0, instances: int = 1) -> list[str]:
    """torchrun as launch.py starts it on one of several instances. processes: on each of them."""
    return [
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={instances}", f"--node-rank={instance}",
        f"--nproc-per-node={processes}", "--rdzv-backend=static", "--master-addr=127.0.0.1", f"--master-port={port}",
    ]  # fmt: skip


def start(command: Sequence[str], variables: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        list(command), cwd=ROOT, env=environment(**(variables or {})), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def run_processes(
    step_arguments: Sequence[str], processes: int, *, instances: int = 1, module: Sequence[str] | None = None
) -> str:
    """What they printed, all having ended well. processes: on each instance. module: run in the step's place."""
    port = free_port()
    target = list(module or ("-m", "--", "steps.continued_pretraining"))
    commands = [
        [*torchrun(processes, port, instance=instance, instances=instances), *target, *step_arguments]
        for instance in range(instances)
    ]
    running = [start(command) for command in commands]
    ended = [process.communicate(timeout=600) for process in running]
    for process, (_, errors) in zip(running, ended, strict=True):
        assert process.returncode == 0, errors
    return "".join(printed for printed, _ in ended)


def losses(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"^metrics: step=\d+ phase=\d loss=(\S+)", text, re.MULTILINE)]
