"""ContinuedPretraining: two phases on packed blocks, embeddings first, then all weights.

    python -m steps.continued_pretraining --model DIR --blocks DIR --output DIR [--checkpoints DIR] --name=value...
    python -m steps.continued_pretraining --base_model DIR --blocks DIR ...         (with the tokenizer that it has)
    torchrun --nproc-per-node 8 -m steps.continued_pretraining --model=DIR ...     (sharded with FSDP2)

Reads    model        AdaptVocabulary's output; or in its place
         base_model   a model as it came, for the ablation: what it learns with its own tokenizer
         blocks       TokenizeCorpus' output, made by the same tokenizer
         checkpoints  unfinished work of an earlier attempt on the same settings and inputs; written, too
Writes   config.json, generation_config.json, model.safetensors, tokenizer files   the trained model
         training.json   both phases, speed, memory, bits per byte on the validation blocks, the kernels of one step
         telemetry.jsonl   the training in a line every log_every_steps (steps/schemas/training.py, TelemetryRecord)

precision float32 exports float32; bfloat16 and bfloat16_mixed export bfloat16, the precision that the model computed
in: float32 masters are of use to an optimizer alone. TensorBoard events go to the folder that the environment variable
LANGADAPT_TENSORBOARD names; without it none are written.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.continued_pretraining import ContinuedPretrainingConfig, not_learned
from steps.contract import (
    ConfigError,
    Folder,
    StepError,
    StepFolders,
    run_step,
    warn,
    write_json,
)
from steps.modeling.attention import check_isolation, choose_attention, wants_one_row
from steps.modeling.batches import BatchPlan
from steps.modeling.checkpoint_settings import checkpoint_key, claim_folder, learned_settings
from steps.modeling.checkpoints import CheckpointStore
from steps.modeling.fused_kernels import apply_liger
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.modeling.parallel import (
    Processes,
    compile_layers,
    gather_parameters,
    is_sharded,
    join_processes,
    place_model,
    telling_lost_processes,
)
from steps.modeling.schedule import check_schedule, stretched
from steps.modeling.step_profile import StepProfiler, check_fused
from steps.modeling.telemetry import TELEMETRY_NAME, peak_device_memory_bytes, telemetry_in
from steps.modeling.training import train
from steps.modeling.training_blocks import TrainingBlocks, check_positions, tell_plan
from steps.modeling.training_progress import Progress
from steps.modeling.utilisation import Utilisation
from steps.modeling.validation import BlockValidation
from steps.schemas.training import PretrainingSummary, StepProfile

FOLDERS = [Folder("model", required=False), Folder("base_model", sealed=False, required=False), Folder("blocks")]
REPORTS = ("training.json", TELEMETRY_NAME)
# Of the parameters while training. Mixed precision keeps float32 masters.
TRAINING_DTYPES = {"float32": torch.float32, "bfloat16_mixed": torch.float32, "bfloat16": torch.bfloat16}
EXPORT_DTYPES = {"float32": torch.float32, "bfloat16_mixed": torch.bfloat16, "bfloat16": torch.bfloat16}


def continued_pretraining(config: ContinuedPretrainingConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Trains, exports, and returns the last loss and the bits per byte on the validation blocks."""
    check_schedule(config)
    processes = join_processes(config.device, config.parallelism)
    with telling_lost_processes(processes):
        summary = pretrain(config, folders, processes)
        processes.leave()
    return headline(summary)


def pretrain(config: ContinuedPretrainingConfig, folders: StepFolders, processes: Processes) -> PretrainingSummary:
    """What each of the processes does."""
    model_folder = folder_to_train(folders)
    trust = config.trust_remote_code
    tokenizer = load_tokenizer(model_folder, trust_remote_code=trust)
    blocks = TrainingBlocks.read(folders["blocks"], model_folder, tokenizer)
    train_blocks, source = blocks.train, blocks.source_validation
    key = claim_checkpoints(config, folders, processes)
    model = load_model(model_folder, dtype=TRAINING_DTYPES[config.precision], trust_remote_code=trust)
    check_positions(model, train_blocks)
    liger = apply_liger(model, config.liger, processes, train_blocks.batch([0]), config.precision)
    attention = choose_attention(model, config.attention, processes.device, config.precision, train_blocks.block_tokens)
    plan = blocks.plan(config, processes.world_size, one_row=wants_one_row(model))
    if config.passes:
        # From here on the steps are those that are taken.
        config = stretched(config, plan.steps_of(config.passes))
    if processes.is_first:
        print(f"attention: {attention}", flush=True)
        tell_plan(plan, config)
    make_ready(model, config, processes)
    validation = BlockValidation(blocks.validation, tokenizer, config.max_validation_blocks, processes)
    of_source = source and BlockValidation(source, tokenizer, config.max_validation_blocks, processes)
    profiler = StepProfiler(config.profile, processes.device)
    with telemetry_in(folders.output if processes.is_first else None) as telemetry:
        progress, resumed_from = train(
            model,
            plan,
            config,
            processes,
            CheckpointStore(folders.checkpoints, key, config.kept_checkpoints, processes),
            validate=lambda trained: validation(trained, config.precision),
            validate_source=lambda trained: of_source(trained, config.precision) if of_source else None,
            observe=telemetry,
            begin=telemetry.begin,
            tell=telemetry.tell,
            profiler=profiler,
        )
    summary = summarise(config, model, plan, processes, progress, resumed_from, liger, profiler.result)
    parameters = gather_parameters(model, processes)
    if processes.is_first:
        export(parameters, model_folder, tokenizer, EXPORT_DTYPES[config.precision], folders.output, trust)
        write_json(folders.output / "training.json", summary.model_dump(mode="json"))
        check_fused(profiler.result, liger)
        warn_if_worse(progress)
    return summary


def folder_to_train(folders: StepFolders) -> Path:
    """The one model that was given. Raises ConfigError for none and for two."""
    given = [folder for name in ("model", "base_model") if (folder := folders.get(name)) is not None]
    if len(given) != 1:
        value = "neither given" if not given else "both given"
        raise ConfigError("--model, --base_model", value, limit="one of them", remedy="Name the folder to train.")
    return given[0]


def make_ready(model: PreTrainedModel, config: ContinuedPretrainingConfig, processes: Processes) -> None:
    """Puts the model where it trains, as the settings say, and checks that no document of a block reads another."""
    if config.activation_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    if config.compile_layers:
        compile_layers(model)
    place_model(model, processes, config.precision)
    check_isolation(model, processes, config.precision)


def warn_if_worse(progress: Progress) -> None:
    """A training that takes away what the model knew has had a wrong setting, most often the learning rate."""
    (_, before), (step, after) = progress.validation_history[0], progress.validation_history[-1]
    if after > before:
        text = f"{after:.4f} bits per byte on the validation blocks after step {step}, {before:.4f} before the first. "
        warn("training-made-worse", text + "Lower the learning rates, or look at the optimizer's settings.")


def claim_checkpoints(config: ContinuedPretrainingConfig, folders: StepFolders, processes: Processes) -> str:
    """The key of this training's checkpoints. Raises ConfigError where the folder holds those of other settings."""
    ignored = not_learned(config)
    key = checkpoint_key(config, ignored, folders.input_digests)
    settings = learned_settings(config, ignored)
    writes = processes.local_rank == 0
    claim_folder(folders.checkpoints, key, "continued_pretraining", settings, writes=writes)
    return key


def summarise(
    config: ContinuedPretrainingConfig,
    model: PreTrainedModel,
    plan: BatchPlan,
    processes: Processes,
    progress: Progress,
    resumed_from: int,
    liger: bool,
    profile: StepProfile | None,
) -> PretrainingSummary:
    """training.json."""
    seconds = sum(phase.seconds for phase in progress.phases.values())
    tokens = sum(phase.tokens for phase in progress.phases.values())
    utilisation = Utilisation(model, processes.device, config.precision)
    flops_per_token = {f"phase_{phase}": flops for phase, flops in utilisation.flops_per_token.items()}
    return PretrainingSummary(
        phases=progress.phases,
        corpus_passes=plan.epochs(progress.step),
        corpus_bytes=plan.blocks.bytes,
        phase_1_end=progress.phase_1_end,
        resumed_from_step=resumed_from,
        processes=processes.world_size,
        parallelism="fsdp2" if is_sharded(model) else processes.parallelism,
        device=torch.cuda.get_device_name(processes.device) if processes.device.type == "cuda" else "cpu",
        precision=config.precision,
        liger=liger,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops_per_token=flops_per_token,
        flops=sum(phase.tokens * flops_per_token[name] for name, phase in progress.phases.items()),
        peak_flops_per_second=utilisation.peak,
        tokens_per_second_per_device=tokens / seconds / processes.world_size if seconds else 0.0,
        peak_memory_bytes=peak_device_memory_bytes(processes.device),
        validation_bits_per_byte=progress.validation_history[-1][1],
        source_validation_bits_per_byte=progress.source_bits_per_byte,
        validation_history=progress.validation_history,
        profile=profile,
    )


def export(
    parameters: dict[str, torch.Tensor],
    model_folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    dtype: torch.dtype,
    output: Path,
    trust_remote_code: bool = False,
) -> None:
    """Writes the trained parameters in the form of the input model.

    Raises StepError where a fresh load gives others.
    """
    model = load_model(model_folder, dtype=dtype, trust_remote_code=trust_remote_code)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(parameters[name])
    save_model(model, tokenizer, output)
    reloaded = dict(load_model(output, dtype=dtype, trust_remote_code=trust_remote_code).named_parameters())
    assert reloaded.keys() == parameters.keys()
    for name, value in parameters.items():
        if not torch.equal(reloaded[name], value.to(dtype)):
            remedy = "Look at the disk, then give the same command again: training is done, its checkpoint stays."
            raise StepError(f"exported model: {name}", "other values than were written", remedy=remedy)


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
    sys.exit(run_step(continued_pretraining, ContinuedPretrainingConfig, FOLDERS, checkpoints=True, reports=REPORTS))
