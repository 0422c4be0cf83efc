"""FineTune: LoRA on conversations with TRL's SFTTrainer, loss on the assistant's tokens alone, merged at the end.

    python -m steps.fine_tune --model DIR --conversations FILE_OR_DIR --output DIR [--checkpoints DIR] [--lora_rank=64]

Reads    model          ContinuedPretraining's output, its tokenizer with the chat template
         conversations  .jsonl in one of six forms (see steps/text/conversation_forms.py)
         checkpoints    unfinished work of an earlier attempt on the same settings and inputs; written, too
Writes   the merged model at the folder's root (safetensors in the incoming model's dtype, tokenizer,
         generation_config.json with the ends of turn)
         adapter/        the adapter alone
         training.json   what was trained on, losses, the merge check, how many replies end by themselves

The merge is made and checked in float32, then saved in the dtype of the model that came in: where that is bfloat16, so
is the published model. The losses and replies in training.json are those of the saved weights.

Before the first step every conversation's trained tokens are spelled out and compared with what the assistant says.
What cannot be used is counted, told in training.json, and beyond max_dropped_share stops the step; what can be used
and is likely not what was meant is warned about (steps/text/conversation_warnings.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from steps.configs.fine_tune import FineTuneConfig, not_learned
from steps.contract import ConfigError, Folder, StepFolders, run_step, write_json
from steps.modeling.adapter import check_target_modules, merge_adapter
from steps.modeling.adapter_training import TrainingRun, train_adapter
from steps.modeling.checkpoint_settings import checkpoint_key, claim_folder, learned_settings
from steps.modeling.fine_tuned_base import COMPUTE_DTYPES, load_base
from steps.modeling.loading import choose_device, load_model, load_tokenizer
from steps.modeling.reply_measures import mean_token_loss, measure_stop_rate
from steps.schemas.training import FineTuningSummary
from steps.text.fine_tuning_data import TrainingData, read_data

FOLDERS = [Folder("model"), Folder("conversations", sealed=False)]
# Conversations of either side on which merged model and adapter are compared.
MERGE_CHECK_CONVERSATIONS = 4


def fine_tune(config: FineTuneConfig, folders: StepFolders) -> dict[str, float | int | str]:
    """Checks every example, trains the adapter, merges it and measures the merged model."""
    check_one_process()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    device = choose_device(config.device)
    trust = config.trust_remote_code
    tokenizer = load_tokenizer(folders["model"], trust_remote_code=trust)
    data = read_data(config, folders["conversations"], tokenizer)
    checkpoints = claim_checkpoints(config, folders)
    model = load_base(folders["model"], config, device, trust_remote_code=trust)
    check_positions(model, config.max_tokens)
    check_target_modules(model, config.target_modules)
    loss_before = mean_token_loss(model, data.heldout, config.batch_conversations)
    adapter = folders.output / "adapter"
    run = train_adapter(model, tokenizer, data.training, data.heldout, config, adapter, checkpoints)
    del model

    sides = (data.training, data.heldout)
    prompts = [example.input_ids for side in sides for example in side[:MERGE_CHECK_CONVERSATIONS]]
    difference = merge_adapter(
        folders["model"],
        adapter,
        folders.output,
        tokenizer,
        prompts,
        max_difference=config.max_merge_difference,
        trust_remote_code=trust,
    )
    merged = load_model(folders.output, dtype=COMPUTE_DTYPES[config.precision], device=device, trust_remote_code=trust)
    summary = summarise(
        config,
        data,
        run,
        validation_loss_before=loss_before,
        validation_loss=mean_token_loss(merged, data.heldout, config.batch_conversations),
        merge_relative_difference=difference,
        stop_rate_training=measure_stop_rate(merged, tokenizer, data.training),
        stop_rate_heldout=measure_stop_rate(merged, tokenizer, data.heldout),
    )
    write_json(folders.output / "training.json", summary.model_dump(mode="json"))
    return headline(summary)


def claim_checkpoints(config: FineTuneConfig, folders: StepFolders) -> Path | None:
    """The folder of this training's checkpoints, if they are kept. Raises ConfigError for one with other settings."""
    if folders.checkpoints is None:
        return None
    ignored = not_learned(config)
    key = checkpoint_key(config, ignored, folders.input_digests)
    claim_folder(folders.checkpoints, key, "fine_tune", learned_settings(config, ignored), writes=True)
    return folders.checkpoints / key


def check_one_process() -> None:
    """Raises ConfigError under a launcher with several processes."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        remedy = "Choose an instance type with one accelerator, and one instance."
        raise ConfigError("fine_tune", f"{processes} processes", limit=1, remedy=remedy)


def check_positions(model: PreTrainedModel, max_tokens: int) -> None:
    """Raises ConfigError where conversations may be longer than the model's positions."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None and max_tokens > limit:
        limit_text = f"{limit}, the model's max_position_embeddings"
        raise ConfigError("fine_tune.max_tokens", max_tokens, limit=limit_text, remedy="Lower it.")


def summarise(
    config: FineTuneConfig, data: TrainingData, run: TrainingRun, **measured: float | None
) -> FineTuningSummary:
    """training.json. measured: of the base and of the merged model."""
    return FineTuningSummary(
        conversation_form=data.form,
        conversations=len(data.training),
        conversations_heldout=len(data.heldout),
        conversations_dropped={reason: noted.count for reason, noted in data.dropped.items()},
        first_dropped={reason: noted.first for reason, noted in data.dropped.items()},
        personal_data=dict(sorted(data.personal_data.items())),
        steps=len(run.losses),
        lora_scaling=config.lora_alpha / config.lora_rank,
        trained_parameters=run.trained_parameters,
        first_loss=run.losses[0],
        last_loss=run.losses[-1],
        validation_history=run.validation_history,
        adapter_step=run.adapter_step,
        ended_early=run.ended_early,
        resumed_from_step=run.resumed_from_step,
        **measured,
    )


def headline(summary: FineTuningSummary) -> dict[str, float | int | str]:
    """The figures for the manifest and the log."""
    metrics: dict[str, float | int | str] = {
        "conversations": summary.conversations,
        "heldout": summary.conversations_heldout,
        "dropped": sum(summary.conversations_dropped.values()),
        "steps": summary.steps,
        "loss": summary.last_loss,
        "validation_loss_before": summary.validation_loss_before,
        "validation_loss": summary.validation_loss,
        "lora_scaling": summary.lora_scaling,
        "merge_relative_difference": summary.merge_relative_difference,
    }
    for name in ("stop_rate_training", "stop_rate_heldout"):
        if (rate := getattr(summary, name)) is not None:
            metrics[name] = rate
    return metrics


if __name__ == "__main__":
    sys.exit(run_step(fine_tune, FineTuneConfig, FOLDERS, checkpoints=True, reports=("training.json",)))
