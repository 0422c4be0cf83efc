"""Bits per byte of one tiny model on Turkish, Finnish and Hindi sentences, against stored values.

The model's weights are a formula, so that the values rest on no random number generator.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from steps.modeling.bits_per_byte import score_documents

# A folder beside the checkout, or the one that the variable names.
REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", Path(__file__).parents[2].parent / "shared" / "data"))
SENTENCES = 60
# Bits per byte at 64 bytes of context and at 32 tokens of context, tokens, bytes.
STORED = {
    "tr": (7.0191643, 7.0290398, 6418, 8040),
    "fi": (7.8044624, 7.8143753, 7280, 8013),
    "hi": (8.6440102, 8.7261417, 19009, 19009),
}


def sentences(language: str) -> list[str]:
    path = REAL_TEXT / "parallel_7_languages.jsonl"
    if not path.is_file():
        print(f"not measured: stored values of three languages: no file {path}")
        pytest.skip(f"no {path.name} in {REAL_TEXT}")
    with path.open(encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    return [line["text"] for line in lines if line["lang"] == language][:SENTENCES]


def set_by_formula(model: torch.nn.Module) -> None:
    """Each matrix gets the sine of its places, a fifth in size; the scales of norms stay 1."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            if parameter.dim() == 2:
                places = torch.arange(parameter.numel(), dtype=torch.float64)
                parameter.copy_((torch.sin(places * 1.7 + places**2 * 0.013 + number) / 5).reshape(parameter.shape))


@pytest.mark.parametrize("language", STORED)
def test_stored_values(language, make_tiny_tokenizer, make_tiny_llama):
    texts, tokenizer, model = sentences(language), make_tiny_tokenizer(), make_tiny_llama()
    set_by_formula(model)
    by_bytes = score_documents(model, tokenizer, texts, context_bytes=64, batch_tokens=2_048)
    by_tokens = score_documents(model, tokenizer, texts, context_tokens=32, batch_tokens=2_048)
    found = (by_bytes.bits_per_byte, by_tokens.bits_per_byte, int(by_bytes.tokens.sum()), by_bytes.bytes_scored)
    assert found == pytest.approx(STORED[language], rel=1e-5)
