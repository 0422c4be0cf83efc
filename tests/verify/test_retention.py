"""Replay keeps the base's language: the sample's English base model adapted to the sample's Azerbaijani, with and
without its English replayed, then measured on English that neither training has read."""

from __future__ import annotations

import json

import pytest
from small_trainings import ALONE, Material, train_here
from workplace import SAMPLE, prove

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.make_sample import cached_sample, default_cache, english_topics
from steps.modeling.batches import BatchPlan
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.loading import load_model, load_tokenizer
from steps.modeling.validation import BlockValidation

pytestmark = pytest.mark.verify

SHARES = (0.0, 0.1, 0.25)
CONFIG = ContinuedPretrainingConfig(
    phase_1_steps=12, phase_1_learning_rate=0.003, phase_2_steps=36, phase_2_learning_rate=0.0015,
    phase_2_warmup_steps=3, global_batch_tokens=16 * 128, device_batch_blocks=16, precision="float32", liger="off",
    device="cpu", validate_every_steps=10**9,
)  # fmt: skip
HELD_OUT_BYTES = 40_000


def take_bytes(texts: list[str], limit: int) -> list[str]:
    """Texts from the start, cut where they reach the limit."""
    taken, size = [], 0
    for text in texts:
        taken.append(text[: limit - size])
        size += len(taken[-1])
        if size >= limit:
            break
    return taken


def test_replay_reduces_the_retention_loss(tmp_path):
    base = cached_sample(default_cache()) / "base_model"
    azerbaijani = [json.loads(line)["text"] for line in (SAMPLE / "corpus.jsonl").read_text("utf-8").splitlines()]
    held_out, corpus = azerbaijani[::10], [text for number, text in enumerate(azerbaijani) if number % 10]
    english = english_topics()
    english_held_out = take_bytes(english[::8], HELD_OUT_BYTES)
    source = [text for number, text in enumerate(english) if number % 8]

    material = Material.make(tmp_path, base, corpus, vocabulary_size=2_048, block_tokens=128)
    material.pack("source", source)
    validation = BlockValidation(material.pack("validation", held_out), material.tokenizer, 10**6, ALONE)

    def on_english(model, tokenizer) -> float:
        return score_documents(
            model, tokenizer, english_held_out, context_bytes=512, batch_tokens=8_192
        ).bits_per_byte  # fmt: skip

    before = on_english(load_model(base), load_tokenizer(base))
    print(f"\nEnglish before: {before:.4f} bits per byte; {len(english_held_out)} documents")
    found = {}
    for share in SHARES:
        plan = BatchPlan.of(
            material.blocks("train"), CONFIG.global_batch_tokens, CONFIG.device_batch_blocks, CONFIG.seed, 1,
            replay=material.blocks("source"), replay_share=share,
        )  # fmt: skip
        model = material.model("copy+subtoken_mean")
        train_here(model, plan, CONFIG, validate=lambda trained: 0.0)
        found[share] = (on_english(model, material.tokenizer) - before, validation(model, "float32"))
        print(
            f"replay {share:.0%}: retention loss {found[share][0]:.4f}, Azerbaijani {found[share][1]:.4f} bits per byte"
        )
    kept = 1 - found[0.1][0] / found[0.0][0]
    prove("of the retention loss a replay of 10% takes away", f"{kept:.1%}", "at least 10%", kept >= 0.1)
    prove("more replay keeps more", f"{found[0.25][0]:.4f}", f"{found[0.1][0]:.4f}", found[0.25][0] < found[0.1][0])
    cost = found[0.1][1] - found[0.0][1]
    prove("10% of replay costs Azerbaijani, bits per byte", f"{cost:.4f}", "0.05", cost <= 0.05)
