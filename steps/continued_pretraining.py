"""ContinuedPretraining: two phases on packed blocks, embeddings first, then all weights.

    python -m steps.continued_pretraining --model DIR --blocks DIR --output DIR [--checkpoints DIR] --name=value...
    torchrun --nproc-per-node 8 -m steps.continued_pretraining --model=DIR ...     (sharded with FSDP2)

Reads    model        AdaptVocabulary's output
         blocks       TokenizeCorpus' output
         checkpoints  unfinished work of an earlier attempt on the same settings and inputs; written, too
Writes   config.json, generation_config.json, model.safetensors, tokenizer files   the trained model
         training.json   both phases, speed, memory, bits per byte on the validation blocks

precision float32 exports float32; bfloat16 and bfloat16_mixed export bfloat16, the precision that the model computed
in: float32 masters are of use to an optimizer alone. TensorBoard events go to the folder that the environment variable
LANGADAPT_TENSORBOARD names; without it none are written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.continued_pretraining import NOT_LEARNED, ContinuedPretrainingConfig
from steps.contract import (
    Folder,
    StepError,
    StepFolders,
    peak_memory_bytes,
    report,
    report_progress,
    run_step,
    write_json,
)
from steps.modeling.batches import BatchPlan
from steps.modeling.checkpoints import CheckpointStore, checkpoint_key
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.modeling.parallel import Processes, apply_liger, gather_parameters, is_sharded, join_processes, place_model
from steps.modeling.training import Progress, check_schedule, train
from steps.modeling.validation import BlockValidation
from steps.schemas.training import PretrainingSummary
from steps.text.bbpe import tokenizer_digest
from steps.text.packing import PackedBlocks

FOLDERS = [Folder("model"), Folder("blocks")]
TENSORBOARD_VARIABLE = "LANGADAPT_TENSORBOARD"
# Of the parameters while training. Mixed precision keeps float32 masters.
TRAINING_DTYPES = {"float32": torch.float32, "bfloat16_mixed": torch.float32, "bfloat16": torch.bfloat16}
EXPORT_DTYPES = {"float32": torch.float32, "bfloat16_mixed": torch.bfloat16, "bfloat16": torch.bfloat16}


def continued_pretraining(config: ContinuedPretrainingConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Trains, exports, and returns the last loss and the bits per byte on the validation blocks."""
    check_schedule(config)
    processes = join_processes(config.device)
    blocks = PackedBlocks(folders["blocks"] / "train")
    validation_blocks = PackedBlocks(folders["blocks"] / "validation")
    trust = config.trust_remote_code
    tokenizer = load_tokenizer(folders["model"], trust_remote_code=trust)
    check_blocks(folders["model"], tokenizer, blocks, validation_blocks)
    plan = BatchPlan.of(
        blocks, config.global_batch_tokens, config.device_batch_blocks, config.seed, processes.world_size
    )
    model = load_model(folders["model"], dtype=TRAINING_DTYPES[config.precision], trust_remote_code=trust)
    check_positions(model, blocks)
    liger = apply_liger(model, config.liger, processes.device)
    if config.activation_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    place_model(model, processes, config.precision)

    validation = BlockValidation(validation_blocks, tokenizer, config.max_validation_blocks, processes)
    key = checkpoint_key(config, NOT_LEARNED, folders.input_digests)
    store = CheckpointStore(folders.checkpoints, key, config.kept_checkpoints, processes)
    with ExitStack() as resources:
        progress, resumed_from = train(
            model,
            plan,
            config,
            processes,
            store,
            validate=lambda trained: validation(trained, config.precision),
            observe=make_observer(processes, resources),
            tell=report_progress if processes.is_first else None,
        )
    summary = summarise(config, model, processes, progress, resumed_from, liger)
    parameters = gather_parameters(model, processes)
    if processes.is_first:
        export(parameters, folders["model"], tokenizer, EXPORT_DTYPES[config.precision], folders.output, trust)
        write_json(folders.output / "training.json", summary.model_dump(mode="json"))
    processes.leave()
    return headline(summary)


def check_blocks(
    model_folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    blocks: PackedBlocks,
    validation_blocks: PackedBlocks,
) -> None:
    """Raises StepError unless the blocks were made by the model's own tokenizer, and there are some to validate on."""
    for split in (blocks, validation_blocks):
        if split.vocab_size != len(tokenizer):
            raise StepError(
                "blocks",
                f"a vocabulary of {split.vocab_size} tokens",
                limit=f"{len(tokenizer)}, the model's tokenizer",
                remedy="Tokenize the corpus with the model's tokenizer.",
            )
        if split.tokenizer_sha256 != tokenizer_digest(model_folder):
            raise StepError(
                "blocks",
                f"made by tokenizer {split.tokenizer_sha256[:12]}",
                limit=f"{tokenizer_digest(model_folder)[:12]}, the model's own",
                remedy="Tokenize the corpus with the model's tokenizer.",
            )
    if len(validation_blocks) == 0:
        raise StepError("validation blocks", 0, limit="at least 1", remedy="Raise prepare_corpus.validation_share.")


def check_positions(model: PreTrainedModel, blocks: PackedBlocks) -> None:
    """Raises StepError for blocks that are longer than the model's context."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None and blocks.block_tokens > limit:
        remedy = "Lower tokenize_corpus.block_tokens."
        raise StepError("tokens in a block", blocks.block_tokens, limit=f"{limit}, the model's context", remedy=remedy)


def make_observer(processes: Processes, resources: ExitStack) -> Callable[..., None]:
    """Prints each line of figures in the first process, and writes it as TensorBoard events where that is asked for."""
    folder = os.environ.get(TENSORBOARD_VARIABLE)
    if not processes.is_first:
        return lambda **figures: None
    if not folder:
        return report
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    resources.callback(writer.close)

    def observe(*, step: int, **figures: float) -> None:
        report(step=step, **figures)
        for name, value in figures.items():
            writer.add_scalar(name, value, step)

    return observe


def summarise(
    config: ContinuedPretrainingConfig,
    model: PreTrainedModel,
    processes: Processes,
    progress: Progress,
    resumed_from: int,
    liger: bool,
) -> PretrainingSummary:
    """training.json."""
    seconds = sum(phase.seconds for phase in progress.phases.values())
    tokens = sum(phase.tokens for phase in progress.phases.values())
    return PretrainingSummary(
        phases=progress.phases,
        resumed_from_step=resumed_from,
        processes=processes.world_size,
        parallelism="fsdp2" if is_sharded(model) else "none",
        device=torch.cuda.get_device_name(processes.device) if processes.device.type == "cuda" else "cpu",
        precision=config.precision,
        liger=liger,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        tokens_per_second_per_device=tokens / seconds / processes.world_size if seconds else 0.0,
        peak_memory_bytes=peak_device_memory_bytes(processes.device),
        validation_bits_per_byte=progress.validation_history[-1][1],
        validation_history=progress.validation_history,
    )


def peak_device_memory_bytes(device: torch.device) -> int:
    """Largest memory held so far: allocated on the GPU, or resident on the host."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak_memory_bytes()


def export(
    parameters: dict[str, torch.Tensor],
    model_folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    dtype: torch.dtype,
    output: Path,
    trust_remote_code: bool = False,
) -> None:
    """Writes the trained parameters in the form of the input model, and asserts that a fresh load gives them back."""
    model = load_model(model_folder, dtype=dtype, trust_remote_code=trust_remote_code)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(parameters[name])
    save_model(model, tokenizer, output)
    reloaded = dict(load_model(output, dtype=dtype, trust_remote_code=trust_remote_code).named_parameters())
    assert reloaded.keys() == parameters.keys()
    for name, value in parameters.items():
        assert torch.equal(reloaded[name], value.to(dtype)), f"{name} changed on its way through the file"


def headline(summary: PretrainingSummary) -> dict[str, float | int | str]:
    """The figures that the seal keeps."""
    figures: dict[str, float | int | str] = {
        "validation_bits_per_byte": summary.validation_bits_per_byte,
        "tokens_per_second_per_device": round(summary.tokens_per_second_per_device, 1),
        "resumed_from_step": summary.resumed_from_step,
    }
    for name, phase in summary.phases.items():
        if phase.last_loss is not None:
            figures[f"{name}_last_loss"] = phase.last_loss
    return figures


if __name__ == "__main__":
    sys.exit(
        run_step(
            continued_pretraining, ContinuedPretrainingConfig, FOLDERS, checkpoints=True, reports=("training.json",)
        )
    )
