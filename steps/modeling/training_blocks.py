"""The blocks that a training reads and measures itself on, made by the model's own tokenizer and planned into steps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.contract import StepError, warn
from steps.modeling.batches import BatchPlan
from steps.text.bbpe import tokenizer_digest
from steps.text.packing import PackedBlocks

# Up to about four passes repeated text teaches nearly as much as new text does.
MOST_REPLAY_PASSES = 4


@dataclass(frozen=True)
class TrainingBlocks:
    """TokenizeCorpus' output. Those of the source corpus are None where none was given, or nothing of it is there."""

    train: PackedBlocks
    validation: PackedBlocks
    source_train: PackedBlocks | None
    source_validation: PackedBlocks | None

    @classmethod
    def read(cls, folder: Path, model_folder: Path, tokenizer: PreTrainedTokenizerBase) -> TrainingBlocks:
        """Raises StepError unless the model's own tokenizer made the blocks, and there are some to validate on."""
        digest = tokenizer_digest(model_folder)
        train, validation = PackedBlocks(folder / "train"), PackedBlocks(folder / "validation")
        for split in (train, validation):
            _check_tokenizer(split, digest, tokenizer)
        if len(validation) == 0:
            raise StepError("validation blocks", 0, limit="at least 1", remedy="Raise prepare_corpus.validation_share.")
        source: dict[str, PackedBlocks | None] = {"source_train": None, "source_validation": None}
        for name in source:
            if (folder / name).is_dir():
                blocks = PackedBlocks(folder / name)
                _check_tokenizer(blocks, digest, tokenizer)
                source[name] = blocks if len(blocks) else None
        return cls(train, validation, **source)

    def plan(self, config: ContinuedPretrainingConfig, world_size: int, *, one_row: bool) -> BatchPlan:
        """See `BatchPlan.of`."""
        return BatchPlan.of(
            self.train,
            config.global_batch_tokens,
            config.device_batch_blocks,
            config.seed,
            world_size,
            replay=self.source_train,
            replay_share=config.source_replay_share,
            one_row=one_row,
            sequential=config.block_order == "sequential",
        )


def _check_tokenizer(blocks: PackedBlocks, digest: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises StepError for blocks made by another tokenizer than the model's, of that digest."""
    if blocks.tokenizer_sha256 == digest:
        return
    if blocks.vocab_size != len(tokenizer):
        value, limit = f"a vocabulary of {blocks.vocab_size} tokens", f"{len(tokenizer)}, the model's tokenizer"
    else:
        value, limit = f"made by tokenizer {blocks.tokenizer_sha256[:12]}", f"{digest[:12]}, the model's own"
    raise StepError("blocks", value, limit=limit, remedy="Tokenize the corpus with the model's tokenizer.")


def check_positions(model: PreTrainedModel, blocks: PackedBlocks) -> None:
    """Raises StepError for blocks that are longer than the model's context."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if limit is not None and blocks.block_tokens > limit:
        remedy = "Lower tokenize_corpus.block_tokens."
        raise StepError("tokens in a block", blocks.block_tokens, limit=f"{limit}, the model's context", remedy=remedy)


def tell_plan(plan: BatchPlan, config: ContinuedPretrainingConfig) -> None:
    """Says what is read, and warns where little text is replayed so often that it would be learnt by heart."""
    steps = config.phase_1_steps + config.phase_2_steps
    print(
        f"steps: {config.phase_1_steps} of phase 1, {config.phase_2_steps} of phase 2; {plan.epochs(steps):.2f} passes "
        f"over the corpus, its blocks {config.block_order}",
        flush=True,
    )
    if plan.replay is None:
        print("replay: none", flush=True)
        return
    passes = plan.replay_passes(steps)
    print(f"replay: {plan.replay_share:.1%} of the blocks are source text, {passes:.2f} passes over it", flush=True)
    if passes > MOST_REPLAY_PASSES:
        text = (
            f"{passes:.1f} passes over the source corpus; more than {MOST_REPLAY_PASSES} teach little. Give more of it."
        )
        warn("source-replayed-often", text)
