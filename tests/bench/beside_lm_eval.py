"""`make bench`: bits per byte beside EleutherAI's lm-eval: same weights, same text, same windows, same run.

    python tests/bench/beside_lm_eval.py [--documents 8] [--shape NAME]... [--repeats 2]

Two texts. `sentences` fit into one window, and lm-eval's own `loglikelihood_rolling` scores them. `documents` are
longer than a window; there the windows are ours, which overlap by half, and lm-eval's scorer is given each of them with
its context. For each text and shape of model it prints both figures, their difference, and both speeds in bytes of text
a second. lm-eval gets the batch size that is fastest for it of those tried; each speed is the best of the repeats,
which take turns. What is timed begins at text and ends at the sum of each document, in processor seconds (of all
threads): other processes on the machine lengthen the wall clock's.

Where lm-eval's rule for long documents differs from ours, and why, is in docs/bits-per-byte.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.metrics import bits_per_byte as lm_eval_bits_per_byte
from lm_eval.models.huggingface import HFLM
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from steps.modeling.bits_per_byte import cut_windows, score_documents
from steps.text.bbpe import train_bbpe

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
CONTEXT_TOKENS = 256
BATCH_TOKENS = 16_384
LM_EVAL_BATCHES = (1, 8, 32)
LARGEST_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class Shape:
    """A Llama with random weights. Random ones cost the same time as trained ones."""

    hidden: int
    layers: int
    vocabulary: int

    def build(self) -> LlamaForCausalLM:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=self.vocabulary, hidden_size=self.hidden, intermediate_size=4 * self.hidden,
            num_hidden_layers=self.layers, num_attention_heads=self.hidden // 32,
            num_key_value_heads=max(1, self.hidden // 128), max_position_embeddings=4_096, tie_word_embeddings=True,
            initializer_range=0.05,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()


SHAPES = {
    "sample": Shape(hidden=128, layers=2, vocabulary=4_096),
    "small": Shape(hidden=256, layers=4, vocabulary=32_000),
    "wide vocabulary": Shape(hidden=256, layers=4, vocabulary=100_352),
}


@dataclass(frozen=True)
class Comparison:
    """Bits per byte, and bytes of text a processor second, of both."""

    ours: float
    lm_eval: float
    our_speed: float
    lm_eval_speed: float
    lm_eval_batch: int

    @property
    def ratio(self) -> float:
        return self.our_speed / self.lm_eval_speed

    @property
    def difference(self) -> float:
        return abs(self.ours - self.lm_eval)


def lm_eval_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, batch: int) -> HFLM:
    """lm-eval around a model that is there already. add_bos_token: left to itself it puts the tokenizer's BOS behind
    its own prefix token, so that there are two (EleutherAI/lm-evaluation-harness#3333)."""
    return HFLM(
        pretrained=model, tokenizer=tokenizer, batch_size=batch, max_length=CONTEXT_TOKENS, device="cpu",
        add_bos_token=False,
    )  # fmt: skip


def by_rolling(model: HFLM, documents: list[str]) -> float:
    """lm-eval's bits_per_byte of the documents, all by its own functions."""
    requests = [
        Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=index)
        for index, text in enumerate(documents)
    ]
    with contextlib.redirect_stderr(io.StringIO()):
        found = model.loglikelihood_rolling(requests, disable_tqdm=True)
    return lm_eval_bits_per_byte([(value, len(text.encode())) for value, text in zip(found, documents, strict=True)])


def by_our_windows(model: HFLM, documents: list[str]) -> float:
    """lm-eval's scorer and its bits_per_byte on our windows."""
    requests, owner = [], []
    for index, text in enumerate(documents):
        ids = [model.prefix_token_id, *model.tok_encode(text)]
        for window in cut_windows(np.ones(len(ids), dtype=np.int64), CONTEXT_TOKENS, index):
            requests.append((None, ids[window.start : window.scored], ids[window.scored : window.end]))
            owner.append(index)
    with contextlib.redirect_stderr(io.StringIO()):
        found = model._loglikelihood_tokens(requests, disable_tqdm=True)
    sums = np.bincount(owner, weights=[value for value, _ in found])
    return lm_eval_bits_per_byte([(value, len(text.encode())) for value, text in zip(sums, documents, strict=True)])


def by_us(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, documents: list[str]) -> float:
    """Our bits per byte."""
    scores = score_documents(model, tokenizer, documents, context_tokens=CONTEXT_TOKENS, batch_tokens=BATCH_TOKENS)
    return scores.bits_per_byte


def timed(function, *arguments) -> tuple[float, float]:
    """(what the function gives, processor seconds)."""
    began = time.process_time()
    return function(*arguments), time.process_time() - began


def compare(shape: Shape, tokenizer: PreTrainedTokenizerFast, documents: list[str], rule, repeats: int) -> Comparison:
    """Both on the same weights and text; rule: by_rolling or by_our_windows."""
    model, text_bytes = shape.build(), sum(len(text.encode()) for text in documents)
    theirs = {batch: lm_eval_model(model, tokenizer, batch) for batch in LM_EVAL_BATCHES}
    seconds: dict[int, list[float]] = {batch: [] for batch in (0, *theirs)}
    for _ in range(repeats):
        for batch, of_batch in theirs.items():
            of_theirs, took = timed(rule, of_batch, documents)
            seconds[batch].append(took)
        of_ours, took = timed(by_us, model, tokenizer, documents)
        seconds[0].append(took)
    best = min(theirs, key=lambda batch: min(seconds[batch]))
    return Comparison(of_ours, of_theirs, text_bytes / min(seconds[0]), text_bytes / min(seconds[best]), best)


def sample_documents(count: int) -> list[str]:
    """Documents of the sample that ships with the package."""
    with SAMPLE.open(encoding="utf-8") as stream:
        return [json.loads(line)["text"] for line in stream][:count]


def sample_tokenizer(documents: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of 4,096 tokens trained on the documents."""
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    return PreTrainedTokenizerFast(tokenizer_object=train_bbpe(documents, 4_096, 2), **names)


def sentences_of(documents: list[str]) -> list[str]:
    """Their sentences, as far as a full stop tells, in their order."""
    return [part.strip() for text in documents for part in re.split(r"(?<=[.!?])\s", text) if part.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=8, help="documents of the sample")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="shapes of model (default: all)")
    parser.add_argument("--repeats", type=int, default=2, help="timed repeats of each")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    documents = sample_documents(given.documents)
    tokenizer = sample_tokenizer(documents)
    texts = {"sentences": (sentences_of(documents), by_rolling), "documents": (documents, by_our_windows)}
    print(f"windows of {CONTEXT_TOKENS} tokens, {torch.get_num_threads()} threads, torch {torch.__version__}")
    agree = True
    for name in given.shape or SHAPES:
        shape = SHAPES[name]
        for text, (parts, rule) in texts.items():
            found = compare(shape, tokenizer, parts, rule, given.repeats)
            agree &= found.difference <= LARGEST_DIFFERENCE
            print(
                f"{name} (hidden {shape.hidden}, layers {shape.layers}, vocabulary {shape.vocabulary:,}), "
                f"{len(parts)} {text}, {sum(len(part.encode()) for part in parts):,} bytes: "
                f"bits per byte {found.ours:.6f}, difference {found.difference:.1e} (limit {LARGEST_DIFFERENCE:g}); "
                f"bytes a second {found.our_speed:,.0f}, lm-eval {found.lm_eval_speed:,.0f} "
                f"(batch {found.lm_eval_batch}), ratio {found.ratio:.2f}",
                flush=True,
            )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
